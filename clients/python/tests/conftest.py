"""The servers of the tests: real ones, without files, each for a test or for all of them.

The environment variable THUNDERHEAD names the program. Without it, the tests look for `thunderhead`
in the path.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

import thunderhead

TESTS = Path(__file__).parent


def program() -> str:
    """Returns the path of the server's program."""
    found = os.environ.get("THUNDERHEAD") or shutil.which("thunderhead")
    if found is None:
        pytest.exit("set THUNDERHEAD to the path of the program thunderhead", returncode=2)
    return found


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The tests of `thunderhead.aio` run on two loops."""
    loops = {"asyncio": asyncio.new_event_loop}
    return loops | {"uvloop": uvloop.new_event_loop} if item.path.name == "test_aio.py" else loops


class Server:
    """A process with a whole cluster."""

    def __init__(self, *arguments: str) -> None:
        command = [program(), "dev", "--json", *(arguments or ["--ephemeral"])]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{command} ended before it was ready"
        self.address: str = json.loads(line)["coordinators"][0]
        self.url = f"thunderhead://{self.address}"

    def pause(self) -> None:
        """Stops the process: it answers nothing until `resume`."""
        self.process.send_signal(signal.SIGSTOP)
        # The signal takes a moment to arrive.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process as a crash does."""
        self.process.kill()
        self._wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.resume()
            self.process.terminate()
        self._wait()

    def _wait(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may pause or kill."""
    server = Server()
    yield server
    server.end()


@pytest.fixture(scope="session")
def url(shared_server: Server) -> str:
    return shared_server.url


@pytest.fixture
def db(url: str) -> Iterator[thunderhead.Client]:
    with thunderhead.connect(url) as db:
        yield db


@pytest.fixture
def name() -> str:
    """The name of a table that no other test uses."""
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def table(db: thunderhead.Client, name: str) -> Iterator[thunderhead.Table]:
    yield db.table(name, create=True)
    with contextlib.suppress(thunderhead.NoSuchTable, thunderhead.Closed):
        db.drop_table(name)


def run_child(code: str, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a program of Python that must print nothing on its standard error."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert ended.stderr == "", ended.stderr
    return ended
