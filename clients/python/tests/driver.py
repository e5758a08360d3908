"""The driver of the Python client: docs/testing/drivers.md says what it reads and writes.

It reads requests from its standard input, one line of JSON each, and writes a reply for each.
"""

from __future__ import annotations

import asyncio
import base64
import json
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import thunderhead
from thunderhead import aio

Request = dict[str, Any]
Reply = dict[str, Any]


def decoded(text: str) -> bytes:
    return base64.b64decode(text)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def conditions(request: Request) -> dict[str, Any]:
    match request.get("if"):
        case "absent":
            return {"if_absent": True}
        case "present":
            return {"if_present": True}
        case {"version": version}:
            return {"if_version": int(version)}
    return {}


def found(value: thunderhead.Value | None) -> Reply:
    if value is None:
        return {"absent": True}
    return {"version": str(value.version), "value": encoded(value.value)}


def versioned(version: int | None) -> Reply:
    return {"absent": True} if version is None else {"version": str(version)}


def counted(sum_: thunderhead.Sum[int]) -> Reply:
    return {"version": str(sum_.version), "sum": str(sum_.number)}


def failed(error: thunderhead.Error) -> Reply:
    outcome = "not_done" if isinstance(error, thunderhead.NotDone) else "unknown"
    version = str(getattr(error, "version", 0))
    return {"code": error.code, "outcome": outcome, "version": version, "text": str(error)}


def each(results: list[Any], convert: Callable[[Any], Reply]) -> Reply:
    def outcome(result: Any) -> Reply:
        if isinstance(result, thunderhead.Error):
            return {"error": failed(result)}
        return convert(result)

    return {"results": [outcome(result) for result in results]}


def listed(entries: list[thunderhead.Entry]) -> Reply:
    objects = [
        {"key": encoded(key), "value": encoded(value), "version": str(version)}
        for key, value, version in entries
    ]
    return {"objects": objects}


def call(table: Any, request: Request) -> tuple[Any, Callable[[Any], Reply]]:
    """Begins an operation. Returns its result or coroutine, and the way to convert the result."""
    match request["op"]:
        case "get":
            return table.get(decoded(request["key"])), found
        case "put":
            key, value = decoded(request["key"]), decoded(request["value"])
            return table.put(key, value, **conditions(request)), versioned
        case "put_number":
            key, number = decoded(request["key"]), int(request["number"])
            return table.put_number(key, number, **conditions(request)), versioned
        case "delete":
            return table.delete(decoded(request["key"]), **conditions(request)), versioned
        case "increment":
            return table.increment(decoded(request["key"]), int(request["by"])), counted
        case "get_many":
            keys = [decoded(key) for key in request["keys"]]
            return table.get_many(keys), lambda results: each(results, found)
        case "put_many":
            items = [(decoded(key), decoded(value)) for key, value in request["objects"]]
            return table.put_many(items), lambda results: each(results, versioned)
    raise ValueError(f"the operation {request['op']} is unknown")


async def cancelled(operation: Any) -> Any:
    """Cancels an operation that has begun. Returns its result if it has ended before."""
    task = asyncio.ensure_future(operation)
    await asyncio.sleep(0)
    task.cancel()
    return await task


def of_batch(request: Request, error: thunderhead.Error) -> Reply:
    """The reply for an error. Operations of a batch have an outcome each."""
    if request["op"] not in ("get_many", "put_many"):
        return {"id": request["id"], "error": failed(error)}
    if isinstance(error, thunderhead.BatchError):
        results = error.results
    else:
        results = [error] * len(request.get("keys") or request["objects"])
    convert = found if request["op"] == "get_many" else versioned
    return {"id": request["id"], "ok": each(results, convert)}


_lock = threading.Lock()


def write(reply: Reply) -> None:
    with _lock:
        print(json.dumps(reply, separators=(",", ":")), flush=True)


class Synchronous:
    """A client and its thread."""

    def __init__(self) -> None:
        self._requests: queue.Queue[Request | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._db: thunderhead.Client | None = None
        self._tables: dict[str, thunderhead.Table] = {}

    def push(self, request: Request | None) -> None:
        self._requests.put(request)

    def join(self) -> None:
        self.push(None)
        self._thread.join()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                write({"id": request["id"], "ok": self._reply(request)})
            except thunderhead.Error as error:
                write(of_batch(request, error))
        if self._db is not None:
            self._db.close()

    def _reply(self, request: Request) -> Reply:
        if request["op"] == "open":
            self._db = thunderhead.connect(request["url"])
            return {}
        assert self._db is not None, "the client is not open"
        if request["op"] == "close":
            self._db.close()
            return {}
        name = request["table"]
        table = self._tables.get(name) or self._tables.setdefault(name, self._db.table(name))
        if request["op"] == "scan":
            return listed(list(table.scan()))
        result, convert = call(table, request)
        return convert(result)


class Asynchronous:
    """A client and its task, on the event loop that all of them share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._requests: asyncio.Queue[Request | None] = asyncio.Queue()
        self._task = asyncio.run_coroutine_threadsafe(self._run(), loop)
        self._db: aio.Client | None = None
        self._tables: dict[str, aio.Table] = {}

    def push(self, request: Request | None) -> None:
        self._loop.call_soon_threadsafe(self._requests.put_nowait, request)

    def join(self) -> None:
        self.push(None)
        self._task.result()

    async def _run(self) -> None:
        while (request := await self._requests.get()) is not None:
            try:
                write({"id": request["id"], "ok": await self._reply(request)})
            except thunderhead.Error as error:
                write(of_batch(request, error))
            except asyncio.CancelledError:
                # It does not say whether the operation was done.
                text = "the task was cancelled"
                failure = {"code": 0, "outcome": "unknown", "version": "0", "text": text}
                write({"id": request["id"], "error": failure})
        if self._db is not None:
            await self._db.close()

    async def _reply(self, request: Request) -> Reply:
        if request["op"] == "open":
            self._db = await aio.connect(request["url"])
            return {}
        assert self._db is not None, "the client is not open"
        if request["op"] == "close":
            await self._db.close()
            return {}
        name = request["table"]
        if name not in self._tables:
            self._tables[name] = await self._db.table(name)
        table = self._tables[name]
        if request["op"] == "scan":
            return listed([entry async for entry in table.scan()])
        result, convert = call(table, request)
        if request.get("cancel"):
            return convert(await cancelled(result))
        return convert(await result)


def main() -> None:
    loop = asyncio.new_event_loop()
    loop_thread = threading.Thread(target=loop.run_forever)
    loop_thread.start()
    clients: dict[int, Synchronous | Asynchronous] = {}
    write({"ready": True, "language": "python", "modes": ["sync", "async"], "cancels": ["async"]})
    for line in sys.stdin:
        request: Request = json.loads(line)
        number = request["client"]
        if request["op"] == "open":
            # It may have been open before, in the other mode.
            if number in clients:
                clients[number].join()
            is_sync = request["mode"] == "sync"
            clients[number] = Synchronous() if is_sync else Asynchronous(loop)
        clients[number].push(request)
    for client in clients.values():
        client.join()
    loop.call_soon_threadsafe(loop.stop)
    loop_thread.join()
    loop.close()


if __name__ == "__main__":
    main()
