"""The client for asyncio, on the loop of the standard library and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import random
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
import uvloop

import thunderhead
from thunderhead import Entry, Value, aio

from .conftest import Server


@pytest_asyncio.fixture(autouse=True)
async def nothing_is_reported_to_the_loop() -> AsyncIterator[None]:
    """A forgotten exception would be printed by the loop."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []


@pytest_asyncio.fixture
async def adb(url: str) -> AsyncIterator[aio.Client]:
    async with aio.connect(url) as adb:
        yield adb


@pytest_asyncio.fixture
async def atable(adb: aio.Client, name: str) -> AsyncIterator[aio.Table]:
    yield await adb.table(name, create=True)
    with contextlib.suppress(thunderhead.NoSuchTable, thunderhead.Closed):
        await adb.drop_table(name)


async def test_operations_have_the_results_of_the_synchronous_client(atable: aio.Table) -> None:
    version = await atable.put("ada", "analyst", if_absent=True)
    assert await atable.get("ada") == Value(b"analyst", version)
    assert await atable.get("missing") is None
    with pytest.raises(thunderhead.ConditionFailed) as caught:
        await atable.put("ada", "countess", if_version=version + 1)
    assert caught.value.version == version
    assert await atable.delete("ada", if_version=version) == version
    assert await atable.delete("ada") is None
    assert (await atable.increment("n", 40)).number == 40
    assert (await atable.increment("n", 2)).number == 42
    await atable.put_number("f", 0.5)
    assert (await atable.increment("f", 0.25)).number == 0.75
    versions = await atable.put_many({"a": "1", "b": "2"})
    assert await atable.get_many(["b", "x"]) == [Value(b"2", versions[1]), None]
    assert await atable.delete_many(["a", "x"]) == [versions[0], None]
    assert await atable.get_many([]) == []


async def test_a_client_can_be_awaited(url: str) -> None:
    db = await aio.connect(url)
    await db.close()
    await db.close()
    with pytest.raises(thunderhead.Closed):
        await db.tables()
    async with await aio.connect(url, deadline=5) as db:
        assert await db.tables() is not None


async def test_tables_are_created_found_and_dropped(adb: aio.Client, name: str) -> None:
    with pytest.raises(thunderhead.NoSuchTable):
        await adb.table(name)
    first, second = await asyncio.gather(adb.table(name, True), adb.table(name, True))
    assert first.id == second.id
    assert (first.name, repr(first)) == (name, f"<thunderhead.aio.Table {name!r}>")
    with pytest.raises(thunderhead.TableExists):
        await adb.create_table(name)
    info = await adb.split(name, 2**63)
    assert info.id == first.id and len(info.tablets) == 2
    with pytest.raises(thunderhead.NotDone):
        await adb.migrate(name, 0, 99)
    assert name in [info.name for info in await adb.tables()]
    await adb.drop_table(name)
    with pytest.raises(thunderhead.NoSuchTable):
        await first.get("k")


async def test_a_scan_returns_each_object_once(atable: aio.Table) -> None:
    items = {f"{number:05}".encode(): b"v" * (number % 400) for number in range(2000)}
    await atable.put_many(items)
    entries = [entry async for entry in atable.scan()]
    assert len(entries) == 2000 and isinstance(entries[0], Entry)
    assert {entry.key: entry.value for entry in entries} == items
    async for key, value, _version in atable.scan():
        assert items[key] == value
        break


async def test_a_failed_scan_raises(adb: aio.Client, atable: aio.Table) -> None:
    await adb.drop_table(atable.name)
    with pytest.raises(thunderhead.NoSuchTable):
        async for _ in atable.scan():
            pass


async def test_tasks_share_a_client(atable: aio.Table) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(500):
            group.create_task(atable.increment("n", 1))
    found = await atable.get("n")
    assert found is not None and found.integer() == 500


async def callbacks_of_gets(table: aio.Table) -> list[Callable[..., object]]:
    """Gets 100 objects at once. Returns the callbacks that the loop was given meanwhile."""
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon
    callbacks: list[Callable[..., object]] = []

    def noting(callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:
        callbacks.append(callback)
        return call_soon(callback, *args, **kwargs)

    try:
        loop.call_soon = noting  # type: ignore[assignment]
    except AttributeError:
        pytest.skip("the methods of this loop cannot be replaced")
    try:
        await asyncio.gather(*(table.get(str(number)) for number in range(100)))
    finally:
        loop.call_soon = call_soon  # type: ignore[method-assign]
    return callbacks


async def test_operations_of_one_iteration_are_submitted_together(atable: aio.Table) -> None:
    callbacks = await callbacks_of_gets(atable)
    assert sum(getattr(callback, "__name__", "") == "_flush" for callback in callbacks) == 1


async def test_errors_are_raised_in_the_task(atable: aio.Table) -> None:
    wrong: Any = None
    for use in (
        lambda: atable.get(wrong),
        lambda: atable.put("k", wrong),
        lambda: atable.get_many("abc"),
    ):
        with pytest.raises(TypeError):
            await use()
    for use in (
        lambda: atable.put(b"", b"v"),
        lambda: atable.put("\ud800", b"v"),
        lambda: atable.put("k", b"v", deadline=0),
        lambda: atable.put("k", b"v" * (2 << 20)),
    ):
        with pytest.raises(thunderhead.InvalidArgument):
            await use()
    with pytest.raises(thunderhead.BatchError) as caught:
        await atable.put_many([("a", "1"), ("", "2")])
    assert isinstance(caught.value.results[0], int)


async def test_a_cancelled_task_cancels_its_operation(own_server: Server) -> None:
    async with aio.connect(own_server.url, deadline=600) as db:
        table = await db.table("t", create=True)
        await table.put("k", "v")
        own_server.pause()
        tasks = [asyncio.create_task(table.put("k", str(number))) for number in range(100)]
        while db._queue.pending < 100:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(it, asyncio.CancelledError) for it in ended)
        # The server still answers nothing, so only the cancellation ends the operations.
        while db._queue.pending:
            await asyncio.sleep(0)
        own_server.resume()
        assert await table.put("after", "v") > 0


async def test_a_time_limit_of_the_caller_cancels(own_server: Server) -> None:
    async with aio.connect(own_server.url, deadline=600) as db:
        table = await db.table("t", create=True)
        own_server.pause()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await table.get("k")
        with pytest.raises(thunderhead.TimedOut):
            await table.get("k", deadline=0.05)
        own_server.resume()
        assert await table.get("k") is None


@pytest.mark.parametrize("seed", range(5))
async def test_a_cancellation_at_any_moment_leaves_the_client_usable(
    atable: aio.Table, adb: aio.Client, seed: int
) -> None:
    choice = random.Random(seed)
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: atable.get("k"),
        lambda: atable.put("k", "v"),
        lambda: atable.increment("n", 1),
        lambda: atable.put_many([("a", "1"), ("", "2")]),
        lambda: atable.get_many(["a", "b"]),
        lambda: adb.tables(),
        lambda: asyncio.gather(atable.get("a"), atable.get("")),
    ]
    for _ in range(300):
        task = asyncio.ensure_future(choice.choice(uses)())
        for _ in range(choice.randrange(6)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    while adb._queue.pending:
        await asyncio.sleep(0)
    assert await atable.put("k", "v") > 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_task_that_ends_the_loop_keeps_no_results_from_others(
    url: str, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def leave(table: aio.Table) -> None:
        await table.get("k")
        raise SystemExit("a task wants it")

    async def begin() -> tuple[aio.Client, aio.Table]:
        db = await aio.connect(url)
        return db, await db.table(name, create=True)

    async def end(db: aio.Client, tasks: list[asyncio.Task[Any]]) -> list[Any]:
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await db.drop_table(name)
        await db.close()
        return results

    loop = new_loop()
    db, table = loop.run_until_complete(begin())
    # They begin when the loop runs again: none may end it while the table is opened.
    uses = [table.get("a"), leave(table), table.get("b"), leave(table), table.get("c")]
    tasks: list[asyncio.Task[Any]] = [loop.create_task(use) for use in uses]
    exits = 0  # uvloop may end both tasks before it stops.
    while not all(task.done() for task in tasks):
        try:
            loop.run_until_complete(asyncio.wait(tasks))
        except SystemExit:
            exits += 1
    results = loop.run_until_complete(end(db, tasks))
    loop.close()
    assert exits in (1, 2)
    assert [type(result).__name__ for result in results] == (
        ["NoneType", "SystemExit", "NoneType", "SystemExit", "NoneType"]
    )


async def test_a_task_goes_on_in_its_context(atable: aio.Table) -> None:
    user = contextvars.ContextVar("user", default="nobody")

    async def work(name: str) -> str:
        user.set(name)
        for _ in range(10):
            await atable.get("k")
        return user.get()

    names = [str(number) for number in range(20)]
    assert await asyncio.gather(*map(work, names)) == names
    assert user.get() == "nobody"


async def test_a_task_gets_the_message_of_its_cancellation(atable: aio.Table) -> None:
    for ticks in range(6):
        task = asyncio.ensure_future(atable.put("k", "v"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if not task.done() and task.cancel("no more"):
            with pytest.raises(asyncio.CancelledError, match="no more"):
                await task


async def test_tasks_of_other_kinds_can_await(atable: aio.Table) -> None:
    loop = asyncio.get_running_loop()
    written_in_python = asyncio.tasks._PyTask  # type: ignore[attr-defined]
    loop.set_task_factory(
        lambda loop, work, **options: written_in_python(work, loop=loop, **options)
    )
    assert await loop.create_task(atable.put("k", "v")) > 0
    with pytest.raises(thunderhead.InvalidArgument):
        await loop.create_task(atable.get(""))
    eager = getattr(asyncio, "eager_task_factory", None)  # Since Python 3.12.
    loop.set_task_factory(eager)
    assert await loop.create_task(atable.get("k")) is not None


async def test_debug_mode_names_a_task_that_takes_long(
    atable: aio.Table, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 0

    async def long() -> None:
        await atable.get("k")

    loop.set_debug(False)
    task = asyncio.create_task(long(), name="the long one")
    await asyncio.sleep(0)  # Its first step names it already, and is not of interest.
    caplog.clear()
    loop.set_debug(True)
    try:
        await task
    finally:
        loop.set_debug(False)
    if isinstance(loop, asyncio.BaseEventLoop):  # uvloop does not measure callbacks.
        assert any("the long one" in record.getMessage() for record in caplog.records)


async def test_one_task_awaits_an_operation(atable: aio.Table, adb: aio.Client) -> None:
    future = adb._queue.get(atable.id, "k", None)

    async def wait() -> Value | None:
        return await future

    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    assert await first is None
    with pytest.raises(RuntimeError, match="another task"):
        await second
    assert future.done() and not future.cancelled() and not future.cancel()
    assert repr(future) == "<thunderhead future finished>"
    with pytest.raises(asyncio.InvalidStateError, match="returned already"):
        await future


async def test_a_result_resumes_its_task_without_a_callback_of_the_loop(
    atable: aio.Table,
) -> None:
    owners = [getattr(it, "__self__", None) for it in await callbacks_of_gets(atable)]
    wakes = sum(isinstance(owner, asyncio.Task) for owner in owners)
    assert wakes <= 101, "the first step of each task, and the end of the wait for all"


async def test_libraries_can_ask_a_waiting_task_whether_its_operation_has_ended(
    own_server: Server,
) -> None:
    async with aio.connect(own_server.url, deadline=600) as db:
        table = await db.table("t", create=True)
        own_server.pause()
        task = asyncio.create_task(table.get("k"))
        while db._queue.pending == 0:
            await asyncio.sleep(0)
        waiter: Any = task._fut_waiter  # type: ignore[attr-defined]
        assert isinstance(waiter, asyncio.Future) and not waiter.done()
        assert "pending" in repr(task)
        # As anyio does it: the task must not be cancelled twice for one reason.
        task.cancel()
        assert waiter.done() and waiter.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1
        own_server.resume()


def test_a_task_may_run_its_loop_again(url: str, name: str) -> None:
    async def use(table: aio.Table, key: str) -> None:
        await table.put(key, "v")

    loop = asyncio.new_event_loop()
    db = loop.run_until_complete(aio.connect(url)._connect())
    table = loop.run_until_complete(db.table(name, create=True))
    others = [loop.create_task(use(table, str(number))) for number in range(10)]
    results: list[int] = []

    def in_a_callback(_: object) -> None:
        # A notebook runs its loop within a callback. The results of the same delivery must come.
        while not all(task.done() for task in others):
            loop._run_once()  # type: ignore[attr-defined]
        results.append(len(others))

    future: Any = db._queue.put(table.id, "first", "v", None, False, False, None, None)
    future.add_done_callback(in_a_callback)
    loop.run_until_complete(asyncio.wait(others))
    loop.run_until_complete(db.drop_table(name))
    loop.run_until_complete(db.close())
    loop.close()
    assert results == [10]


async def test_an_operation_that_nobody_awaits_ends_too(atable: aio.Table, adb: aio.Client) -> None:
    future = adb._queue.get(atable.id, "", None)
    while not future.done():
        await asyncio.sleep(0)
    del future
    assert adb._queue.pending == 0


async def test_a_coroutine_that_is_closed_forgets_its_operation(
    atable: aio.Table, adb: aio.Client
) -> None:
    for error in (False, True):
        coroutine = atable.get("" if error else "k")
        coroutine.send(None)
        if error:
            await asyncio.sleep(0)
        coroutine.close()
    while adb._queue.pending:
        await asyncio.sleep(0)


async def test_closing_waits_for_operations_in_progress(url: str, name: str) -> None:
    db = await aio.connect(url)
    table = await db.table(name, create=True)
    tasks = [asyncio.create_task(table.increment("n", 1)) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(db.close(), db.close())
    assert sorted(it.number for it in await asyncio.gather(*tasks)) == list(range(1, 51))
    with pytest.raises(thunderhead.Closed):
        await table.get("n")


async def test_a_connection_is_cancelled_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"thunderhead://127.0.0.1:{silent.getsockname()[1]}"
        task = asyncio.create_task(_connected(url))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(thunderhead.TimedOut):
            await aio.connect(url, deadline=0.05)


async def _connected(url: str) -> None:
    await aio.connect(url, deadline=600)


async def test_names_of_hosts_are_found(url: str) -> None:
    port = url.rpartition(":")[2]
    async with aio.connect(f"thunderhead://localhost:{port}") as db:
        assert await db.tables() is not None
    with pytest.raises(thunderhead.CannotConnect):
        await aio.connect("thunderhead://no-such-host.invalid", deadline=60)


async def test_another_thread_is_refused(atable: aio.Table) -> None:
    caught: list[BaseException] = []

    def use() -> None:
        try:
            asyncio.run(_get(atable))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert isinstance(caught[0], RuntimeError) and "event loop" in str(caught[0])
    assert await atable.get("k") is None


async def _get(table: aio.Table) -> Value | None:
    return await table.get("k")


def test_a_client_of_a_closed_loop_is_refused(url: str) -> None:
    async def connected() -> aio.Client:
        return await aio.connect(url)

    loop = asyncio.new_event_loop()
    db = loop.run_until_complete(connected())
    loop.close()
    other = asyncio.new_event_loop()
    with pytest.raises(RuntimeError):
        other.run_until_complete(db.tables())
    other.close()
    with pytest.warns(ResourceWarning, match="unclosed"):
        del db
        # The traceback of the error had a reference.
        gc.collect()


async def test_a_forgotten_client_warns_and_leaves_the_loop(url: str) -> None:
    db = await aio.connect(url)
    with pytest.warns(ResourceWarning, match="unclosed"):
        del db
    await asyncio.sleep(0)
