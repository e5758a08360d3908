"""Loads many objects and shows the progress.

It writes many objects in each call: that is the fastest way from one thread. An object that is
refused does not stop the others. The program may be run again, because it writes the same objects.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice

import thunderhead

OBJECTS = 100_000
BATCH = 500


def objects(count: int) -> Iterator[tuple[str, str]]:
    """The objects to load. Read a file here."""
    for number in range(count):
        yield f"user:{number:08}", f"the profile of user {number}"


def batches(items: Iterable[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def load(table: thunderhead.Table, items: Iterable[tuple[str, str]], total: int) -> int:
    """Writes the objects. Returns the number of objects that were refused."""
    done = refused = 0
    for batch in batches(items, BATCH):
        try:
            table.put_many(batch)
        except thunderhead.BatchError as error:
            for (key, _), result in zip(batch, error.results, strict=True):
                if isinstance(result, thunderhead.Error):
                    refused += 1
                    print(f"\n{key}: {result}", file=sys.stderr)
        done += len(batch)
        print(f"\r{done} of {total} objects, {100 * done // total} %", end="", flush=True)
    print()
    return refused


def main(url: str, count: int) -> None:
    # A server that is short of memory or backups makes writes wait, so the deadline is generous.
    with thunderhead.connect(url, deadline=60) as db:
        table = db.table("profiles", create=True)
        refused = load(table, objects(count), count)
        sample = table.get_many([f"user:{number:08}" for number in range(0, count, 1000)])
        assert refused or None not in sample, "an object is missing"
        print(f"{count - refused} objects are loaded, {refused} were refused")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "thunderhead://localhost",
        int(sys.argv[2]) if len(sys.argv) > 2 else OBJECTS,
    )
