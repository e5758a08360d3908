"""The examples that the documentation shows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from .conftest import Server

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


def run(name: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_hello(own_server: Server) -> None:
    lines = run("hello.py", own_server.url).splitlines()
    assert lines[0].startswith("analyst at version")
    assert lines[1] == "None"
    assert lines[2].startswith("changed meanwhile")
    assert [line.split()[0] for line in lines[3:]] == ["ada", "alan", "grace"]


def test_work_queue(url: str) -> None:
    assert "all 200 tasks are done, each once" in run("work_queue.py", url)


def test_load(own_server: Server) -> None:
    out = run("load.py", own_server.url, "20000")
    assert "20000 of 20000 objects, 100 %" in out
    assert "20000 objects are loaded, 0 were refused" in out


def test_counter_never_counts_twice_although_the_server_is_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # The ports of the server are fixed, so that the client finds it again.
    arguments = ["--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data")]
    arguments += ["--memory", "64MiB", "--segment-bytes", "1MiB"]
    server = Server(*arguments)
    counter = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "counter.py"), server.url, "3000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert counter.stdout is not None
        for line in counter.stdout:
            if line in ("counted 500\n", "counted 1500\n"):
                server.kill()
                server = Server(*arguments)
            if line.startswith("counted 3000 times"):
                break
        assert line == "counted 3000 times, from 0 to 3000\n"
        assert counter.communicate() == ("", "")
        assert counter.returncode == 0
    finally:
        if counter.poll() is None:
            os.kill(counter.pid, signal.SIGKILL)
            counter.communicate()
        server.end()
