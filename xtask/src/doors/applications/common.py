"""What the programs for Python share: see docs/testing/applications.md."""

import os
import sys
import time

#: A program that makes no progress for so many seconds has failed.
PATIENCE = 60


def arguments():
    """Returns the port of the server, the number of jobs, and a directory for files."""
    return int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def insist(call):
    """Repeats a call until the server has acknowledged it. A killed server needs a while."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except Exception as error:
            if time.monotonic() > end:
                raise
            say(f"again: {type(error).__name__}: {error}")
            time.sleep(0.05)


def say(line):
    print(line, flush=True)


class Done:
    """The jobs that were done, in a file to which each worker appends a line for each job."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "done")

    def add(self, job):
        file = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, f"{job}\n".encode())
        os.close(file)

    def read(self):
        try:
            with open(self.path) as file:
                return [int(line) for line in file]
        except FileNotFoundError:
            return []

    def await_all(self, count):
        """Waits until all jobs were done at least once."""
        began, latest = time.monotonic(), 0
        while True:
            done = self.read()
            distinct = set(done)
            if len(distinct) != latest:
                began, latest = time.monotonic(), len(distinct)
                say(f"done {latest}")
            if len(distinct) == count:
                say(f"all {count} done, {len(done) - count} of them again")
                return
            if time.monotonic() - began > PATIENCE:
                missing = sorted(set(range(count)) - distinct)
                sys.exit(f"{len(missing)} jobs were acknowledged and never done: {missing[:10]}")
            time.sleep(0.1)
