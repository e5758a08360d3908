"""Threads that share a synchronous client."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import thunderhead

from .conftest import Server


def test_threads_share_a_client(table: thunderhead.Table) -> None:
    def work(_: int) -> None:
        for _ in range(50):
            table.increment("n", 1)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(work, range(16)))
    found = table.get("n")
    assert found is not None and found.integer() == 800


def test_other_threads_run_while_one_waits(own_server: Server) -> None:
    with thunderhead.connect(own_server.url, deadline=600) as db:
        table = db.table("t", create=True)
        own_server.pause()
        waiting = threading.Thread(target=table.get, args=("k",))
        waiting.start()
        # If the waiting thread kept the interpreter, this line would never run.
        own_server.resume()
        waiting.join()


def test_more_threads_than_connections_take_turns(own_server: Server) -> None:
    count = 80
    with thunderhead.connect(own_server.url, deadline=600) as db:
        table = db.table("t", create=True)
        started = threading.Barrier(count)

        def work(_: int) -> int:
            started.wait()
            return table.increment("n", 1).number

        with ThreadPoolExecutor(count) as threads:
            results = list(threads.map(work, range(count)))
    assert sorted(results) == list(range(1, count + 1))


def test_a_client_may_be_closed_while_threads_use_it(url: str, name: str) -> None:
    db = thunderhead.connect(url)
    table = db.table(name, create=True)
    began = threading.Barrier(9)
    unexpected: list[BaseException] = []

    def work() -> None:
        began.wait()
        try:
            while True:
                table.put("k", "v")
        except thunderhead.Closed:
            pass
        except BaseException as error:
            unexpected.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    began.wait()
    db.close()
    for thread in threads:
        thread.join()
    assert unexpected == []


def test_a_scan_serves_one_thread_at_a_time(table: thunderhead.Table) -> None:
    table.put_many((str(number), "v" * 100) for number in range(3000))
    scan = table.scan()
    found: list[bytes] = []
    refused: list[ValueError] = []

    def work() -> None:
        while True:
            try:
                found.append(next(scan).key)
            except StopIteration:
                return
            except ValueError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 3000
    assert all("another thread" in str(error) for error in refused)


def test_a_deadline_of_a_call_holds_when_the_server_is_silent(own_server: Server) -> None:
    with thunderhead.connect(own_server.url, deadline=600) as db:
        table = db.table("t", create=True)
        table.put("k", "v")
        own_server.pause()
        with pytest.raises(thunderhead.TimedOut) as caught:
            table.get("k", deadline=0.1)
        assert caught.value.code == 4
        with pytest.raises(thunderhead.OutcomeUnknown, match="check before you repeat") as unknown:
            table.put("k", "w", deadline=0.1)
        assert unknown.value.code == 8
        # A thread without a connection of its own keeps the deadline too.
        with ThreadPoolExecutor(2) as threads:
            for result in [threads.submit(table.get, "k", deadline=0.1) for _ in range(4)]:
                assert isinstance(result.exception(), thunderhead.TimedOut)
        own_server.resume()
        assert table.get("k") is not None
