"""Sequences of operations have the results of a dictionary."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import thunderhead

KEYS = st.one_of(st.binary(min_size=1, max_size=4), st.text("abä", min_size=1, max_size=2))
VALUES = st.one_of(st.binary(max_size=40), st.text(st.characters(codec="utf-8"), max_size=20))
OPERATIONS = st.one_of(
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("put_if_absent"), KEYS, VALUES),
    st.tuples(st.just("put_if_version"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("get_many"), st.lists(KEYS, max_size=5)),
    st.tuples(st.just("put_many"), st.lists(st.tuples(KEYS, VALUES), max_size=5)),
    st.tuples(st.just("scan")),
)


def encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@pytest.fixture(scope="module")
def module_db(url: str) -> Iterator[thunderhead.Client]:
    with thunderhead.connect(url) as db:
        yield db


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(operations=st.lists(OPERATIONS, max_size=20))
def test_a_table_is_a_dictionary_with_versions(
    module_db: thunderhead.Client, operations: list[tuple[object, ...]]
) -> None:
    name = f"test-{uuid.uuid4()}"
    table = module_db.table(name, create=True)
    model: dict[bytes, tuple[bytes, int]] = {}
    for operation in operations:
        match operation:
            case ("get", str() | bytes() as key):
                assert table.get(key) == model.get(encoded(key))
            case ("put", str() | bytes() as key, str() | bytes() as value):
                version = table.put(key, value)
                assert version > model.get(encoded(key), (b"", 0))[1]
                model[encoded(key)] = (encoded(value), version)
            case ("put_if_absent", str() | bytes() as key, str() | bytes() as value):
                try:
                    version = table.put(key, value, if_absent=True)
                    assert encoded(key) not in model
                    model[encoded(key)] = (encoded(value), version)
                except thunderhead.ConditionFailed as error:
                    assert model[encoded(key)][1] == error.version
            case ("put_if_version", str() | bytes() as key, str() | bytes() as value):
                version = model.get(encoded(key), (b"", 0))[1]
                newer = table.put(key, value, if_version=version)
                model[encoded(key)] = (encoded(value), newer)
            case ("delete", str() | bytes() as key):
                former = model.pop(encoded(key), None)
                assert table.delete(key) == (former[1] if former else None)
            case ("get_many", list() as keys):
                assert table.get_many(keys) == [model.get(encoded(key)) for key in keys]
            case ("put_many", list() as items):
                last = {encoded(key): encoded(value) for key, value in items}
                versions = table.put_many(last.items())
                for (key, value), version in zip(last.items(), versions, strict=True):
                    model[key] = (value, version)
            case ("scan",):
                found = {key: (value, version) for key, value, version in table.scan()}
                assert found == model
    module_db.drop_table(name)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    method=st.sampled_from(
        ["get", "put", "put_number", "delete", "increment", "get_many", "put_many", "scan"]
    ),
    arguments=st.lists(ANYTHING, max_size=3),
    keywords=st.dictionaries(
        st.sampled_from(["if_version", "if_absent", "if_present", "deadline", "other"]),
        ANYTHING,
        max_size=2,
    ),
)
def test_any_argument_has_a_result_or_a_typed_error(
    module_db: thunderhead.Client,
    method: str,
    arguments: list[object],
    keywords: dict[str, object],
) -> None:
    table = module_db.table("anything", create=True)
    with contextlib.suppress(TypeError, thunderhead.Error):
        getattr(table, method)(*arguments, **keywords)
