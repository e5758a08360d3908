"""A queue of work, whose workers take each task once, with conditional writes.

Each task is an object: its value is its state, and a worker takes it by changing that state. The
write has the version that the worker has read as its condition, so of two workers only one takes
the task.
"""

import asyncio
import sys

import thunderhead
from thunderhead import aio

TASKS = 200
WORKERS = 8


async def take(tasks: aio.Table, key: bytes, version: int, worker: int) -> int | None:
    """Takes a task. Returns its new version, or None if another worker was faster."""
    state = f"taken by {worker}"
    try:
        return await tasks.put(key, state, if_version=version)
    except thunderhead.ConditionFailed:
        return None
    except thunderhead.OutcomeUnknown:
        # The write may have been done. The state names this worker if it was.
        found = await tasks.get(key)
        return found.version if found is not None and found.text() == state else None


async def work(tasks: aio.Table, results: aio.Table, worker: int) -> int:
    """Takes tasks until all are done. Returns the number of tasks that this worker did."""
    count = 0
    async for key, state, version in tasks.scan():
        if state != b"open":
            continue
        taken = await take(tasks, key, version, worker)
        if taken is None:
            continue
        number = int(key)
        await results.put(key, str(number * number))
        await tasks.put(key, "done", if_version=taken)
        await results.increment("times worked", 1)
        count += 1
    return count


async def main(url: str) -> None:
    async with aio.connect(url) as db:
        tasks = await db.table("tasks", create=True)
        results = await db.table("results", create=True)
        await tasks.put_many((str(number), "open") for number in range(TASKS))
        counts = await asyncio.gather(*(work(tasks, results, worker) for worker in range(WORKERS)))
        print("tasks of each worker:", counts)
        assert sum(counts) == TASKS, "a task was done twice or not at all"
        print("all", TASKS, "tasks are done, each once")
        await db.drop_table("tasks")
        await db.drop_table("results")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "thunderhead://localhost"))
