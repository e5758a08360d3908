// Cancelled operations, deadlines, and servers that are gone: each operation ends, and its error
// says whether it was done.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import {
  BatchError,
  CancelledError,
  connect,
  NotDoneError,
  OutcomeUnknownError,
  TimedOutError,
} from "thunderhead";
import { freeAddress, startServer, startStore } from "./server.mjs";

/** Lets the event loop turn so many times. */
async function turns(count) {
  for (let at = 0; at < count; at++) await setImmediate();
}

async function withTable(use) {
  const server = await startStore();
  const db = await connect(server.url);
  await use(await db.table("t", { create: true }), server, db);
  await db.close();
}

describe("cancelling", () => {
  test("an operation that is aborted in its own turn is never sent", () =>
    withTable(async (table) => {
      const controller = new AbortController();
      const { signal } = controller;
      const before = table.put("before", "x");
      const calls = [
        table.put("aborted", "x", { signal }),
        table.get("aborted", { signal }),
        table.increment("aborted", 1, { signal }),
        table.scan({ signal })[Symbol.asyncIterator]().next(),
      ];
      const batch = table.putMany([["aborted", "x"], ["aborted 2", "x"]], { signal });
      const after = table.put("after", "x");
      controller.abort("no longer needed");
      for (const result of await Promise.allSettled(calls)) {
        assert.ok(result.reason instanceof CancelledError, result.reason);
        assert.ok(result.reason instanceof NotDoneError);
        const { name, code, cause } = result.reason;
        assert.deepEqual([name, code, cause], ["AbortError", "ABORT_ERR", "no longer needed"]);
      }
      await assert.rejects(batch, (error) => {
        assert.ok(error instanceof BatchError);
        return error.results.every((it) => it instanceof CancelledError);
      });
      await Promise.all([before, after]);
      assert.equal((await table.get("before")).value.toString(), "x");
      assert.equal((await table.get("after")).value.toString(), "x");
      assert.equal(await table.get("aborted"), undefined);
      assert.equal(await table.get("aborted 2"), undefined);
    }));

  test("a signal that was aborted before refuses every call", () =>
    withTable(async (table, _, db) => {
      const signal = AbortSignal.abort();
      for (const call of [
        table.get("x", { signal }),
        table.put("x", "x", { signal }),
        db.tables({ signal }),
        db.table("t", { signal }),
      ]) {
        await assert.rejects(call, { name: "AbortError", code: "ABORT_ERR" });
      }
    }));

  test("an operation that is aborted at any moment ends, and an increment counts once", () =>
    withTable(async (table) => {
      let [done, unknown, cancelled] = [0, 0, 0];
      for (let round = 0; round < 300; round++) {
        const controller = new AbortController();
        const { signal } = controller;
        const calls = Array.from({ length: 10 }, () => table.increment("n", 1, { signal }));
        await turns(round % 6);
        controller.abort();
        for (const { status, reason } of await Promise.allSettled(calls)) {
          if (status === "fulfilled") done += 1;
          else if (reason instanceof CancelledError) cancelled += 1;
          else if (reason instanceof OutcomeUnknownError) unknown += 1;
          else assert.fail(reason);
        }
      }
      const { value } = (await table.getNumber("n")) ?? { value: 0n };
      assert.ok(value >= BigInt(done) && value <= BigInt(done + unknown), `${value}`);
      assert.equal(done + unknown + cancelled, 3000);
      assert.ok(cancelled >= 500, "those of the rounds without a turn");
    }));

  test("many operations may share a signal, and none keeps a listener", async () => {
    const warnings = [];
    const onWarning = (warning) => warnings.push(warning);
    process.on("warning", onWarning);
    await withTable(async (table) => {
      const controller = new AbortController();
      const { signal } = controller;
      let listeners = 0;
      const { addEventListener, removeEventListener } = signal;
      signal.addEventListener = (...args) => {
        listeners += 1;
        return addEventListener.apply(signal, args);
      };
      signal.removeEventListener = (...args) => {
        listeners -= 1;
        return removeEventListener.apply(signal, args);
      };
      const calls = Array.from({ length: 100 }, () => table.put("x", "x", { signal }));
      assert.equal(listeners, 1);
      await Promise.all(calls);
      await table.getMany(Array.from({ length: 500 }, () => "x"), { signal });
      assert.equal(listeners, 0);
    });
    await turns(3);
    process.off("warning", onWarning);
    assert.deepEqual(warnings, []);
  });

  test("a scan is aborted between pages", () =>
    withTable(async (table) => {
      await table.putMany(Array.from({ length: 3000 }, (_, at) => [`${at}`, "x".repeat(100)]));
      const controller = new AbortController();
      let seen = 0;
      await assert.rejects(async () => {
        for await (const page of table.scan({ signal: controller.signal }).pages()) {
          seen += page.length;
          controller.abort();
        }
      }, CancelledError);
      assert.ok(seen > 0 && seen < 3000);
    }));
});

describe("a server that stands still", () => {
  test("an update that was sent has an unknown outcome, a read was not done", () =>
    withTable(async (table, server, db) => {
      await table.put("key", "old");
      await server.pause();
      // A busy machine may not send the update by the first deadline. It does by a longer one.
      let error;
      for (let deadline = 100; !(error instanceof OutcomeUnknownError); deadline *= 2) {
        error = await table.put("key", "new", { deadline }).then(assert.fail, (it) => it);
        assert.ok(error instanceof OutcomeUnknownError || error instanceof TimedOutError, error);
      }
      assert.equal(error.code, "OUTCOME_UNKNOWN");
      assert.match(error.message, /may have been done or not, check before you repeat it/);
      await assert.rejects(table.get("key", { deadline: 50 }), (error) => {
        assert.ok(error instanceof TimedOutError && error instanceof NotDoneError, error);
        return error.code === "TIMED_OUT";
      });
      // The same after an abort.
      for (let count = 1; ; count *= 2) {
        const controller = new AbortController();
        const reason = new Error("too slow");
        const put = table.put("key", "new", { signal: controller.signal, deadline: 3_600_000 });
        await turns(count);
        controller.abort(reason);
        const error = await put.then(assert.fail, (it) => it);
        assert.equal(error.cause, reason);
        if (error instanceof OutcomeUnknownError) break;
        assert.ok(error instanceof CancelledError, error);
      }
      const many = await table.putMany([["a", "x"], ["b", "x"]], { deadline: 50 }).then(
        assert.fail,
        (it) => it,
      );
      assert.ok(many instanceof BatchError && many.failed === 2, many);
      server.resume();
      const { value } = await table.get("key");
      assert.match(value.toString(), /^(old|new)$/);
      await db.tables();
    }));
});

test("a server that is killed and restarted loses no update and counts none twice", async () => {
  const data = mkdtempSync(join(tmpdir(), "thunderhead-node-"));
  try {
    const address = await freeAddress();
    const start = () => startServer("--listen", address, "--data", data, "--memory", "64MiB");
    let server = await start();
    const db = await connect(server.url, { deadline: 120_000 });
    const table = await db.table("t", { create: true });
    let isOver = false;
    const count = async () => {
      let done = 0;
      while (!isOver) {
        await table.increment("n");
        done += 1;
      }
      return done;
    };
    const counters = Array.from({ length: 8 }, count);
    for (let kill = 0; kill < 2; kill++) {
      const { value } = await table.increment("seen", 0).then(() => table.increment("n", 0));
      // Updates are in progress when the server is killed.
      while ((await table.increment("n", 0)).value < value + 100n);
      await server.stop("SIGKILL");
      server = await start();
    }
    isOver = true;
    const done = (await Promise.all(counters)).reduce((total, it) => total + it, 0);
    assert.equal((await table.getNumber("n")).value, BigInt(done));
    await db.close();
    await server.stop();
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
});
