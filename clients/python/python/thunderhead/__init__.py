"""The client of Thunderhead: a durable key-value store in memory with exactly-once updates.

    with thunderhead.connect("thunderhead://localhost") as db:
        users = db.table("users", create=True)
        version = users.put("ada", "analyst")
        users.put("ada", "countess", if_version=version)
        print(users.get("ada").text())

`thunderhead.aio` has the same operations for asyncio.
"""

from __future__ import annotations

from ._core import Client, Scan, Table, connect
from ._errors import (
    BatchError,
    Cancelled,
    CannotConnect,
    Closed,
    ConditionFailed,
    Error,
    Forked,
    InternalError,
    InvalidArgument,
    NoSuchTable,
    NotANumber,
    NotDone,
    NumberOverflow,
    OutcomeUnknown,
    TableExists,
    TimedOut,
)
from ._types import Bytes, Deadline, Items, Policy, TimeToLive
from ._values import Entry, Sum, TableInfo, Tablet, Value

from . import aio  # isort: skip  (it uses the names above)

__all__ = [
    "BatchError",
    "Bytes",
    "Cancelled",
    "CannotConnect",
    "Client",
    "Closed",
    "ConditionFailed",
    "Deadline",
    "Entry",
    "Error",
    "Forked",
    "InternalError",
    "InvalidArgument",
    "Items",
    "NoSuchTable",
    "NotANumber",
    "NotDone",
    "NumberOverflow",
    "OutcomeUnknown",
    "Policy",
    "Scan",
    "Sum",
    "Table",
    "TableExists",
    "TableInfo",
    "Tablet",
    "TimeToLive",
    "TimedOut",
    "Value",
    "aio",
    "connect",
]
