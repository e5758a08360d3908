"""Measures the Python client, and redis-py: docs/testing/costs.md describes its input and output.

It reads requests from its standard input, one line of JSON each, does rounds of operations, and
writes the time of an operation in each round. All of it runs on one event loop; synchronous calls
just do not yield to it. With `--uvloop`, it is a loop of uvloop.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import thunderhead
from thunderhead import aio

Request = dict[str, Any]
Reply = dict[str, Any]

KEYS = [f"key{number}" for number in range(100)]

INSTALL = "redis-py is not installed; install it with: pip install 'redis[hiredis]'"


class Missing(Exception):
    """The program cannot measure this; the text is the reason."""


class Cost:
    """A client. A subclass has a function or a coroutine for each work."""

    @classmethod
    async def start(cls, request: Request) -> Cost:
        """Connects, and writes an object under each key."""
        raise NotImplementedError

    async def round(self, work: str, count: int, width: int) -> None:
        """Does a round of operations."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Waiting(Cost):
    """A synchronous client. A subclass gives the functions of its works."""

    def __init__(
        self,
        get: Callable[[str], object],
        put: Callable[[str, bytes], object],
        get_many: Callable[[], object],
        put_many: Callable[[], object],
        value: bytes,
    ) -> None:
        self._get = get
        self._put = put
        self._get_many = get_many
        self._put_many = put_many
        self._value = value

    async def round(self, work: str, count: int, width: int) -> None:
        match work:
            case "get":
                get, key = self._get, KEYS[0]
                for _ in range(count):
                    get(key)
            case "put":
                put, key, value = self._put, KEYS[0], self._value
                for _ in range(count):
                    put(key, value)
            case "get_many":
                for _ in range(count // width):
                    self._get_many()
            case "put_many":
                for _ in range(count // width):
                    self._put_many()
            case _:
                raise Missing(f"calls that wait have no {work}")


class Synchronous(Waiting):
    """The synchronous client of Thunderhead."""

    def __init__(self, db: thunderhead.Client, table: str, value: bytes) -> None:
        self._db = db
        at = db.table(table)
        objects = [(key, value) for key in KEYS]
        get_many, put_many = partial(at.get_many, KEYS), partial(at.put_many, objects)
        super().__init__(at.get, at.put, get_many, put_many, value)

    @classmethod
    async def start(cls, request: Request) -> Cost:
        db = thunderhead.connect(request["url"])
        cost = cls(db, request["table"], b"v" * request["value_bytes"])
        cost._put_many()
        return cost

    async def close(self) -> None:
        self._db.close()


class Asynchronous(Cost):
    """The asyncio client of Thunderhead."""

    def __init__(self, db: aio.Client, table: aio.Table, value: bytes) -> None:
        self._db = db
        self._table = table
        self._value = value
        self._objects = [(key, value) for key in KEYS]

    @classmethod
    async def start(cls, request: Request) -> Cost:
        db = await aio.connect(request["url"])
        table = await db.table(request["table"])
        cost = cls(db, table, b"v" * request["value_bytes"])
        await cost._put_many(1)
        return cost

    async def round(self, work: str, count: int, width: int) -> None:
        match work:
            case "get" | "get_in_flight":
                await together(self._gets, count, width)
            case "put" | "put_in_flight":
                await together(self._puts, count, width)
            case "get_many":
                for _ in range(count // width):
                    await self._table.get_many(KEYS)
            case "put_many":
                await self._put_many(count // width)

    async def close(self) -> None:
        await self._db.close()

    async def _gets(self, key: str, count: int) -> None:
        get = self._table.get
        for _ in range(count):
            await get(key)

    async def _puts(self, key: str, count: int) -> None:
        put, value = self._table.put, self._value
        for _ in range(count):
            await put(key, value)

    async def _put_many(self, calls: int) -> None:
        for _ in range(calls):
            await self._table.put_many(self._objects)


async def together(worker: Callable[[str, int], Awaitable[None]], count: int, width: int) -> None:
    """Lets as many workers as `width` do the operations, each its share one after the other."""
    if width == 1:
        await worker(KEYS[0], count)
    else:
        await asyncio.gather(*(worker(key, count // width) for key in KEYS[:width]))


def imported(name: str) -> Any:
    """Imports a module of redis-py, which must have its fast parser."""
    try:
        importlib.import_module("hiredis")
        return importlib.import_module(name)
    except ImportError:
        raise Missing(INSTALL) from None


class RedisSynchronous(Waiting):
    """The synchronous client of redis-py."""

    def __init__(self, db: Any, value: bytes) -> None:
        self._db = db
        objects = dict.fromkeys(KEYS, value)
        get_many, put_many = partial(db.mget, KEYS), partial(db.mset, objects)
        super().__init__(db.get, db.set, get_many, put_many, value)

    @classmethod
    async def start(cls, request: Request) -> Cost:
        redis = imported("redis")
        cost = cls(redis.Redis.from_url(request["url"]), b"v" * request["value_bytes"])
        cost._put_many()
        return cost

    async def close(self) -> None:
        self._db.close()


class RedisAsynchronous(Cost):
    """The asyncio client of redis-py. Its way to many operations in flight is a pipeline."""

    def __init__(self, db: Any, value: bytes) -> None:
        self._db = db
        self._value = value
        self._objects = dict.fromkeys(KEYS, value)

    @classmethod
    async def start(cls, request: Request) -> Cost:
        redis = imported("redis.asyncio")
        cost = cls(redis.Redis.from_url(request["url"]), b"v" * request["value_bytes"])
        await cost._db.mset(cost._objects)
        return cost

    async def round(self, work: str, count: int, width: int) -> None:
        match work:
            case "get":
                get, key = self._db.get, KEYS[0]
                for _ in range(count):
                    await get(key)
            case "put":
                set_, key, value = self._db.set, KEYS[0], self._value
                for _ in range(count):
                    await set_(key, value)
            case "get_many":
                for _ in range(count // width):
                    await self._db.mget(KEYS)
            case "put_many":
                for _ in range(count // width):
                    await self._db.mset(self._objects)
            case "get_in_flight" | "put_in_flight":
                for _ in range(count // width):
                    pipeline = self._db.pipeline(transaction=False)
                    for key in KEYS[:width]:
                        if work == "get_in_flight":
                            pipeline.get(key)
                        else:
                            pipeline.set(key, self._value)
                    await pipeline.execute()

    async def close(self) -> None:
        await self._db.aclose()


CLIENTS: dict[tuple[str, str], type[Cost]] = {
    ("thunderhead", "sync"): Synchronous,
    ("thunderhead", "async"): Asynchronous,
    ("redis", "sync"): RedisSynchronous,
    ("redis", "async"): RedisAsynchronous,
}

_started: dict[tuple[str, str], Cost] = {}


async def reply_to(request: Request) -> Reply:
    which = request["store"], request["mode"]
    try:
        if which not in _started:
            _started[which] = await CLIENTS[which].start(request)
        cost, count = _started[which], request["count"]
        rounds = []
        for _ in range(request["rounds"]):
            began = time.perf_counter_ns()
            await cost.round(request["work"], count, request["width"])
            rounds.append((time.perf_counter_ns() - began) / count)
    except Missing as missing:
        return {"missing": str(missing)}
    return {"ns": rounds}


def write(reply: Reply) -> None:
    print(json.dumps(reply), flush=True)


def main() -> None:
    has_uvloop = sys.argv[1:] == ["--uvloop"]
    loop = importlib.import_module("uvloop").new_event_loop if has_uvloop else None
    with asyncio.Runner(loop_factory=loop) as runner:
        write({"ready": True, "language": "python", "modes": ["sync", "async"]})
        for line in sys.stdin:
            request = json.loads(line)
            write({"id": request["id"], **runner.run(reply_to(request))})
        for cost in _started.values():
            runner.run(cost.close())


if __name__ == "__main__":
    main()
