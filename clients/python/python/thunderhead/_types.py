"""The types of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Literal, TypeAlias

Bytes: TypeAlias = str | bytes | bytearray | memoryview
"""A key or a value. A `str` is encoded as UTF-8."""

Deadline: TypeAlias = float | timedelta
"""A time limit: a number of seconds, or a `timedelta`."""

TimeToLive: TypeAlias = float | timedelta
"""How long an object lives: a number of seconds, a `timedelta`, or `math.inf` for ever."""

Policy: TypeAlias = Literal["durable", "cache"]
"""What happens when memory is full: writes are refused, or objects are evicted."""

# The parameter of a mapping's keys has no variance, so each type of keys is listed.
Items: TypeAlias = (
    Iterable[tuple[Bytes, Bytes]]
    | Mapping[str, Bytes]
    | Mapping[bytes, Bytes]
    | Mapping[Bytes, Bytes]
)
"""Pairs of a key and a value, or a mapping."""
