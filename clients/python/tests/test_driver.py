"""The driver answers each request that docs/testing/drivers.md names."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

import thunderhead

from .conftest import TESTS


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Driver:
    """A process of the driver, with one client."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(TESTS / "driver.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.number = 0

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, op: str, **fields: object) -> Any:
        self.number += 1
        assert self.process.stdin is not None
        request = {"id": self.number, "client": 7, "op": op, **fields}
        self.process.stdin.write(json.dumps(request) + "\n")
        reply = self.read()
        assert reply.pop("id") == self.number
        return reply


READY = {
    "ready": True,
    "language": "python",
    "modes": ["sync", "async"],
    "cancels": ["async"],
}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_driver_answers_each_request(url: str, table: thunderhead.Table, mode: str) -> None:
    driver = Driver()
    assert driver.read() == READY
    assert driver.ask("open", url=url, mode=mode) == {"ok": {}}
    name, key, value = table.name, b64("k"), b64("v")
    assert driver.ask("get", table=name, key=key) == {"ok": {"absent": True}}
    version = driver.ask("put", table=name, key=key, value=value)["ok"]["version"]
    assert driver.ask("get", table=name, key=key) == {"ok": {"version": version, "value": value}}
    error = driver.ask("put", table=name, key=key, value=value, **{"if": "absent"})["error"]
    assert (error["code"], error["outcome"], error["version"]) == (1, "not_done", version)
    condition = {"if": {"version": version}}
    assert driver.ask("delete", table=name, key=key, **condition) == {"ok": {"version": version}}
    assert driver.ask("delete", table=name, key=key) == {"ok": {"absent": True}}
    assert "version" in driver.ask("put_number", table=name, key=key, number="40")["ok"]
    assert driver.ask("increment", table=name, key=key, by="2")["ok"]["sum"] == "42"
    objects = [[b64("a"), value], [b64(""), value]]
    first, second = driver.ask("put_many", table=name, objects=objects)["ok"]["results"]
    assert "version" in first
    assert second["error"]["code"] == 1010
    results = driver.ask("get_many", table=name, keys=[b64("a"), b64("x")])["ok"]["results"]
    assert results == [{**first, "value": value}, {"absent": True}]
    assert len(driver.ask("scan", table=name)["ok"]["objects"]) == 2
    assert driver.ask("close") == {"ok": {}}
    assert driver.ask("get", table=name, key=key)["error"]["code"] == 12
    other = "async" if mode == "sync" else "sync"
    assert driver.ask("open", url=url, mode=other) == {"ok": {}}
    assert driver.ask("increment", table=name, key=key, by="1")["ok"]["sum"] == "43"
    assert driver.process.communicate() == ("", "")
    assert driver.process.returncode == 0


def test_the_driver_cancels(url: str, table: thunderhead.Table) -> None:
    driver = Driver()
    assert driver.read() == READY
    assert driver.ask("open", url=url, mode="async") == {"ok": {}}
    fields = {"table": table.name, "key": b64("n"), "by": "1"}
    replies = [driver.ask("increment", **fields, cancel=True) for _ in range(50)]
    errors = [reply["error"] for reply in replies if "error" in reply]
    assert {(error["code"], error["outcome"]) for error in errors} <= {(0, "unknown")}
    done = len(replies) - len(errors)
    total = int(driver.ask("increment", **fields)["ok"]["sum"]) - 1
    assert done <= total <= len(replies)
    assert driver.process.communicate() == ("", "")
    assert driver.process.returncode == 0
