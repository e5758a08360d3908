"""The cost of calls in Python over the same calls in Rust, on the same client and server.

    maturin develop --release --features bench
    THUNDERHEAD=… python bench.py

Two times are measured: real time, and the processor's time of the calling thread. Other programs
of the machine make real time longer, but hardly the processor's time. Clients and servers sleep
while they wait, because a thread that spins takes the processor's time too. Each figure is the best
of several rounds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import thunderhead
from thunderhead import aio

sys.path.insert(0, str(Path(__file__).parent))
from tests.conftest import Server

ROUNDS = 15
COUNT = 4000
VALUE = b"v" * 100
KEYS = [f"key {number}" for number in range(100)]


Times = tuple[float, float]
"""Real time and the processor's time of an operation, in microseconds."""


def now() -> Times:
    return time.perf_counter() * 1e6, time.thread_time() * 1e6


def since(began: Times, operations: int) -> Times:
    real, processor = now()
    return (real - began[0]) / operations, (processor - began[1]) / operations


def least(rounds: list[Times]) -> Times:
    return min(real for real, _ in rounds), min(processor for _, processor in rounds)


def best(work: Callable[[], object], operations: int) -> Times:
    rounds = []
    for _ in range(ROUNDS):
        began = now()
        work()
        rounds.append(since(began, operations))
    return least(rounds)


def synchronous(url: str) -> None:
    with thunderhead.connect(url) as db:
        table = db.table("bench", create=True)
        table.put_many((key, VALUE) for key in KEYS)

        def gets() -> None:
            get = table.get
            for _ in range(COUNT):
                get("key 1")

        def puts() -> None:
            put = table.put
            for _ in range(COUNT):
                put("key 1", VALUE)

        def many() -> None:
            for _ in range(COUNT // 100):
                table.get_many(KEYS)

        for name, python, operations in (
            ("get", gets, COUNT),
            ("put", puts, COUNT),
            ("get_many of 100", many, COUNT),
        ):
            in_rust = getattr(table, "_in_rust", None)
            core = in_rust and best(partial(in_rust, name, "key 1", KEYS, VALUE, COUNT), COUNT)
            compare(name, best(python, operations), core)


def compare(title: str, ours: Times, core: Times | None) -> None:
    """Prints the times of an operation in Python, and in Rust if they were measured."""
    for name, mine, yardstick in zip(("real", "processor"), ours, core or (0, 0), strict=True):
        print(f"{title:28} {name:10} {mine:7.2f} µs", end="")
        print(f", in Rust {yardstick:7.2f}: {mine - yardstick:6.2f} more" if core else "")


async def asynchronous(url: str, loop: str) -> None:
    async with aio.connect(url) as db:
        table = await db.table("bench", create=True)

        async def alone() -> None:
            for _ in range(COUNT // 4):
                await table.get("key 1")

        async def together() -> None:
            async def one() -> None:
                for _ in range(COUNT // 100):
                    await table.get("key 1")

            await asyncio.gather(*(one() for _ in range(100)))

        in_rust = getattr(db._queue, "_in_rust", None)
        for name, work, operations, width in (
            ("alone", alone, COUNT // 4, 1),
            ("100 in flight", together, COUNT, 100),
        ):
            rounds = []
            for _ in range(ROUNDS):
                began = now()
                await work()
                rounds.append(since(began, operations))
            core = in_rust and best(partial(in_rust, table.id, "key 1", width, COUNT), COUNT)
            compare(f"{loop}: get, {name}", least(rounds), core)


def main() -> None:
    server = Server("--ephemeral", "--polling", "never")
    url = f"{server.url}/?polling=never"
    try:
        synchronous(url)
        asyncio.run(asynchronous(url, "asyncio"))
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asynchronous(url, "uvloop"))
    finally:
        server.end()


if __name__ == "__main__":
    main()
