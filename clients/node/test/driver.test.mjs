// The driver answers each request that docs/testing/drivers.md names.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect } from "thunderhead";
import { startStore } from "./server.mjs";

const base64 = (text) => Buffer.from(text).toString("base64");

/** A process of the driver, with one client. */
class Driver {
  #child = spawn(process.execPath, [fileURLToPath(new URL("driver.mjs", import.meta.url))]);
  #ended = once(this.#child, "exit");
  #errors = text(this.#child.stderr);
  #lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  #id = 0;

  async read() {
    return JSON.parse((await this.#lines.next()).value);
  }

  send(op, fields) {
    this.#id += 1;
    const request = { id: this.#id, client: 7, op, ...fields };
    this.#child.stdin.write(`${JSON.stringify(request)}\n`);
  }

  /** Returns the reply without its id. */
  async ask(op, fields) {
    this.send(op, fields);
    const { id, ...reply } = await this.read();
    assert.equal(id, this.#id);
    return reply;
  }

  /** Returns the status of the process, and the text that it printed. */
  async ended() {
    const [status] = await this.#ended;
    return [status, await this.#errors];
  }

  end() {
    this.#child.stdin.end();
    return this.ended();
  }

  kill() {
    this.#child.kill();
  }
}

/** Starts a driver, which ends with the test. */
async function startDriver(context) {
  const driver = new Driver();
  context.after(() => driver.kill());
  const ready = { ready: true, language: "node", modes: ["async"], cancels: ["async"] };
  assert.deepEqual(await driver.read(), ready);
  return driver;
}

/** Starts a store with a table `t`, and returns its URL. */
async function startStoreWithTable() {
  const { url } = await startStore();
  const db = await connect(url);
  await db.createTable("t");
  await db.close();
  return url;
}

describe("the driver", () => {
  test("answers each request", async (context) => {
    const url = await startStoreWithTable();
    const driver = await startDriver(context);
    const opening = { url, mode: "async" };
    assert.deepEqual(await driver.ask("open", opening), { ok: {} });
    const object = { table: "t", key: base64("k") };
    const value = base64("v");
    assert.deepEqual(await driver.ask("get", object), { ok: { absent: true } });
    const put = await driver.ask("put", { ...object, value, if: { version: "0" } });
    const { version } = put.ok;
    assert.deepEqual(await driver.ask("get", object), { ok: { version, value } });
    let { error } = await driver.ask("put", { ...object, value, if: "absent" });
    assert.deepEqual([error.code, error.outcome, error.version], [1, "not_done", version]);
    ({ error } = await driver.ask("increment", { ...object, by: "1" }));
    assert.deepEqual([error.code, error.outcome, error.version], [1013, "not_done", version]);
    const deletion = { ...object, if: { version } };
    assert.deepEqual(await driver.ask("delete", deletion), { ok: { version } });
    assert.deepEqual(await driver.ask("delete", object), { ok: { absent: true } });
    ({ error } = await driver.ask("put", { ...object, value, if: "present" }));
    assert.deepEqual([error.code, error.version], [1, "0"]);
    assert.ok("version" in (await driver.ask("put_number", { ...object, number: "40" })).ok);
    assert.equal((await driver.ask("increment", { ...object, by: "2" })).ok.sum, "42");
    const objects = [[base64("a"), value]];
    const [first] = (await driver.ask("put_many", { table: "t", objects })).ok.results;
    assert.ok("version" in first);
    // The client refuses a wrong argument together with the others.
    objects.push([base64(""), value]);
    const { results } = (await driver.ask("put_many", { table: "t", objects })).ok;
    assert.deepEqual(results.map((it) => it.error.outcome), ["not_done", "not_done"]);
    const keys = [base64("a"), base64("x")];
    const read = await driver.ask("get_many", { table: "t", keys });
    assert.deepEqual(read.ok.results, [{ ...first, value }, { absent: true }]);
    assert.equal((await driver.ask("scan", { table: "t" })).ok.objects.length, 2);
    ({ error } = await driver.ask("get", { ...object, table: "none" }));
    assert.equal(error.code, 1020);
    assert.deepEqual(await driver.ask("close"), { ok: {} });
    assert.equal((await driver.ask("get", object)).error.code, 12);
    assert.deepEqual(await driver.ask("open", opening), { ok: {} });
    assert.equal((await driver.ask("increment", { ...object, by: "1" })).ok.sum, "43");
    assert.deepEqual(await driver.end(), [0, ""]);
  });

  test("cancels", async (context) => {
    const url = await startStoreWithTable();
    const driver = await startDriver(context);
    await driver.ask("open", { url, mode: "async" });
    const fields = { table: "t", key: base64("n"), by: "1" };
    const counts = { done: 0, not_done: 0, unknown: 0 };
    for (let count = 0; count < 50; count += 1) {
      const { error } = await driver.ask("increment", { ...fields, cancel: true });
      counts[error?.outcome ?? "done"] += 1;
      if (error?.outcome === "not_done") assert.equal(error.code, 20);
    }
    const total = Number((await driver.ask("increment", fields)).ok.sum) - 1;
    assert.ok(counts.done <= total && total <= counts.done + counts.unknown, `${total}`);
    assert.deepEqual(await driver.end(), [0, ""]);
  });

  test("ends at a request that makes no sense", async (context) => {
    for (const [op, fields, says] of [
      ["get", { table: "t", key: "" }, /the client 7 is not open/],
      ["open", { url: "thunderhead://localhost", mode: "sync" }, /there is no mode sync/],
    ]) {
      const driver = await startDriver(context);
      driver.send(op, fields);
      const [status, errors] = await driver.ended();
      assert.equal(status, 1);
      assert.match(errors, says);
    }
    const driver = await startDriver(context);
    const { error } = await driver.ask("open", { url: "nonsense", mode: "async" });
    assert.equal(error.outcome, "not_done");
    assert.deepEqual(await driver.end(), [0, ""]);
  });
});
