// Connecting, closing, and the life of the process.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import * as module from "thunderhead";
import { startStore, uniqueName } from "./server.mjs";

const { Client, connect, ClosedError, InvalidArgumentError } = module;
const run = promisify(execFile);
const program = (name) => fileURLToPath(new URL(`programs/${name}`, import.meta.url));

test("the ES module and the CommonJS module are one", () => {
  const common = createRequire(import.meta.url)("thunderhead");
  assert.ok(Object.keys(common).length > 15);
  for (const [name, value] of Object.entries(common)) assert.equal(module[name], value, name);
  assert.equal(module.default.connect, connect);
});

test("a wrong URL says its mistake", async () => {
  for (const [url, part] of [
    ["", "begin with thunderhead://"],
    ["redis://localhost", "begin with thunderhead://"],
    ["thunderhead://", "empty host"],
    ["thunderhead://h:0", "not a port"],
    ["thunderhead://h/?deadline=2", "a time such as"],
    ["thunderhead://h/?dedline=2s", "unknown setting"],
    ["thunderhead://h\0/", "not the name of a host"],
  ]) {
    await assert.rejects(connect(url), (error) => {
      assert.ok(error instanceof InvalidArgumentError);
      assert.ok(error.message.includes(part), error.message);
      return true;
    });
  }
});

test("wrong options of connect are refused", async () => {
  const url = "thunderhead://localhost";
  for (const bad of [undefined, null, 5, {}]) await assert.rejects(connect(bad), TypeError);
  const wrongTypes = [null, 5, { dedline: 5 }, { deadline: "5" }, { inFlight: "9" }, { signal: 1 }];
  for (const options of wrongTypes) {
    await assert.rejects(connect(url, options), TypeError, JSON.stringify(options));
  }
  const wrongValues = [{ deadline: 0 }, { inFlight: 0 }, { inFlight: 2 ** 32 }, { polling: "no" }];
  for (const options of wrongValues) {
    await assert.rejects(connect(url, options), InvalidArgumentError, JSON.stringify(options));
  }
});

test("connecting to nothing ends by the deadline, and nothing was done", async () => {
  // A server that accepts connections and never answers.
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const url = `thunderhead://127.0.0.1:${silent.address().port}`;
  await assert.rejects(connect(url, { deadline: 50 }), (error) => {
    assert.ok(error instanceof module.TimedOutError && error instanceof module.NotDoneError);
    assert.equal(error.code, "TIMED_OUT");
    assert.match(error.message, /check the addresses/);
    return true;
  });
  const controller = new AbortController();
  const connecting = connect(url, { signal: controller.signal });
  await once(silent, "connection");
  controller.abort(new Error("enough"));
  await assert.rejects(connecting, (error) => {
    assert.ok(error instanceof module.CancelledError);
    assert.equal(error.cause.message, "enough");
    return error.name === "AbortError";
  });
  await assert.rejects(connect(url, { signal: AbortSignal.abort() }), { name: "AbortError" });
  silent.close();
});

test("a client has the deadline of its URL, or of its options", async () => {
  const { url } = await startStore();
  for (const [suffix, options, expected] of [
    ["", {}, 10_000],
    ["/?deadline=2s", {}, 2000],
    ["/?deadline=2s", { deadline: 1500.5 }, 1500.5],
  ]) {
    const db = await connect(url + suffix, options);
    assert.equal(db.deadline, expected);
    await db.close();
  }
});

test("close may be called again, ends the work in progress, and refuses later work", async () => {
  const { url } = await startStore();
  const db = await connect(url, { polling: "never", inFlight: 10 });
  const table = await db.table("t", { create: true });
  const pending = Array.from({ length: 1000 }, (_, at) => table.put(`${at}`, "x"));
  const closing = db.close();
  assert.equal(db.close(), closing);
  const late = table.get("late");
  late.catch(() => {}); // It is rejected while this test waits for the close.
  await closing;
  await db.close();
  for (const { version } of await Promise.all(pending)) assert.equal(typeof version, "bigint");
  for (const call of [late, table.get("x"), table.getMany(["x"]), db.tables(), db.table("t")]) {
    await assert.rejects(call, (error) => {
      const errors = error instanceof module.BatchError ? error.results : [error];
      for (const it of errors) {
        assert.ok(it instanceof ClosedError && it.code === "CLOSED", it);
        assert.match(it.message, /make a new one with connect/);
      }
      return true;
    });
  }
  await assert.rejects(async () => {
    for await (const _ of table.scan()) assert.fail();
  }, ClosedError);
});

test("a client is disposed of", async () => {
  const { url } = await startStore();
  const db = await connect(url);
  const dispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
  await db[dispose]();
  await assert.rejects(db.tables(), ClosedError);
});

test("a panic is an exception, and prints nothing", async () => {
  const { stdout, stderr } = await run(process.execPath, [program("panic.cjs")]);
  assert.match(stdout, /caught: .*provoked by a test/);
  assert.equal(stderr, "");
});

test("an idle client that is not referenced lets the process end, after its work", async () => {
  const { url } = await startStore();
  const { stdout } = await run(process.execPath, [program("unref.mjs"), url]);
  assert.equal(stdout, "written\nread\n");
});

test("a process may exit while operations are pending", async () => {
  const { url } = await startStore();
  for (const way of ["exit", "throw"]) {
    const result = await run(process.execPath, [program("exit.mjs"), url, way]).catch((it) => it);
    assert.equal(result.signal ?? null, null, way);
    assert.equal(result.code, way === "exit" ? 7 : 1);
  }
});

test("workers have clients of their own, and may end while operations are pending", async () => {
  const { url } = await startStore();
  const db = await connect(url);
  const table = await db.table(uniqueName(), { create: true });
  const worker = (way) =>
    new Worker(program("worker.mjs"), { workerData: { url, table: table.name, way } });
  const workers = Array.from({ length: 4 }, () => worker("work"));
  for (const [code] of await Promise.all(workers.map((it) => once(it, "exit")))) {
    assert.equal(code, 0);
  }
  assert.equal((await table.getNumber("workers")).value, 400n);
  // Ended at different moments: while it connects, works, closes, and by itself.
  for (const way of ["connect", "busy", "close", "exit", "scan"]) {
    for (let round = 0; round < 3; round++) {
      const it = worker(way);
      await Promise.race([once(it, "message"), once(it, "exit")]);
      await it.terminate();
    }
  }
  assert.equal((await table.increment("alive")).value, 1n);
  await db.close();
});

test("a client cannot be made without connect", () => {
  assert.equal(typeof Client, "function");
  assert.equal(typeof Client.prototype.table, "function");
});
