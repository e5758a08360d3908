"""Errors: their classes, codes and texts, and no crash for any argument."""

from __future__ import annotations

import copy
import pickle
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import thunderhead
from thunderhead import _core

CLASSES = [
    getattr(thunderhead, name)
    for name in thunderhead.__all__
    if isinstance(getattr(thunderhead, name), type)
    and issubclass(getattr(thunderhead, name), thunderhead.Error)
]


def test_each_error_is_either_not_done_or_of_unknown_outcome() -> None:
    kinds = {thunderhead.Error, thunderhead.BatchError}
    for error in set(CLASSES) - kinds:
        assert issubclass(error, thunderhead.NotDone) != issubclass(
            error, thunderhead.OutcomeUnknown
        )
    assert issubclass(thunderhead.InternalError, thunderhead.OutcomeUnknown)
    assert issubclass(thunderhead.InvalidArgument, ValueError)
    assert issubclass(thunderhead.TimedOut, TimeoutError)
    assert issubclass(thunderhead.NoSuchTable, LookupError)


@pytest.mark.parametrize("error", set(CLASSES) - {thunderhead.BatchError})
def test_errors_can_be_pickled_and_copied(error: type[thunderhead.Error]) -> None:
    made = error("the reason", 7)
    for twin in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert type(twin) is error
        assert (str(twin), twin.code) == ("the reason", 7)


def test_a_failed_batch_can_be_pickled_and_divided() -> None:
    unknown = thunderhead.OutcomeUnknown("perhaps", 8)
    refused = thunderhead.InvalidArgument("too long", 1012)
    made = thunderhead.BatchError("2 of 3 failed", [unknown, refused], [1, unknown, refused])
    twin = pickle.loads(pickle.dumps(made))
    assert (str(twin), len(twin.exceptions), twin.results[0]) == (str(made), 2, 1)
    found, rest = made.split(thunderhead.OutcomeUnknown)
    assert found is not None and rest is not None
    assert (found.exceptions, rest.exceptions) == ((unknown,), (refused,))


def test_a_batch_that_fails_in_part_has_the_outcome_of_each(table: thunderhead.Table) -> None:
    with pytest.raises(thunderhead.BatchError, match="1 of 3") as caught:
        table.put_many([("a", "1"), ("b" * 70_000, "2"), ("c", "3")])
    first, second, third = caught.value.results
    assert isinstance(first, int) and isinstance(third, int)
    assert isinstance(second, thunderhead.InvalidArgument) and second.code == 1011
    try:
        table.get_many(["a", "b" * 70_000])
    except* thunderhead.NotDone as group:
        assert group.exceptions == (group.exceptions[0],)


def test_a_batch_that_fails_as_a_whole_raises_its_error(
    db: thunderhead.Client, table: thunderhead.Table
) -> None:
    db.drop_table(table.name)
    with pytest.raises(thunderhead.NoSuchTable):
        table.put_many([("a", "1"), ("b", "2")])


def raises(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


@pytest.mark.parametrize("wrong", [None, 1, 1.5, [], object(), ("a",), True])
def test_a_key_of_a_wrong_type_is_a_type_error(table: thunderhead.Table, wrong: Any) -> None:
    with pytest.raises(TypeError, match="the key must be str, bytes, bytearray or memoryview, not"):
        table.get(wrong)
    with pytest.raises(TypeError, match="the value must be"):
        table.put("k", wrong)
    with pytest.raises(TypeError):
        table.get_many([wrong])


def test_texts_of_type_errors_say_the_next_step(table: thunderhead.Table, url: str) -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match="use put_number"):
        table.put("k", wrong)
    for keys in ("abc", b"abc", bytearray(b"abc"), memoryview(b"abc")):
        with pytest.raises(TypeError, match="not a single"):
            table.get_many(keys)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be an iterable, not int"):
        table.get_many(wrong)
    with pytest.raises(TypeError, match="a pair of a key and a value"):
        table.put_many([("a", "b", "c")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not a single str"):
        table.put_many(["ab"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="url must be str"):
        thunderhead.connect(wrong)
    with pytest.raises(TypeError, match="seconds or a timedelta, not str"):
        table.get("k", deadline="1s")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int or float, not str"):
        table.increment("k", "1")  # type: ignore[type-var]
    with pytest.raises(TypeError, match="if_version must be int, not bool"):
        table.put("k", "v", if_version=True)
    with pytest.raises(TypeError, match="name must be str"):
        thunderhead.connect(url).table(wrong)


@pytest.mark.parametrize(
    "deadline", [0, -1, 0.0, float("nan"), float("inf"), 1e300, -(10**400), 10**400]
)
def test_a_deadline_is_never_endless(table: thunderhead.Table, url: str, deadline: float) -> None:
    with pytest.raises(thunderhead.InvalidArgument, match="deadline"):
        table.get("k", deadline=deadline)
    with pytest.raises(thunderhead.InvalidArgument, match="deadline"):
        thunderhead.connect(url, deadline=deadline)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**100])
def test_a_number_beyond_64_bits_is_refused(table: thunderhead.Table, number: int) -> None:
    for use in (table.increment, table.put_number):
        with pytest.raises(thunderhead.InvalidArgument, match=r"2\*\*63"):
            use("n", number)
    with pytest.raises(thunderhead.InvalidArgument, match=r"2\*\*64"):
        table.put("n", "v", if_version=number * number)


def test_a_float_without_a_finite_sum_is_refused(table: thunderhead.Table) -> None:
    table.put_number("n", 1.0)
    for number in (float("inf"), float("nan")):
        with pytest.raises(thunderhead.NumberOverflow):
            table.increment("n", number)
    assert table.increment("n", -0.5).number == 0.5


def test_limits_of_keys_and_values_are_typed_errors(table: thunderhead.Table) -> None:
    longest = b"k" * (64 << 10)
    # The small segments of a server for tests have room for values of 64 KiB.
    table.put(longest, b"v" * (64 << 10))
    assert len((table.get(longest) or (b"",))[0]) == 64 << 10
    for key, value, code in (
        (b"", b"v", 1010),
        (longest + b"k", b"v", 1011),
        (b"k", b"v" * ((1 << 20) + 1), 1012),
    ):
        with pytest.raises(thunderhead.InvalidArgument) as caught:
            table.put(key, value)
        assert caught.value.code == code
    for use in (
        lambda: table.get(b"k" * (9 << 20)),
        lambda: table.put(b"k", b"v" * (64 << 20)),
        lambda: table.put_many([(b"k", b"v" * (64 << 20))]),
    ):
        with pytest.raises(thunderhead.InvalidArgument, match="too long"):
            use()


def test_lone_surrogates_are_refused(table: thunderhead.Table, db: thunderhead.Client) -> None:
    for use in (
        lambda: table.get("\ud800"),
        lambda: table.put("k", "a\udfff"),
        lambda: table.get_many(["\ud800"]),
        lambda: db.table("\ud800"),
        lambda: thunderhead.connect("thunderhead://\ud800"),
    ):
        with pytest.raises(thunderhead.InvalidArgument, match="surrogate") as caught:
            use()
        assert isinstance(caught.value.__cause__, UnicodeEncodeError)


def test_only_one_condition_is_allowed(table: thunderhead.Table) -> None:
    with pytest.raises(thunderhead.InvalidArgument, match="only one"):
        table.put("k", "v", if_version=1, if_absent=True)
    with pytest.raises(thunderhead.InvalidArgument, match="only one"):
        table.delete("k", if_version=1, if_present=True)


def test_names_and_spans_are_checked(db: thunderhead.Client) -> None:
    for name in ("", "n" * 256, "a\nb", "a\x00b"):
        with pytest.raises(thunderhead.InvalidArgument):
            db.table(name, create=True)
    for span in (0, -1, 2**32, 2**70):
        with pytest.raises(thunderhead.InvalidArgument):
            db.table("t", create=True, span=span)


def test_a_released_memoryview_is_refused(table: thunderhead.Table) -> None:
    view = memoryview(bytearray(b"abc"))
    view.release()
    with pytest.raises(thunderhead.InvalidArgument, match="memoryview"):
        table.get(view)


class Surprise(Exception):
    """An error of a callback."""


def test_errors_of_callbacks_are_raised_as_they_are(table: thunderhead.Table) -> None:
    def keys() -> Iterator[str]:
        yield "a"
        raise Surprise

    def items() -> Iterator[tuple[str, str]]:
        yield "a", "b"
        raise Surprise

    class Odd:
        __index__ = __iter__ = __len__ = items = total_seconds = raises(Surprise())

    odd: Any = Odd()
    for use in (
        lambda: table.get_many(keys()),
        lambda: table.put_many(items()),
        lambda: table.get_many(odd),
        lambda: table.put_many(odd),
    ):
        with pytest.raises(Surprise):
            use()
    with pytest.raises((Surprise, TypeError)):
        table.increment("k", odd)
    with pytest.raises((Surprise, TypeError)):
        table.get("k", deadline=odd)
    assert table.get("a") is None


@pytest.mark.parametrize(
    "url",
    ["", "redis://h", "thunderhead://", "thunderhead://h:0", "thunderhead://h/?dedline=2s", "\x00"],
)
def test_a_wrong_url_is_an_invalid_argument(url: str) -> None:
    for connect in (thunderhead.connect, thunderhead.aio.connect):
        with pytest.raises(thunderhead.InvalidArgument, match="URL"):
            connect(url)


def test_a_host_without_address_cannot_be_connected() -> None:
    with pytest.raises(thunderhead.CannotConnect, match="no coordinator can be found"):
        thunderhead.connect("thunderhead://no-such-host.invalid", deadline=60)


def test_a_host_that_does_not_answer_is_a_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(thunderhead.TimedOut) as caught:
            thunderhead.connect(f"thunderhead://127.0.0.1:{port}", deadline=0.2)
    assert caught.value.code == 9


def test_a_panic_is_an_internal_error_and_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(thunderhead.InternalError, match="a test wants it") as caught:
        _core._panic_for_test()
    assert caught.value.code == 101
    assert capfd.readouterr() == ("", "")


def test_classes_of_the_module_cannot_be_made_by_hand() -> None:
    for made in (thunderhead.Client, thunderhead.Table, thunderhead.Scan):
        with pytest.raises(TypeError):
            made()
    for asynchronous in (thunderhead.aio.Client, thunderhead.aio.Table):
        with pytest.raises(TypeError):
            asynchronous()
