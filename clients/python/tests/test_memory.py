"""Memory: it stays flat over many operations, with errors and cancellations among them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable

import thunderhead
from thunderhead import aio

MIB = 1 << 20


def resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grows(work: Callable[[], None]) -> int:
    """Returns by how many bytes `work` grows the process, after it has warmed up."""
    for _ in range(3):
        work()
    before = resident()
    for _ in range(10):
        work()
    return resident() - before


def test_the_synchronous_client_leaks_nothing(table: thunderhead.Table) -> None:
    value = b"v" * 10_000

    def work() -> None:
        for number in range(300):
            key = str(number % 20)
            table.put(key, value)
            table.get(key)
            with contextlib.suppress(thunderhead.ConditionFailed):
                table.put(key, value, if_absent=True)
            with contextlib.suppress(thunderhead.InvalidArgument):
                table.put("", value)
            with contextlib.suppress(thunderhead.BatchError):
                table.put_many([("a", value), ("", value)])
            table.get_many([key] * 10)
            next(table.scan())

    # A leak of one value in each round would be 30 MB.
    assert grows(work) < 8 * MIB


async def test_the_client_of_asyncio_leaks_nothing(url: str, name: str) -> None:
    value = b"v" * 10_000
    async with aio.connect(url) as db:
        table = await db.table(name, create=True)

        async def work() -> None:
            for number in range(150):
                key = str(number % 20)
                tasks = [
                    asyncio.ensure_future(table.put(key, value)),
                    asyncio.ensure_future(table.get(key)),
                    asyncio.ensure_future(table.put(key, value, if_absent=True)),
                    asyncio.ensure_future(table.get("")),
                    asyncio.ensure_future(table.put_many([(key, value), ("", value)])),
                ]
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                tasks[number % len(tasks)].cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        for _ in range(3):
            await work()
        before = resident()
        for _ in range(10):
            await work()
        assert resident() - before < 8 * MIB
        await db.drop_table(name)


def test_clients_leave_no_descriptor_and_no_thread(url: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    async def use() -> None:
        async with aio.connect(url) as db:
            await db.tables()

    def work() -> None:
        with thunderhead.connect(url) as db:
            db.tables()
        asyncio.run(use())

    before = descriptors(), threads()
    for _ in range(10):
        work()
    # The thread of a closed client ends by itself, a moment later.
    while descriptors() > before[0] or threads() > before[1]:
        gc.collect()
