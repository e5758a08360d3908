"""The client for asyncio.

    async with thunderhead.aio.connect("thunderhead://localhost") as db:
        users = await db.table("users", create=True)
        await users.put("ada", "analyst")
        print(await users.get("ada"))

A client belongs to the event loop that runs when it connects. Any number of tasks may share it.
Operations that tasks begin in the same iteration of the loop are sent together.

Cancelling a task cancels its operation. An update that was sent may be done all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import AsyncIterator, Generator, Iterable
from types import TracebackType
from typing import TypeVar

from ._core import Future, Pages, Queue, Target
from ._errors import NoSuchTable, TableExists
from ._types import Bytes, Deadline, Items, Policy, TimeToLive
from ._values import Entry, Sum, TableInfo, Value

__all__ = ["Client", "Table", "connect"]

_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)


def connect(url: str, *, deadline: Deadline | None = None) -> _Connecting:
    """Connects to the cluster that a URL names.

    Use it with `async with`, which closes the client, or with `await`. `deadline` is the time limit
    of each operation, by default that of the URL, or 10 seconds.
    """
    return _Connecting(Target(url, deadline))


class _Connecting:
    """A connection to be made, by `await` or by `async with`."""

    __slots__ = ("_client", "_target")

    def __init__(self, target: Target) -> None:
        self._target = target
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        loop = asyncio.get_running_loop()
        if self._target.is_named:
            await _resolve(loop, self._target)
        queue = Queue(self._target, loop)
        client = Client._of(queue, loop)
        try:
            queue._watch()
            await _end(queue, queue.connected())
        except BaseException:
            client._abandon()
            raise
        return client


async def _resolve(loop: asyncio.AbstractEventLoop, target: Target) -> None:
    """Searches for the hosts on a thread of its own: nothing can interrupt the search.

    The loop's executor would make the end of the program wait for it.
    """
    done: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)

    def run() -> None:
        error: BaseException | None = None
        try:
            target.resolve()
        except BaseException as raised:
            error = raised
        # The loop may be closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(end, error)

    threading.Thread(target=run, name="thunderhead-resolve", daemon=True).start()
    await done


async def _end(queue: Queue, future: Future[_T]) -> _T:
    """Waits for an operation. If its task is cancelled, cancels the operation."""
    try:
        return await future
    except BaseException:
        queue.cancel(future)
        raise


class Client:
    """A client of a cluster, for the tasks of one event loop."""

    __slots__ = ("__weakref__", "_closing", "_is_open", "_loop", "_queue")

    _queue: Queue
    _loop: asyncio.AbstractEventLoop
    _closing: asyncio.Future[None] | None
    _is_open: bool

    def __init__(self) -> None:
        raise TypeError("call thunderhead.aio.connect() to make a client")

    @classmethod
    def _of(cls, queue: Queue, loop: asyncio.AbstractEventLoop) -> Client:
        client = cls.__new__(cls)
        client._queue = queue
        client._loop = loop
        client._closing = None
        client._is_open = True
        return client

    async def table(
        self,
        name: str,
        create: bool = False,
        span: int = 1,
        *,
        deadline: Deadline | None = None,
    ) -> Table:
        """Returns a table by its name. Raises `NoSuchTable` if there is none.

        With `create`, a missing table is created, spread over `span` shards.
        """
        queue = self._queue
        try:
            info = await _end(queue, queue.table(name, deadline))
        except NoSuchTable:
            if not create:
                raise
            try:
                return await self.create_table(name, span, deadline=deadline)
            except TableExists:  # Another client was faster.
                info = await _end(queue, queue.table(name, deadline))
        return Table._of(self, info)

    async def create_table(
        self,
        name: str,
        span: int = 1,
        *,
        ttl: TimeToLive | None = None,
        policy: Policy | None = None,
        max_bytes: int | None = None,
        reserved_bytes: int | None = None,
        deadline: Deadline | None = None,
    ) -> Table:
        """Creates a table, spread over `span` shards. Raises `TableExists` if there is one.

        `ttl` is how long an object lives if its write does not say it. A table with the policy
        "cache" evicts objects when memory is full.

        `max_bytes` limits the bytes of its objects, with their keys and headers: a cache evicts its
        own objects, and other tables refuse writes. `reserved_bytes` of a cache are never evicted
        for other tables.
        """
        queue = self._queue
        future = queue.create_table(
            name, span, ttl, policy, max_bytes, reserved_bytes, deadline
        )
        return Table._of(self, await _end(queue, future))

    async def drop_table(self, name: str, *, deadline: Deadline | None = None) -> None:
        """Deletes a table with all its objects. Raises `NoSuchTable` if there is none."""
        await _end(self._queue, self._queue.drop_table(name, deadline))

    async def tables(self, *, deadline: Deadline | None = None) -> list[TableInfo]:
        """Returns all tables, with the location of each tablet."""
        return await _end(self._queue, self._queue.tables(deadline))

    async def split(self, name: str, at: int, *, deadline: Deadline | None = None) -> TableInfo:
        """Splits the tablet that holds the hash `at`, which becomes the first of the second one."""
        return await _end(self._queue, self._queue.split(name, at, deadline))

    async def migrate(
        self, name: str, first: int, to: int, *, deadline: Deadline | None = None
    ) -> TableInfo:
        """Moves the tablet that begins with the hash `first` to the master `to`.

        Returns when the move is complete. A large tablet needs a longer deadline than the default.
        """
        return await _end(self._queue, self._queue.migrate(name, first, to, deadline))

    async def close(self) -> None:
        """Waits for the operations in progress, ends the lease, and closes the client.

        Later operations raise `Closed`. It may be called several times.
        """
        if self._closing is None:
            if not self._is_open:
                return
            self._is_open = False
            self._closing = self._queue.close()
        # A caller that is cancelled does not keep others from waiting.
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _abandon(self) -> None:
        """Leaves the loop without waiting."""
        self._is_open = False
        self._queue.abandon()

    def __del__(self) -> None:
        if not getattr(self, "_is_open", False):
            return
        warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
        # The last reference may be dropped on another thread. A closed loop watches nothing.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.abandon)

    def __repr__(self) -> str:
        return "<thunderhead.aio.Client>"


class Table:
    """A table of objects."""

    __slots__ = ("_client", "_id", "_name", "_queue")

    _client: Client
    _queue: Queue
    _id: int
    _name: str

    def __init__(self) -> None:
        raise TypeError("call table() of a client to make a table")

    @classmethod
    def _of(cls, client: Client, info: TableInfo) -> Table:
        table = cls.__new__(cls)
        table._client = client
        table._queue = client._queue
        table._id = info.id
        table._name = info.name
        return table

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def id(self) -> int:
        """Its id. A new table of the same name has another id."""
        return self._id

    async def get(self, key: Bytes, *, deadline: Deadline | None = None) -> Value | None:
        """Reads an object. Returns `None` if it does not exist."""
        # The hot operations do without `_end`, which would be one more coroutine.
        queue = self._queue
        future = queue.get(self._id, key, deadline)
        try:
            return await future
        except BaseException:
            queue.cancel(future)
            raise

    async def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        if_version: int | None = None,
        if_absent: bool = False,
        if_present: bool = False,
        ttl: TimeToLive | None = None,
        deadline: Deadline | None = None,
    ) -> int:
        """Writes an object and returns its new version.

        With a condition, the object is written only if it has the version `if_version`, if it does
        not exist, or if it exists. Otherwise `ConditionFailed` is raised. `ttl` is how long it
        lives, by default as long as the table says.
        """
        queue = self._queue
        future = queue.put(self._id, key, value, if_version, if_absent, if_present, ttl, deadline)
        try:
            return await future
        except BaseException:
            queue.cancel(future)
            raise

    async def put_number(
        self,
        key: Bytes,
        number: float,
        *,
        if_version: int | None = None,
        if_absent: bool = False,
        if_present: bool = False,
        ttl: TimeToLive | None = None,
        deadline: Deadline | None = None,
    ) -> int:
        """Writes a number, which `increment` can add to. Returns its new version.

        An `int` makes a whole number, a `float` a floating-point number.
        """
        queue = self._queue
        future = queue.put_number(
            self._id, key, number, if_version, if_absent, if_present, ttl, deadline
        )
        return await _end(queue, future)

    async def delete(
        self,
        key: Bytes,
        *,
        if_version: int | None = None,
        if_present: bool = False,
        deadline: Deadline | None = None,
    ) -> int | None:
        """Deletes an object. Returns the version that it had, or `None` if it did not exist."""
        queue = self._queue
        return await _end(queue, queue.delete(self._id, key, if_version, if_present, deadline))

    async def expire(
        self,
        key: Bytes,
        ttl: TimeToLive,
        *,
        if_version: int | None = None,
        if_present: bool = False,
        deadline: Deadline | None = None,
    ) -> int | None:
        """Changes when an object expires: it lives for `ttl` from now on, or for `math.inf`.

        Returns its new version, or `None` if it does not exist.
        """
        queue = self._queue
        future = queue.expire(self._id, key, ttl, if_version, if_present, deadline)
        return await _end(queue, future)

    async def ttl(self, key: Bytes, *, deadline: Deadline | None = None) -> float | None:
        """Returns how long an object still lives, in seconds: `math.inf` if it does not expire.

        Returns `None` if it does not exist.
        """
        queue = self._queue
        return await _end(queue, queue.ttl(self._id, key, deadline))

    async def increment(
        self, key: Bytes, by: _Number, *, deadline: Deadline | None = None
    ) -> Sum[_Number]:
        """Adds to a number and returns the sum. An object that does not exist counts as 0."""
        queue = self._queue
        return await _end(queue, queue.increment(self._id, key, by, deadline))

    async def get_many(
        self, keys: Iterable[Bytes], *, deadline: Deadline | None = None
    ) -> list[Value | None]:
        """Reads many objects at once. Returns the results in the order of the keys."""
        queue = self._queue
        return await _end(queue, queue.get_many(self._id, keys, deadline))

    async def put_many(
        self, items: Items, *, ttl: TimeToLive | None = None, deadline: Deadline | None = None
    ) -> list[int]:
        """Writes many objects at once, each by itself and in no particular order.

        Returns their new versions. Raises `BatchError` if only some writes failed.
        """
        queue = self._queue
        return await _end(queue, queue.put_many(self._id, items, ttl, deadline))

    async def delete_many(
        self, keys: Iterable[Bytes], *, deadline: Deadline | None = None
    ) -> list[int | None]:
        """Deletes many objects at once, each by itself.

        Returns the versions that they had, `None` for an object that did not exist.
        """
        queue = self._queue
        return await _end(queue, queue.delete_many(self._id, keys, deadline))

    async def scan(self, *, deadline: Deadline | None = None) -> AsyncIterator[Entry]:
        """Iterates over all objects, in no particular order. `deadline` holds for each page.

        An object that exists during the whole scan is returned exactly once. An object that is
        created or deleted meanwhile may be returned or not.
        """
        queue = self._queue
        pages = Pages(self._id)
        while (page := queue.page(pages, deadline)) is not None:
            for entry in await _end(queue, page):
                yield entry

    def __repr__(self) -> str:
        return f"<thunderhead.aio.Table {self._name!r}>"
