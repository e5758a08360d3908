"""The results of operations: named tuples, which compare by value and can be unpacked."""

from __future__ import annotations

import struct
from typing import Generic, NamedTuple, TypeVar

_Number = TypeVar("_Number", int, float)

_INTEGER = struct.Struct("<q")
_FLOAT = struct.Struct("<d")


class Value(NamedTuple):
    """The value of an object, and its version."""

    value: bytes
    version: int

    def text(self) -> str:
        """Returns the value as text. Raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.value.decode()

    def integer(self) -> int:
        """Returns the whole number that `put_number` or `increment` wrote.

        Raises `ValueError` if the value does not have the 8 bytes of a number. The caller must know
        that the object is a whole number.
        """
        return int(_number(_INTEGER, self.value))

    def floating(self) -> float:
        """Returns the floating-point number that `put_number` or `increment` wrote.

        Raises `ValueError` if the value does not have the 8 bytes of a number. The caller must know
        that the object is a floating-point number.
        """
        return float(_number(_FLOAT, self.value))


def _number(form: struct.Struct, value: bytes) -> float:
    if len(value) != form.size:
        raise ValueError(f"the value has {len(value)} bytes, and a number has {form.size}")
    number: float = form.unpack(value)[0]
    return number


class Sum(NamedTuple, Generic[_Number]):
    """The number that an increment made, and the object's new version."""

    number: _Number
    version: int


class Entry(NamedTuple):
    """An object that a scan returns."""

    key: bytes
    value: bytes
    version: int


class Tablet(NamedTuple):
    """A part of a table: the objects whose keys hash into a range."""

    first: int
    """The first hash of the range."""
    last: int
    """The last hash of the range."""
    master: int
    """The number of the master that owns it."""
    address: str | None
    """The master's address. `None` while the tablet is being recovered."""


class TableInfo(NamedTuple):
    """A table, with the location of each tablet."""

    id: int
    name: str
    tablets: tuple[Tablet, ...]


for _class in (Value, Sum, Entry, Tablet, TableInfo):
    # A traceback and a pickle name the place from which users import them.
    _class.__module__ = "thunderhead"
