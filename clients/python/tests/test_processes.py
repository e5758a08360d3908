"""Forks and the ends of processes."""

from __future__ import annotations

from .conftest import Server, run_child

FORKED = """
import asyncio, os, sys, thunderhead, warnings
# Python 3.12 and later warn about forks of processes with threads.
warnings.simplefilter("ignore", DeprecationWarning)
url = sys.argv[1]

def in_child(use):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            use()
            code = 0
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def refused(use):
    try:
        use()
    except thunderhead.Forked as error:
        assert isinstance(error, thunderhead.Closed) and error.code == 21
    else:
        raise AssertionError("the child used its parent's connection")

db = thunderhead.connect(url)
table = db.table("forks", create=True)
table.put("k", "v")
scan = table.scan()

def child():
    refused(lambda: table.get("k"))
    refused(lambda: table.put("k", "w"))
    refused(lambda: table.get_many(["k"]))
    refused(lambda: next(scan))
    refused(lambda: db.tables())
    db.close()
    with thunderhead.connect(url) as own:
        assert own.table("forks").get("k").value == b"v"

in_child(child)
assert table.get("k").value == b"v"

async def main():
    async with thunderhead.aio.connect(url) as adb:
        atable = await adb.table("forks")
        def child():
            for coroutine in (atable.get("k"), atable.get_many(["k"]), adb.tables()):
                coroutine.send(None)
                adb._queue._flush()
                refused(lambda: coroutine.send(None))
        in_child(child)
        assert (await atable.get("k")).value == b"v"
        fresh = lambda: asyncio.run(other())
        in_child(lambda: asyncio._set_running_loop(None) or fresh())
        assert (await atable.get("k")).value == b"v"

async def other():
    async with thunderhead.aio.connect(url) as adb:
        assert (await (await adb.table("forks")).get("k")).value == b"v"

asyncio.run(main())
db.close()
print("done")
"""

FORK_WITH_THREADS = """
import os, sys, threading, thunderhead, warnings
warnings.simplefilter("ignore", DeprecationWarning)
db = thunderhead.connect(sys.argv[1])
table = db.table("forks", create=True)
stop = False

def work():
    while not stop:
        table.put("k", "v")

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        try:
            table.get("k")
        except thunderhead.Forked:
            db.close()
            del table, db
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads:
    thread.join()
db.close()
print("done")
"""


def test_a_child_of_a_fork_is_refused_and_makes_its_own_client(url: str) -> None:
    ended = run_child(FORKED, url)
    assert (ended.stdout, ended.returncode) == ("done\n", 0)


def test_a_fork_while_threads_work_harms_neither_process(url: str) -> None:
    ended = run_child(FORK_WITH_THREADS, url)
    assert (ended.stdout, ended.returncode) == ("done\n", 0)


UNCLOSED = """
import sys, thunderhead
db = thunderhead.connect(sys.argv[1])
table = db.table("ends", create=True)
table.put("k", "v")
scan = table.scan()
next(scan)
"""

DAEMON = """
import sys, threading, thunderhead
db = thunderhead.connect(sys.argv[1], deadline=600)
table = db.table("ends", create=True)
began = threading.Event()

def work():
    while True:
        table.put("k", "v")
        began.set()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
began.wait()
"""

BLOCKED = """
import os, signal, sys, threading, thunderhead
db = thunderhead.connect(sys.argv[1], deadline=600)
table = db.table("ends", create=True)
os.kill(int(sys.argv[2]), signal.SIGSTOP)
began = threading.Event()

def work():
    began.set()
    table.put("k", "v")

threading.Thread(target=work, daemon=True).start()
began.wait()
"""

LOOP_UNCLOSED = """
import asyncio, sys, thunderhead, warnings
warnings.simplefilter("ignore", ResourceWarning)
async def main():
    db = await thunderhead.aio.connect(sys.argv[1])
    table = await db.table("ends", create=True)
    asyncio.ensure_future(table.put("k", "v"))
    await table.get("k")
asyncio.run(main())
"""


def test_a_program_may_end_without_closing(url: str) -> None:
    for code in (UNCLOSED, LOOP_UNCLOSED):
        assert run_child(code, url).returncode == 0


def test_a_program_may_end_while_daemon_threads_work(url: str) -> None:
    for _ in range(5):
        assert run_child(DAEMON, url).returncode == 0


def test_a_program_may_end_while_a_thread_waits(own_server: Server) -> None:
    assert run_child(BLOCKED, own_server.url, str(own_server.process.pid)).returncode == 0
