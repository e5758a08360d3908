"""The errors of the client.

There are two kinds, and they need different answers:

- `NotDone`: nothing was done. The caller may repeat the operation, or give it up.
- `OutcomeUnknown`: an update was sent, and no answer came in time. It may have been done. The
  caller must look at the data before it repeats the update.

Wrong types of arguments raise `TypeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Error(Exception):
    """The base of all errors of this package."""

    code: int
    """A stable number, for logs and for comparisons across languages."""

    def __init__(self, message: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class NotDone(Error):
    """The operation failed, and nothing was done."""


class ConditionFailed(NotDone):
    """The condition of the update does not hold."""

    version: int
    """The version that the object has. 0: the object does not exist."""

    def __init__(self, message: str = "", code: int = 0, version: int = 0) -> None:
        super().__init__(message, code)
        self.version = version


class TimedOut(NotDone, TimeoutError):
    """The deadline passed, and nothing was done. The text names the obstacle."""


class NoSuchTable(NotDone, LookupError):
    """There is no such table, or it was dropped."""


class TableExists(NotDone):
    """There is a table of this name already."""


class Closed(NotDone):
    """The client was closed."""


class Forked(Closed):
    """The process is a child that was forked after the client was made. Make a new client."""


class Cancelled(NotDone):
    """The operation was cancelled before it was done."""


class NotANumber(NotDone):
    """The object is no number, or a number of the other kind (whole or floating-point)."""

    version: int
    """The version that the object has."""

    def __init__(self, message: str = "", code: int = 0, version: int = 0) -> None:
        super().__init__(message, code)
        self.version = version


class NumberOverflow(NotDone, OverflowError):
    """The sum does not fit into 64 bits. The object was not changed."""


class InvalidArgument(NotDone, ValueError):
    """An argument has a wrong value, such as a key that is too long."""


class CannotConnect(NotDone, ConnectionError):
    """No host of the URL was found, or the system has no descriptor or thread left."""


class OutcomeUnknown(Error):
    """An update was sent, and no answer came. It may have been done or not.

    Read the object before you repeat the update.
    """


class InternalError(OutcomeUnknown):
    """The client has a bug. The operation may have been done or not."""


class BatchError(Error, ExceptionGroup[Error]):
    """Some of many operations failed.

    It is a group of their errors, so that `except* OutcomeUnknown` finds the updates that may have
    been done.
    """

    results: list[Any]
    """The outcome of each operation, in order: its result, or its error."""

    def __new__(
        cls, message: str, errors: Sequence[Error], results: Sequence[Any] = ()
    ) -> BatchError:
        return super().__new__(cls, message, errors)

    def __init__(self, message: str, errors: Sequence[Error], results: Sequence[Any] = ()) -> None:
        super().__init__(message, errors[0].code)
        # A pickle restores the group from these two.
        self.args = (message, errors)
        self.results = list(results)

    def derive(self, errors: Sequence[Error]) -> BatchError:  # type: ignore[override]
        """Makes the group for a part of the errors."""
        return BatchError(self.message, errors, self.results)


for _class in (
    Error,
    NotDone,
    ConditionFailed,
    TimedOut,
    NoSuchTable,
    TableExists,
    Closed,
    Forked,
    Cancelled,
    NotANumber,
    NumberOverflow,
    InvalidArgument,
    CannotConnect,
    OutcomeUnknown,
    InternalError,
    BatchError,
):
    # A traceback names the place from which users import them.
    _class.__module__ = "thunderhead"
