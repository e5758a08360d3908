// The engine with a native part that the test plays: batches, cancelling, and bugs of the native
// part.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

const require = createRequire(import.meta.url);
const { Engine } = require("../dist/engine.js");
const { Table } = require("../dist/table.js");
const errors = require("../dist/errors.js");

/** Plays the native part. It keeps the submissions, and the test decides their results. */
class FakeConnection {
  submissions = [];
  cancelled = [];
  refs = [];
  count = 0;
  hasEnded = false;
  #ready = [];

  start(onResults) {
    this.onResults = onResults;
    return 10_000;
  }

  submit(buffer, length) {
    const batch = decode(Buffer.from(buffer.subarray(0, length)));
    this.submissions.push(batch);
    const first = this.count;
    this.count += batch.length;
    return first;
  }

  take(into) {
    const [bytes] = this.#ready;
    if (bytes === undefined) return 0;
    if (bytes.length > into.length) return -bytes.length;
    this.#ready.shift();
    into.set(bytes);
    return bytes.length;
  }

  cancel(number) {
    this.cancelled.push(number);
  }

  setRef(isRef) {
    this.refs.push(isRef);
  }

  end() {
    this.hasEnded = true;
  }

  /** Hands completions over, each a tag and its results. */
  complete(...completions) {
    const bytes = completions.map(([tag, ...results]) => completion(tag, results));
    this.#ready.push(Buffer.concat(bytes));
    this.onResults();
  }
}

function decode(bytes) {
  const batch = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes.readUInt32LE(at);
    const deadline = Number(bytes.readBigUInt64LE(at + 8)) / 1e6;
    const count = bytes.readUInt32LE(at + 20);
    assert.equal(bytes[at + 16], 0, "these tests make operations only");
    at += 24;
    const keys = [];
    for (let each = 0; each < count; each++) {
      const [key, value] = [bytes.readUInt32LE(at + 4), bytes.readUInt32LE(at + 8)];
      assert.equal(bytes.readBigUInt64LE(at + 12), 0x1_0000_0002n);
      keys.push(bytes.toString("utf8", at + 28, at + 28 + key));
      at += 28 + key + value;
    }
    batch.push({ tag, deadline, keys });
  }
  return batch;
}

function completion(tag, results) {
  const head = Buffer.alloc(12);
  head.writeUInt32LE(tag);
  head.writeUInt32LE(results.length, 8);
  return Buffer.concat([head, ...results]);
}

function result({ kind, mark = 0, code = 0, version = 0n, value = "" }) {
  const head = Buffer.alloc(20);
  head[0] = kind;
  head[1] = mark;
  head.writeUInt16LE(code, 2);
  head.writeUInt32LE(Buffer.byteLength(value), 8);
  head.writeBigUInt64LE(version, 12);
  return Buffer.concat([head, Buffer.from(value)]);
}

const absent = result({ kind: 2 });
const found = (value) => result({ kind: 1, version: 7n, value });

function setup() {
  const connection = new FakeConnection();
  const engine = new Engine();
  engine.start(connection);
  const table = Table.of(engine, "t", 0x1_0000_0002n);
  return { connection, engine, table };
}

/** Waits for the ticks after this turn, in which requests are submitted. */
const tick = () => new Promise((resolve) => process.nextTick(() => process.nextTick(resolve)));

test("requests that begin in one turn are one submission", async () => {
  const { connection, table } = setup();
  const first = [table.get("a"), table.put("b", "x"), table.getMany(["c", "d"])];
  assert.deepEqual(connection.submissions, [], "nothing is submitted during the turn");
  await tick();
  assert.equal(connection.submissions.length, 1);
  const [batch] = connection.submissions;
  assert.deepEqual(batch.map(({ keys }) => keys), [["a"], ["b"], ["c", "d"]]);
  assert.deepEqual(batch.map(({ deadline }) => deadline), [10_000, 10_000, 10_000]);
  const [a, b, c] = batch.map(({ tag }) => tag);
  // The continuations of all results make requests that are one submission again.
  const second = first.slice(0, 2).map((it) => it.then(() => table.get("e")));
  connection.complete([b, result({ kind: 3, version: 9n })], [c, found("C"), absent], [a, absent]);
  await tick();
  assert.equal(await first[0], undefined);
  assert.deepEqual(await first[1], { version: 9n });
  assert.deepEqual(await first[2], [{ value: Buffer.from("C"), version: 7n }, undefined]);
  await tick();
  assert.deepEqual(connection.submissions[1].map(({ keys }) => keys), [["e"], ["e"]]);
  connection.complete(...connection.submissions[1].map(({ tag }) => [tag, absent]));
  await Promise.all(second);
});

test("a long turn is several submissions, and a long batch several requests", async () => {
  const { connection, table } = setup();
  const value = Buffer.alloc(100_000);
  const puts = Array.from({ length: 5 }, (_, at) => table.put(`${at}`, value));
  assert.deepEqual(connection.submissions.map((batch) => batch.length), [3]);
  const keys = Array.from({ length: 300 }, (_, at) => `${at}`);
  const many = table.getMany(keys);
  await tick();
  const requests = connection.submissions.flat();
  assert.deepEqual(requests.map(({ keys }) => keys.length), [1, 1, 1, 1, 1, 128, 128, 44]);
  const results = ({ keys }) => keys.map((key) => (keys.length > 1 ? found(key) : absent));
  connection.complete(...requests.reverse().map((it) => [it.tag, ...results(it)]));
  await Promise.all(puts);
  assert.deepEqual((await many).map((it) => it.value.toString()), keys);
});

test("results that are larger than the buffer are taken too", async () => {
  const { connection, table } = setup();
  const read = table.get("large");
  await tick();
  connection.complete([connection.submissions[0][0].tag, found("x".repeat(1_000_000))]);
  assert.equal((await read).value.length, 1_000_000);
});

test("an aborted request leaves the batch, or is cancelled by its number", async () => {
  const { connection, table } = setup();
  const controller = new AbortController();
  const { signal } = controller;
  const kept = [table.get("a"), table.get("b", { deadline: 0.5 })];
  const aborted = [table.get("x", { signal }), table.putMany([["y", "y"]], { signal })];
  kept.push(table.get("c"));
  controller.abort();
  const settled = Promise.allSettled(aborted);
  await tick();
  assert.deepEqual(connection.submissions[0].map(({ keys }) => keys), [["a"], ["b"], ["c"]]);
  const deadlines = connection.submissions[0].map(({ deadline }) => deadline);
  assert.deepEqual(deadlines, [10_000, 0.5, 10_000]);
  assert.deepEqual(connection.cancelled, []);
  const [one, batch] = (await settled).map(({ reason }) => reason);
  assert.ok(one instanceof errors.CancelledError);
  assert.ok(batch.results[0] instanceof errors.CancelledError);

  const later = new AbortController();
  const sent = [table.get("d"), table.put("e", "x", { signal: later.signal })];
  await tick();
  later.abort("late");
  assert.deepEqual(connection.cancelled, [4]);
  const tags = connection.submissions.flat().map(({ tag }) => tag);
  const unknown = result({ kind: 0, mark: 1, code: 8, value: "may have been done" });
  connection.complete(...tags.slice(0, 4).map((tag) => [tag, absent]), [tags[4], unknown]);
  await Promise.all(kept);
  await sent[0];
  await assert.rejects(sent[1], { name: "OutcomeUnknownError", cause: "late" });
});

test("every failure has a class, a stable code and a sentence", async () => {
  const { connection, table } = setup();
  const cases = [
    [1, "ConditionFailedError", "CONDITION_FAILED"],
    [2, "NoSuchTableError", "NO_SUCH_TABLE"],
    ...[4, 5, 6, 7, 9, 13, 14, 15, 16, 17, 18, 19].map((it) => [it, "TimedOutError", "TIMED_OUT"]),
    [10, "InvalidArgumentError", "INVALID_ARGUMENT"],
    [11, "SystemError", "SYSTEM"],
    [12, "ClosedError", "CLOSED"],
    [20, "AbortError", "ABORT_ERR"],
    [21, "ClosedError", "CLOSED"],
    [1001, "RefusedError", "REFUSED"],
    [1010, "InvalidArgumentError", "INVALID_ARGUMENT"],
    [1013, "NotANumberError", "NOT_A_NUMBER"],
    [1014, "OverflowError", "OVERFLOW"],
    [1019, "TableExistsError", "TABLE_EXISTS"],
    [1020, "NoSuchTableError", "NO_SUCH_TABLE"],
    [1999, "RefusedError", "REFUSED"],
  ];
  for (const [number, name, code] of cases) {
    const read = table.get("key");
    await tick();
    const [{ tag }] = connection.submissions.at(-1);
    connection.complete([tag, result({ kind: 0, code: number, value: "the text of the core" })]);
    await assert.rejects(read, (error) => {
      assert.deepEqual([error.name, error.code, error.number], [name, code, number]);
      assert.ok(error instanceof errors.NotDoneError);
      assert.ok(error.message.length > 15);
      return true;
    });
  }
  for (const number of [3, 8]) {
    const read = table.get("key");
    await tick();
    const [{ tag }] = connection.submissions.at(-1);
    connection.complete([tag, result({ kind: 0, mark: 1, code: number, value: "a text" })]);
    await assert.rejects(read, { name: "OutcomeUnknownError", code: "OUTCOME_UNKNOWN", number });
  }
});

test("a native part that throws makes internal errors, and the client ends", async () => {
  const isInternal = (error) => {
    assert.ok(error instanceof errors.InternalError && error instanceof errors.OutcomeUnknownError);
    assert.match(error.message, /a bug in the client: .*broken.*please report this/);
    return error.code === "INTERNAL";
  };
  {
    const { connection, table } = setup();
    connection.submit = () => {
      throw new Error("broken");
    };
    await assert.rejects(table.put("a", "x"), isInternal);
  }
  for (const take of [() => { throw new Error("broken"); }, (into) => into.fill(0xff).length]) {
    const { connection, table } = setup();
    const pending = [table.put("a", "x"), table.getMany(["b"])];
    await tick();
    connection.take = take;
    connection.onResults();
    const [put, batch] = (await Promise.allSettled(pending)).map(({ reason }) => reason);
    assert.ok(put instanceof errors.InternalError, put);
    assert.ok(batch.results[0] instanceof errors.InternalError);
    assert.equal(connection.hasEnded, true);
    await assert.rejects(table.get("a"), { code: "CLOSED" });
  }
});

test("pending requests keep the process alive, an idle client does not after unref", async () => {
  const { connection, engine, table } = setup();
  engine.setRef(false);
  const reads = [table.get("a"), table.get("b")];
  await tick();
  const [a, b] = connection.submissions[0].map(({ tag }) => tag);
  connection.complete([a, absent]);
  assert.deepEqual(connection.refs, [false, true]);
  connection.complete([b, absent]);
  assert.deepEqual(connection.refs, [false, true, false]);
  await Promise.all(reads);
  engine.setRef(true);
  assert.deepEqual(connection.refs, [false, true, false, true]);
});
