"""The types of the native module."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import Context
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, final

from ._types import Bytes, Deadline, Items, Policy, TimeToLive
from ._values import Entry, Sum, TableInfo, Value

__all__ = [
    "Client",
    "Future",
    "Pages",
    "Queue",
    "Scan",
    "Table",
    "Target",
    "_panic_for_test",
    "connect",
]

_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)

def connect(url: str, *, deadline: Deadline | None = None) -> Client:
    """Connects to the cluster that a URL names, such as `thunderhead://localhost`.

    `deadline` is the time limit of each operation, by default that of the URL, or 10 seconds.
    """

@final
class Client:
    """A client of a cluster. Any number of threads may share it.

    It closes itself at the end of a `with` block.
    """

    def table(
        self,
        name: str,
        create: bool = False,
        span: int | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> Table:
        """Returns a table by its name. Raises `NoSuchTable` if there is none.

        With `create`, a missing table is created, spread over `span` shards (1 by default).
        """

    def create_table(
        self,
        name: str,
        span: int | None = None,
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

    def drop_table(self, name: str, *, deadline: Deadline | None = None) -> None:
        """Deletes a table with all its objects. Raises `NoSuchTable` if there is none."""

    def tables(self, *, deadline: Deadline | None = None) -> list[TableInfo]:
        """Returns all tables, with the location of each tablet."""

    def split(self, name: str, at: int, *, deadline: Deadline | None = None) -> TableInfo:
        """Splits the tablet that holds the hash `at`, which becomes the first of the second one."""

    def migrate(
        self, name: str, first: int, to: int, *, deadline: Deadline | None = None
    ) -> TableInfo:
        """Moves the tablet that begins with the hash `first` to the master `to`.

        Returns when the move is complete. A large tablet needs a longer deadline than the default.
        """

    def close(self) -> None:
        """Closes the client and ends its leases. Later operations raise `Closed`.

        It may be called several times. Operations of other threads go on to their ends.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Table:
    """A table of objects. Any number of threads may share it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def id(self) -> int:
        """Its id. A new table of the same name has another id."""

    def get(self, key: Bytes, *, deadline: Deadline | None = None) -> Value | None:
        """Reads an object. Returns `None` if it does not exist."""

    def put(
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

    def put_number(
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

    def delete(
        self,
        key: Bytes,
        *,
        if_version: int | None = None,
        if_present: bool = False,
        deadline: Deadline | None = None,
    ) -> int | None:
        """Deletes an object. Returns the version that it had, or `None` if it did not exist."""

    def expire(
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

    def ttl(self, key: Bytes, *, deadline: Deadline | None = None) -> float | None:
        """Returns how long an object still lives, in seconds: `math.inf` if it does not expire.

        Returns `None` if it does not exist.
        """

    def increment(
        self, key: Bytes, by: _Number, *, deadline: Deadline | None = None
    ) -> Sum[_Number]:
        """Adds to a number and returns the sum. An object that does not exist counts as 0."""

    def get_many(
        self, keys: Iterable[Bytes], *, deadline: Deadline | None = None
    ) -> list[Value | None]:
        """Reads many objects at once. Returns the results in the order of the keys."""

    def put_many(
        self, items: Items, *, ttl: TimeToLive | None = None, deadline: Deadline | None = None
    ) -> list[int]:
        """Writes many objects at once, each by itself and in no particular order.

        Returns their new versions. Raises `BatchError` if only some writes failed.
        """

    def delete_many(
        self, keys: Iterable[Bytes], *, deadline: Deadline | None = None
    ) -> list[int | None]:
        """Deletes many objects at once, each by itself.

        Returns the versions that they had, `None` for an object that did not exist.
        """

    def scan(self, *, deadline: Deadline | None = None) -> Scan:
        """Returns an iterator over all objects, in no particular order.

        An object that exists during the whole scan is returned exactly once. An object that is
        created or deleted meanwhile may be returned or not. `deadline` holds for each page.
        """

@final
class Scan(Iterator[Entry]):
    """An iterator over the objects of a table."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Entry: ...

@final
class Target:
    """A cluster to connect to. For `thunderhead.aio` only."""

    def __new__(cls, url: str, deadline: Deadline | None = None) -> Self: ...
    def resolve(self) -> None: ...
    @property
    def is_named(self) -> bool: ...
    @property
    def deadline(self) -> float: ...

@final
class Pages:
    """The state of a scan. For `thunderhead.aio` only."""

    def __new__(cls, table: int) -> Self: ...

@final
class Future(Generic[_T]):
    """The end of an operation, which one task awaits. For `thunderhead.aio` only."""

    _asyncio_future_blocking: bool
    def __await__(self) -> Generator[Any, None, _T]: ...
    def __next__(self) -> Self: ...
    def get_loop(self) -> AbstractEventLoop: ...
    def add_done_callback(
        self, callback: Callable[[Self], object], *, context: Context | None = None
    ) -> None: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self, msg: Any | None = None) -> bool: ...
    def result(self) -> None: ...

@final
class Queue:
    """A client of an event loop. For `thunderhead.aio` only."""

    def __new__(cls, target: Target, event_loop: AbstractEventLoop) -> Self: ...
    @property
    def pending(self) -> int: ...
    def connected(self) -> Future[None]: ...
    def close(self) -> asyncio.Future[None]: ...
    def abandon(self) -> None: ...
    def cancel(self, future: Future[Any]) -> None: ...
    def get(self, table: int, key: Bytes, deadline: Deadline | None) -> Future[Value | None]: ...
    def put(
        self,
        table: int,
        key: Bytes,
        value: Bytes,
        if_version: int | None,
        if_absent: bool,
        if_present: bool,
        ttl: TimeToLive | None,
        deadline: Deadline | None,
    ) -> Future[int]: ...
    def put_number(
        self,
        table: int,
        key: Bytes,
        number: float,
        if_version: int | None,
        if_absent: bool,
        if_present: bool,
        ttl: TimeToLive | None,
        deadline: Deadline | None,
    ) -> Future[int]: ...
    def delete(
        self,
        table: int,
        key: Bytes,
        if_version: int | None,
        if_present: bool,
        deadline: Deadline | None,
    ) -> Future[int | None]: ...
    def expire(
        self,
        table: int,
        key: Bytes,
        ttl: TimeToLive,
        if_version: int | None,
        if_present: bool,
        deadline: Deadline | None,
    ) -> Future[int | None]: ...
    def ttl(self, table: int, key: Bytes, deadline: Deadline | None) -> Future[float | None]: ...
    def increment(
        self, table: int, key: Bytes, by: _Number, deadline: Deadline | None
    ) -> Future[Sum[_Number]]: ...
    def get_many(
        self, table: int, keys: Iterable[Bytes], deadline: Deadline | None
    ) -> Future[list[Value | None]]: ...
    def put_many(
        self, table: int, items: Items, ttl: TimeToLive | None, deadline: Deadline | None
    ) -> Future[list[int]]: ...
    def delete_many(
        self, table: int, keys: Iterable[Bytes], deadline: Deadline | None
    ) -> Future[list[int | None]]: ...
    def page(self, pages: Pages, deadline: Deadline | None) -> Future[list[Entry]] | None: ...
    def table(self, name: str, deadline: Deadline | None) -> Future[TableInfo]: ...
    def create_table(
        self,
        name: str,
        span: int | None,
        ttl: TimeToLive | None,
        policy: Policy | None,
        max_bytes: int | None,
        reserved_bytes: int | None,
        deadline: Deadline | None,
    ) -> Future[TableInfo]: ...
    def drop_table(self, name: str, deadline: Deadline | None) -> Future[None]: ...
    def tables(self, deadline: Deadline | None) -> Future[list[TableInfo]]: ...
    def split(self, name: str, at: int, deadline: Deadline | None) -> Future[TableInfo]: ...
    def migrate(
        self, name: str, first: int, to: int, deadline: Deadline | None
    ) -> Future[TableInfo]: ...
    def _watch(self) -> None: ...
    def _flush(self) -> None: ...
    def _deliver(self) -> None: ...
    def _on_closed(self) -> None: ...

def _panic_for_test() -> NoReturn: ...
