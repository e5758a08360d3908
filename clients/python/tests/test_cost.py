"""The cost program answers each request that docs/testing/costs.md names."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import thunderhead

from .conftest import TESTS

WORKS = {
    "sync": ["get", "put", "get_many", "put_many"],
    "async": ["get", "put", "get_many", "put_many", "get_in_flight", "put_in_flight"],
}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_cost_program_measures_each_work(url: str, table: thunderhead.Table, mode: str) -> None:
    common = {"mode": mode, "store": "thunderhead", "url": url, "table": table.name}
    sizes = {"count": 200, "rounds": 2, "value_bytes": 50}
    requests = [
        {"id": number, "work": work, "width": 100 if "_" in work else 1, **common, **sizes}
        for number, work in enumerate(WORKS[mode])
    ]
    process = subprocess.run(
        [sys.executable, "-W", "error", str(TESTS / "cost.py")],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stderr == ""
    ready, *replies = [json.loads(line) for line in process.stdout.splitlines()]
    assert ready == {"ready": True, "language": "python", "modes": ["sync", "async"]}
    assert [reply["id"] for reply in replies] == list(range(len(requests)))
    for reply in replies:
        assert len(reply["ns"]) == 2 and min(reply["ns"]) > 0
    assert {key for key, _, _ in table.scan()} == {f"key{at}".encode() for at in range(100)}
