"""Uses of every type. `mypy --strict` checks this file; it is not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import assert_type

import thunderhead
from thunderhead import Entry, Sum, TableInfo, Value, aio


def synchronous() -> None:
    with thunderhead.connect("thunderhead://localhost", deadline=timedelta(seconds=2)) as db:
        assert_type(db, thunderhead.Client)
        table = db.table("users", create=True, span=2)
        assert_type(table, thunderhead.Table)
        found = table.get("ada", deadline=1)
        assert_type(found, Value | None)
        if found is not None:
            assert_type(found.value, bytes)
            assert_type(found.version, int)
            assert_type(found.text(), str)
        assert_type(table.put(b"ada", bytearray(b"x"), if_version=3), int)
        assert_type(table.put("ada", memoryview(b"x"), if_absent=True), int)
        assert_type(table.delete("ada"), int | None)
        assert_type(table.increment("n", 1), Sum[int])
        assert_type(table.increment("n", 1.5).number, float)
        assert_type(table.get_many(["a", b"b"]), list[Value | None])
        assert_type(table.put_many([("a", b"1")]), list[int])
        assert_type(table.put_many({"a": "1"}), list[int])
        assert_type(table.put_many({b"a": b"1"}), list[int])
        assert_type(table.delete_many(["a"]), list[int | None])
        for entry in table.scan():
            assert_type(entry, Entry)
        for key, value, version in table.scan():
            assert_type((key, value, version), tuple[bytes, bytes, int])
        assert_type(db.tables(), list[TableInfo])
        assert_type(db.split("users", 1), TableInfo)
        try:
            table.put("a", "b")
        except thunderhead.ConditionFailed as error:
            assert_type(error.version, int)
        except thunderhead.Error as error:
            assert_type(error.code, int)
        table.get(1)  # type: ignore[arg-type]
        table.put("a", None)  # type: ignore[arg-type]
        table.put("a", "b", 1)  # type: ignore[call-arg]


async def asynchronous() -> None:
    db = await aio.connect("thunderhead://localhost")
    assert_type(db, aio.Client)
    async with aio.connect("thunderhead://localhost") as other:
        assert_type(other, aio.Client)
    table = await db.table("users", create=True)
    assert_type(await table.get("ada"), Value | None)
    assert_type(await table.increment("n", 1), Sum[int])
    assert_type((await table.increment("n", 1.5)).number, float)
    assert_type(await table.put_many({"a": "1"}), list[int])
    first, second = await asyncio.gather(table.get("a"), table.put("a", "b"))
    assert_type((first, second), tuple[Value | None, int])
    task = asyncio.create_task(table.get("a"))
    assert_type(await task, Value | None)
    assert_type(table.scan(), AsyncIterator[Entry])
    async for key, value, version in table.scan():
        assert_type((key, value, version), tuple[bytes, bytes, int])
    await db.close()
