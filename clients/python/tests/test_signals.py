"""Signals: Ctrl-C ends every call that waits, and other handlers run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import thunderhead

from .conftest import Server


class Alarm(Exception):
    """The exception of a handler."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Returns a function that has a handler raise `Alarm` a moment later."""

    def ring(*_: object) -> None:
        raise Alarm

    former = signal.signal(signal.SIGALRM, ring)

    def alarm() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    yield alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


def test_a_handler_ends_each_call(own_server: Server, alarm: Callable[[], None]) -> None:
    with thunderhead.connect(own_server.url, deadline=600) as db:
        table = db.table("t", create=True)
        table.put("k", "v")
        scan = table.scan()
        own_server.pause()
        for use in (
            lambda: table.get("k"),
            lambda: table.get_many(["k", "l"]),
            lambda: next(scan),
            lambda: db.tables(),
            lambda: thunderhead.connect(own_server.url, deadline=600),
        ):
            with pytest.raises(Alarm):
                alarm()
                use()
        for update in (
            lambda: table.put("k", "w"),
            lambda: table.put_many([("k", "w"), ("l", "w")]),
            lambda: table.increment("n", 1),
        ):
            context: BaseException | None = None
            while context is None:
                # On a busy machine the signal may come before the update is sent.
                with pytest.raises(Alarm) as caught:
                    alarm()
                    update()
                context = caught.value.__context__
            # The update was sent, so the caller learns that it may have been done.
            assert isinstance(context, thunderhead.OutcomeUnknown)
        own_server.resume()
        assert table.get("k") is not None


def test_a_handler_that_raises_nothing_ends_nothing(own_server: Server) -> None:
    rang: list[int] = []

    def ring(number: int, _: object) -> None:
        rang.append(number)
        own_server.resume()

    former = signal.signal(signal.SIGALRM, ring)
    try:
        with thunderhead.connect(own_server.url, deadline=600) as db:
            table = db.table("t", create=True)
            own_server.pause()
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            # The handler runs while the call waits, and makes the server answer.
            assert table.get("k") is None
    finally:
        signal.signal(signal.SIGALRM, former)
    assert rang == [signal.SIGALRM]


def test_closing_ends_too_when_the_server_is_silent(
    own_server: Server, alarm: Callable[[], None]
) -> None:
    db = thunderhead.connect(own_server.url, deadline=600)
    db.table("t", create=True).put("k", "v")
    own_server.pause()
    alarm()
    with pytest.raises(Alarm):
        db.close()
    db.close()


CHILD = """
import signal, sys, thunderhead
# A shell lets programs in the background ignore SIGINT, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
url, kind = sys.argv[1:]
print("ready", flush=True)
try:
    if kind == "sync":
        thunderhead.connect(url, deadline=600)
    else:
        import asyncio
        async def main():
            await thunderhead.aio.connect(url, deadline=600)
        asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_ctrl_c_ends_a_program_that_waits(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"thunderhead://127.0.0.1:{silent.getsockname()[1]}"
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, kind],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        # The client has begun to connect.
        silent.accept()[0].close()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    assert (out, err, child.returncode) == ("interrupted\n", "", 0)
