"""Operations of the synchronous client."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator

import pytest

import thunderhead
from thunderhead import Entry, Value


def test_a_put_returns_the_version_that_a_get_finds(table: thunderhead.Table) -> None:
    first = table.put("ada", "analyst")
    assert table.get("ada") == Value(b"analyst", first)
    second = table.put("ada", "countess")
    assert second > first
    found = table.get("ada")
    assert found is not None
    value, version = found
    assert (value, version, found.text()) == (b"countess", second, "countess")


def test_a_missing_key_is_a_value_and_no_error(table: thunderhead.Table) -> None:
    assert table.get("missing") is None
    assert table.delete("missing") is None


@pytest.mark.parametrize(
    "key",
    ["käse", "käse".encode(), bytearray("käse".encode()), memoryview("käse".encode())],
    ids=["str", "bytes", "bytearray", "memoryview"],
)
def test_keys_and_values_are_bytes_in_any_form(
    table: thunderhead.Table, key: thunderhead.Bytes
) -> None:
    version = table.put(key, key)
    assert table.get("käse") == ("käse".encode(), version)
    assert table.get(key) == ("käse".encode(), version)
    assert table.delete(key) == version


def test_a_memoryview_with_gaps_is_read_in_its_order(table: thunderhead.Table) -> None:
    table.put(memoryview(b"a-b-c-")[::2], b"")
    assert [entry.key for entry in table.scan()] == [b"abc"]


def test_an_empty_value_is_a_value(table: thunderhead.Table) -> None:
    version = table.put(b"\x00", b"")
    assert table.get(b"\x00") == Value(b"", version)


def test_conditions_hold_or_raise_with_the_version(table: thunderhead.Table) -> None:
    version = table.put("k", "1", if_absent=True)
    with pytest.raises(thunderhead.ConditionFailed) as caught:
        table.put("k", "2", if_absent=True)
    assert (caught.value.version, caught.value.code) == (version, 1)
    newer = table.put("k", "2", if_version=version)
    with pytest.raises(thunderhead.ConditionFailed) as caught:
        table.put("k", "3", if_version=version)
    assert caught.value.version == newer
    with pytest.raises(thunderhead.ConditionFailed):
        table.delete("k", if_version=version)
    assert table.put("k", "4", if_present=True) > newer
    assert table.delete("k", if_present=True) is not None
    updates: list[Callable[[], object]] = [
        lambda: table.put("k", "5", if_present=True),
        lambda: table.delete("k", if_present=True),
    ]
    for update in updates:
        with pytest.raises(thunderhead.ConditionFailed, match="does not exist") as caught:
            update()
        assert caught.value.version == 0
    assert table.put("k", "6", if_version=caught.value.version) > 0


def test_an_object_lives_for_its_time(table: thunderhead.Table) -> None:
    assert table.ttl("k") is None
    assert table.expire("k", 10) is None
    first = table.put("k", "v", ttl=60, if_absent=True)
    left = table.ttl("k")
    assert left is not None
    assert 0 < left <= 60
    second = table.expire("k", math.inf, if_version=first)
    assert second is not None
    assert second > first
    assert table.ttl("k") == math.inf
    table.put_number("n", 7, ttl=datetime.timedelta(hours=1))
    assert table.increment("n", 1).number == 8
    left = table.ttl("n")
    assert left is not None
    assert 0 < left <= 3600
    table.put_many({"a": "1", "b": "2"}, ttl=0.001)
    while table.get_many(["a", "b"]) != [None, None]:
        pass
    for wrong in [0, -1.5, math.nan]:
        with pytest.raises(thunderhead.InvalidArgument):
            table.put("k", "v", ttl=wrong)
    with pytest.raises(TypeError):
        table.put("k", "v", ttl="60")  # type: ignore[arg-type]


def test_a_table_has_a_default_time_to_live(db: thunderhead.Client, name: str) -> None:
    table = db.create_table(
        name, ttl=3600, policy="cache", max_bytes=2**20, reserved_bytes=1000
    )
    table.put("k", "v")
    left = table.ttl("k")
    assert left is not None
    assert 0 < left <= 3600
    table.put("k", "v", ttl=math.inf)
    assert table.ttl("k") == math.inf
    db.drop_table(name)
    with pytest.raises(thunderhead.InvalidArgument):
        db.create_table(name, policy="lru")  # type: ignore[arg-type]
    with pytest.raises(thunderhead.InvalidArgument):
        db.create_table(name, max_bytes=0)
    with pytest.raises(thunderhead.NotDone):
        db.create_table(name, reserved_bytes=5)


def test_a_table_with_a_maximum_refuses_what_exceeds_it(
    db: thunderhead.Client, name: str
) -> None:
    table = db.create_table(name, max_bytes=1000)
    table.put("k", "v")
    with pytest.raises(thunderhead.NotDone):
        table.put("l", b"v" * 1000)
    assert table.put("k", "w") > 0


def test_numbers_are_counted(table: thunderhead.Table) -> None:
    assert table.increment("visits", 1).number == 1
    number, version = table.increment("visits", 41)
    found = table.get("visits")
    assert found is not None and (found.integer(), found.version) == (number, version)
    assert number == 42
    table.put_number("visits", -(2**63))
    assert table.increment("visits", 1).number == -(2**63) + 1
    table.put_number("heat", 0.25)
    heat = table.increment("heat", 0.5).number
    assert (heat, type(heat)) == (0.75, float)
    found = table.get("heat")
    assert found is not None and found.floating() == 0.75
    with pytest.raises(thunderhead.NotANumber) as caught:
        table.increment("heat", 1)
    assert caught.value.version == found.version
    with pytest.raises(thunderhead.ConditionFailed):
        table.put_number("heat", 1, if_absent=True)


def test_a_sum_that_is_too_large_changes_nothing(table: thunderhead.Table) -> None:
    version = table.put_number("n", 2**63 - 1)
    with pytest.raises(thunderhead.NumberOverflow):
        table.increment("n", 1)
    assert table.get("n") == ((2**63 - 1).to_bytes(8, "little"), version)


def test_many_objects_have_results_in_order(table: thunderhead.Table) -> None:
    keys = [f"key {number}" for number in range(300)]
    versions = table.put_many((key, f"value of {key}") for key in keys)
    assert table.get_many(keys) == [
        Value(f"value of {key}".encode(), version)
        for key, version in zip(keys, versions, strict=True)
    ]
    assert table.get_many(["missing", keys[0]])[0] is None
    assert table.delete_many([keys[0], "missing"]) == [versions[0], None]
    assert len(table.put_many({"one": "1", "two": "2"})) == 2
    assert table.put_many([]) == []
    assert table.get_many(()) == []
    assert table.delete_many(iter([])) == []


def test_a_scan_returns_each_object_once(table: thunderhead.Table) -> None:
    items = {f"{number:05}".encode(): b"v" * (number % 400) for number in range(2000)}
    versions = dict(zip(items, table.put_many(items), strict=True))
    entries = list(table.scan())
    assert len(entries) == 2000
    assert {entry.key: entry.value for entry in entries} == items
    assert {entry.key: entry.version for entry in entries} == versions
    assert all(isinstance(entry, Entry) for entry in entries)
    key, value, version = next(iter(table.scan()))
    assert (items[key], versions[key]) == (value, version)


def test_a_scan_of_an_empty_table_ends(table: thunderhead.Table) -> None:
    scan = table.scan()
    assert list(scan) == [] == list(scan)


def test_tables_are_created_found_and_dropped(db: thunderhead.Client, name: str) -> None:
    with pytest.raises(thunderhead.NoSuchTable) as caught:
        db.table(name)
    assert caught.value.code == 1020
    table = db.create_table(name, span=1)
    assert table.name == name
    assert db.table(name).id == db.table(name, create=True).id == table.id
    with pytest.raises(thunderhead.TableExists):
        db.create_table(name)
    (info,) = [info for info in db.tables() if info.name == name]
    assert info.id == table.id
    assert [(it.first, it.last) for it in info.tablets] == [(0, 2**64 - 1)]
    db.drop_table(name)
    with pytest.raises(thunderhead.NoSuchTable):
        db.drop_table(name)
    with pytest.raises(thunderhead.NoSuchTable) as caught:
        table.get("key")
    assert caught.value.code == 2
    assert db.table(name, create=True).id != table.id
    db.drop_table(name)


def test_a_table_is_split_and_goes_on(db: thunderhead.Client, table: thunderhead.Table) -> None:
    keys = [str(number) for number in range(200)]
    table.put_many((key, key) for key in keys)
    info = db.split(table.name, 2**63)
    assert [tablet.first for tablet in info.tablets] == [0, 2**63]
    assert [it and it.text() for it in table.get_many(keys)] == keys
    assert sorted(entry.key for entry in table.scan()) == sorted(key.encode() for key in keys)
    with pytest.raises(thunderhead.InvalidArgument):
        db.split(table.name, 0)
    with pytest.raises(thunderhead.NotDone):
        db.migrate(table.name, 2**63, 99)


def test_a_client_closes_at_the_end_of_its_block(url: str, name: str) -> None:
    with thunderhead.connect(url) as db:
        table = db.table(name, create=True)
        scan = table.scan()
    db.close()
    for use in (
        lambda: table.get("k"),
        lambda: table.put("k", "v"),
        lambda: table.get_many(["k"]),
        lambda: db.tables(),
        lambda: next(scan),
    ):
        with pytest.raises(thunderhead.Closed, match="connect") as caught:
            use()
        assert caught.value.code == 12
    assert list(scan) == []


def test_a_block_passes_its_exception_on(url: str) -> None:
    with pytest.raises(KeyError), thunderhead.connect(url):
        raise KeyError


def test_deadlines_are_numbers_or_timedeltas(url: str, name: str) -> None:
    with thunderhead.connect(f"{url}/?deadline=3s", deadline=30) as db:
        table = db.table(name, True, deadline=10.5)
        table.put("k", "v", deadline=datetime.timedelta(seconds=10))
        assert table.get("k", deadline=10) is not None


def test_texts_name_the_objects(db: thunderhead.Client, table: thunderhead.Table) -> None:
    assert repr(table) == f'<thunderhead.Table "{table.name}">'
    assert repr(db).startswith("<thunderhead.Client thunderhead://")
    assert repr(Value(b"v", 1)) == "Value(value=b'v', version=1)"


def test_items_may_come_from_any_iterable(table: thunderhead.Table) -> None:
    def items() -> Iterator[tuple[str, bytes]]:
        yield "a", b"1"
        yield "b", b"2"

    assert len(table.put_many(items())) == 2
    assert len(table.put_many(zip(["a"], ["1"], strict=True))) == 1
