"""The types of the package fit its behaviour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def run(*arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_package_the_tests_and_the_examples_are_typed() -> None:
    run("mypy", "--config-file", "pyproject.toml")


def test_the_stubs_name_all_that_the_native_module_has() -> None:
    settings = ("--mypy-config-file", "pyproject.toml", "--allowlist", "tests/stubtest.txt")
    run("mypy.stubtest", "thunderhead", *settings)
