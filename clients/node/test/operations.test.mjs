// Operations on objects, against a real server.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import * as thunderhead from "thunderhead";
import { startStore, uniqueName } from "./server.mjs";

const { connect, ConditionFailedError, NotANumberError, OverflowError } = thunderhead;

describe("operations", () => {
  let db;
  let table;

  before(async () => {
    const server = await startStore();
    db = await connect(server.url);
    table = await db.table(uniqueName(), { create: true });
  });
  after(() => db?.close());

  test("a missing key is a value, not an error", async () => {
    assert.equal(await table.get("nothing"), undefined);
    assert.equal(await table.getNumber("nothing"), undefined);
    assert.equal(await table.getFloat("nothing"), undefined);
    assert.equal(await table.delete("nothing"), undefined);
  });

  test("a value comes back as it was written, with a version that grows", async () => {
    const first = await table.put("ada", "analyst");
    assert.equal(typeof first.version, "bigint");
    const second = await table.put("ada", Buffer.from("countess"));
    assert.ok(second.version > first.version);
    const found = await table.get(new TextEncoder().encode("ada"));
    assert.ok(Buffer.isBuffer(found.value));
    assert.deepEqual(found, { value: Buffer.from("countess"), version: second.version });
    assert.deepEqual(await table.delete("ada"), { version: second.version });
    assert.equal(await table.get("ada"), undefined);
  });

  const texts = ["a", "é", "日本", "😀", "x".repeat(39), "x".repeat(41), "é".repeat(40), "ab\0c"];
  for (const text of [...texts, "日本".repeat(4000), "x".repeat(65536)]) {
    test(`text is UTF-8: ${text.length} units, ${text.slice(0, 4)}`, async () => {
      await table.put(text, text);
      const { value } = await table.get(Buffer.from(text));
      assert.equal(value.toString(), text);
    });
  }

  for (const bytes of [0, 1, 31, 32, 33, 4095, 4096, 65535, 65536, 262144, 1048576]) {
    test(`a value may have ${bytes} bytes`, async () => {
      const value = Buffer.alloc(bytes, "thunderhead");
      await table.put("sized", value);
      assert.ok((await table.get("sized")).value.equals(value));
    });
  }

  test("an object lives for its time", async () => {
    assert.equal(await table.ttl("lives"), undefined);
    assert.equal(await table.expire("lives", 1000), undefined);
    const { version } = await table.put("lives", "v", { ttl: 60_000 });
    const left = await table.ttl("lives");
    assert.ok(left > 0 && left <= 60_000, `${left}`);
    await assert.rejects(
      table.expire("lives", 1, { ifVersion: version + 1n }),
      ConditionFailedError,
    );
    const kept = await table.expire("lives", Infinity, { ifVersion: version });
    assert.ok(kept.version > version);
    assert.equal(await table.ttl("lives"), Infinity);
    await table.put("lives", "w", { ttl: 3_600_000, ifPresent: true });
    await table.increment("counted", 2);
    await table.expire("counted", 3_600_000);
    await table.increment("counted", 2);
    for (const key of ["lives", "counted"]) assert.ok((await table.ttl(key)) <= 3_600_000);
    await table.putFloat("lives", 1.5, { ttl: 0.5 });
    while ((await table.get("lives")) !== undefined);
    await table.putNumber("lives", 1, { ttl: 3_600_000, ifAbsent: true });
    assert.equal((await table.getNumber("lives")).value, 1n);
    assert.ok((await table.ttl("lives")) <= 3_600_000);
    await table.putMany(
      [
        ["lives 0", "v"],
        ["lives 1", "v"],
      ],
      { ttl: 60_000 },
    );
    for (const key of ["lives 0", "lives 1"]) assert.ok((await table.ttl(key)) <= 60_000);
  });

  test("a time to live beyond 32 bits is kept", async () => {
    await table.put("long", "v", { ttl: 2 ** 40 });
    const left = await table.ttl("long");
    assert.ok(left > 2 ** 40 - 60_000 && left <= 2 ** 40, `${left}`);
  });

  test("a time to live that is none is refused", async () => {
    for (const ttl of [0, -1, NaN, -Infinity, 2 ** 53]) {
      const refused = { name: "InvalidArgumentError" };
      await assert.rejects(table.put("k", "v", { ttl }), refused);
      await assert.rejects(table.expire("k", ttl), refused);
      await assert.rejects(db.createTable(uniqueName(), { ttl }), refused);
    }
    await assert.rejects(table.put("k", "v", { ttl: "1" }), TypeError);
    await assert.rejects(table.get("k", { ttl: 1 }), TypeError);
    await assert.rejects(table.increment("k", 1, { ttl: 1 }), TypeError);
    await assert.rejects(table.expire("k"), TypeError);
  });

  test("a table keeps its options", async () => {
    const info = async (name) => (await db.tables()).find((it) => it.name === name);
    const [cache, plain, made] = [uniqueName(), uniqueName(), uniqueName()];
    const living = await db.createTable(cache, {
      ttl: 60_000,
      policy: "cache",
      span: 1,
      maxBytes: 2 ** 33,
      reservedBytes: 1000,
    });
    await living.put("k", "v");
    assert.ok((await living.ttl("k")) <= 60_000);
    await living.put("k", "v", { ttl: Infinity });
    assert.equal(await living.ttl("k"), Infinity);
    let { ttl, policy, maxBytes, reservedBytes } = await info(cache);
    assert.deepEqual({ ttl, policy }, { ttl: 60_000, policy: "cache" });
    assert.deepEqual({ maxBytes, reservedBytes }, { maxBytes: 2 ** 33, reservedBytes: 1000 });
    await db.createTable(plain, { ttl: Infinity, policy: "durable" });
    ({ ttl, policy, maxBytes, reservedBytes } = await info(plain));
    assert.deepEqual({ ttl, policy }, { ttl: Infinity, policy: "durable" });
    assert.deepEqual({ maxBytes, reservedBytes }, { maxBytes: Infinity, reservedBytes: 0 });
    const small = await db.createTable(uniqueName(), { maxBytes: 1000 });
    await small.put("k", "v");
    await assert.rejects(small.put("l", "v".repeat(1000)), { number: 1049 });
    await assert.rejects(db.createTable(uniqueName(), { reservedBytes: 5 }), { number: 1050 });
    await assert.rejects(db.createTable(uniqueName(), { maxBytes: 0 }), /at least 1/);
    await db.table(made, { create: { ttl: 5 } });
    assert.equal((await info(made)).ttl, 5);
    await assert.rejects(db.createTable(uniqueName(), { policy: "archive" }), /"durable" or "cache"/);
    await assert.rejects(db.createTable(uniqueName(), { colour: "red" }), TypeError);
  });

  test("every byte is kept, in keys and in values", async () => {
    const all = Uint8Array.from({ length: 256 }, (_, at) => at);
    await table.put(all, all);
    assert.deepEqual([...(await table.get(all)).value], [...all]);
    // A view into a larger buffer is only its own bytes.
    assert.deepEqual(await table.get(all.subarray(0, 255)), undefined);
  });

  test("keys and values are copied before the call returns", async () => {
    const [key, value] = [Buffer.from("mine"), Buffer.from("mine")];
    const written = table.put(key, value);
    key.fill(0);
    value.fill(0);
    await written;
    assert.equal((await table.get("mine")).value.toString(), "mine");
  });

  test("a result does not change when later results arrive", async () => {
    await table.put("kept", "kept for long");
    const { value } = await table.get("kept");
    await table.put("kept", "another value");
    await Promise.all(Array.from({ length: 50 }, () => table.get("kept")));
    assert.equal(value.toString(), "kept for long");
  });

  test("a condition decides whether a write happens", async () => {
    const key = "conditional";
    const error = (version) => (it) => {
      assert.ok(it instanceof ConditionFailedError && it instanceof thunderhead.NotDoneError);
      assert.equal(it.code, "CONDITION_FAILED");
      assert.equal(it.version, version);
      return true;
    };
    await assert.rejects(table.put(key, "x", { ifPresent: true }), error(undefined));
    await assert.rejects(table.put(key, "x", { ifVersion: 7n }), error(undefined));
    const { version } = await table.put(key, "1", { ifAbsent: true });
    await assert.rejects(table.put(key, "x", { ifAbsent: true }), error(version));
    await assert.rejects(table.put(key, "x", { ifVersion: version + 9n }), error(version));
    const next = await table.put(key, "2", { ifVersion: version });
    const last = await table.put(key, "3", { ifPresent: true, ifAbsent: false });
    assert.ok(last.version > next.version);
    await assert.rejects(table.delete(key, { ifVersion: version }), error(last.version));
    assert.equal((await table.get(key)).value.toString(), "3");
    assert.deepEqual(await table.delete(key, { ifVersion: last.version }), last);
    await assert.rejects(table.delete(key, { ifPresent: true }), error(undefined));
  });

  test("whole numbers are exact beyond 2^53", async () => {
    assert.equal((await table.increment("n")).value, 1n);
    assert.equal((await table.increment("n", 41)).value, 42n);
    const large = 2n ** 62n + 1n;
    const { value, version } = await table.increment("n", large);
    assert.equal(value, large + 42n);
    assert.deepEqual(await table.getNumber("n"), { value, version });
    assert.equal((await table.increment("n", -large)).value, 42n);
    await table.putNumber("n", -(2n ** 63n));
    assert.equal((await table.getNumber("n")).value, -(2n ** 63n));
    await table.putNumber("n", 2n ** 63n - 1n);
    await assert.rejects(table.increment("n"), (error) => {
      assert.ok(error instanceof OverflowError);
      return error.code === "OVERFLOW";
    });
    assert.equal((await table.getNumber("n")).value, 2n ** 63n - 1n);
  });

  test("floating-point numbers have methods of their own", async () => {
    assert.equal((await table.incrementFloat("f", 0.5)).value, 0.5);
    assert.equal((await table.incrementFloat("f", 1)).value, 1.5);
    await table.putFloat("f", 1e300, { ifPresent: true });
    assert.equal((await table.getFloat("f")).value, 1e300);
    await table.putFloat("f", 2, { ifAbsent: true }).then(assert.fail, (error) => {
      assert.equal(error.code, "CONDITION_FAILED");
    });
  });

  test("an object of another kind is not a number", async () => {
    const { version } = await table.put("text", "41");
    await assert.rejects(table.increment("text"), (error) => {
      assert.ok(error instanceof NotANumberError && error instanceof thunderhead.NotDoneError);
      assert.deepEqual([error.code, error.version], ["NOT_A_NUMBER", version]);
      return true;
    });
    await assert.rejects(table.getNumber("text"), { code: "NOT_A_NUMBER", version });
    await table.putNumber("whole", 1);
    await assert.rejects(table.incrementFloat("whole", 1), { code: "NOT_A_NUMBER" });
  });

  test("many operations keep the order of their arguments", async () => {
    const count = 1000;
    const keys = Array.from({ length: count }, (_, at) => `many-${at}`);
    const written = await table.putMany(keys.map((key) => [key, `value of ${key}`]));
    assert.equal(written.length, count);
    const found = await table.getMany([...keys, "many-none"]);
    assert.equal(found.pop(), undefined);
    found.forEach(({ value, version }, at) => {
      assert.equal(value.toString(), `value of many-${at}`);
      assert.equal(version, written[at].version);
    });
    const deleted = await table.deleteMany(new Set([...keys, "many-none"]));
    assert.equal(deleted.pop(), undefined);
    assert.deepEqual(deleted, written);
    assert.ok((await table.getMany(keys)).every((it) => it === undefined));
  });

  test("batches may be empty, and come from any iterable", async () => {
    assert.deepEqual(await table.getMany([]), []);
    assert.deepEqual(await table.putMany(new Map()), []);
    assert.deepEqual(await table.deleteMany(new Set()), []);
    await table.putMany(new Map([["m1", "1"], ["m2", Buffer.from("2")]]));
    const keys = function* () {
      yield "m1";
      yield Buffer.from("m2");
    };
    const found = await table.getMany(keys());
    assert.deepEqual(found.map(({ value }) => value.toString()), ["1", "2"]);
  });

  test("a batch that fails in part has each result", async () => {
    const { version } = await table.put("b2", "there");
    const objects = [["b1", "new"], ["b2", "new"], ["b3", "new"]];
    await assert.rejects(table.putMany(objects, { ifAbsent: true }), (error) => {
      assert.ok(error instanceof thunderhead.BatchError);
      assert.ok(error instanceof thunderhead.ThunderheadError);
      assert.equal(error.code, "BATCH_FAILED");
      assert.equal(error.failed, 1);
      const [first, second, third] = error.results;
      assert.equal(typeof first.version, "bigint");
      assert.equal(typeof third.version, "bigint");
      assert.ok(second instanceof ConditionFailedError);
      assert.equal(second.version, version);
      assert.equal(error.cause, second);
      return true;
    });
    assert.equal((await table.get("b3")).value.toString(), "new");
  });

  test("a batch with a wrong argument changes nothing", async () => {
    const objects = Array.from({ length: 300 }, (_, at) => [`w${at}`, at === 299 ? 7 : "x"]);
    await assert.rejects(table.putMany(objects), TypeError);
    assert.equal(await table.get("w0"), undefined);
    assert.equal(await table.get("w298"), undefined);
  });

  test("an iterable that uses the table itself does no harm", async () => {
    const pending = [];
    const keys = function* () {
      for (let at = 0; at < 5; at++) {
        pending.push(table.put(`inner${at}`, String(at)));
        yield `inner${at}`;
      }
      throw new Error("enough");
    };
    await assert.rejects(table.getMany(keys()), /enough/);
    await Promise.all(pending);
    assert.equal((await table.get("inner4")).value.toString(), "4");
  });

  test("thousands of operations at once end, each with its own result", async () => {
    const count = 20_000;
    const results = await Promise.all(
      Array.from({ length: count }, (_, at) => table.increment(`at once ${at % 7}`, at)),
    );
    assert.equal(results.length, count);
    const keys = Array.from({ length: 7 }, (_, at) => `at once ${at}`);
    const sums = await Promise.all(keys.map((key) => table.getNumber(key)));
    const sum = sums.reduce((total, { value }) => total + value, 0n);
    assert.equal(sum, BigInt(count * (count - 1)) / 2n);
  });

  test("large values in many operations at once", async () => {
    const value = Buffer.alloc(300_000, 7);
    await Promise.all(Array.from({ length: 20 }, (_, at) => table.put(`large${at}`, value)));
    const found = await table.getMany(Array.from({ length: 20 }, (_, at) => `large${at}`));
    assert.ok(found.every((it) => it.value.equals(value)));
    await table.deleteMany(Array.from({ length: 20 }, (_, at) => `large${at}`));
  });

  test("values of a batch are right and independent, whatever their sizes", async () => {
    const sizes = [0, 1, 100, 0, 20_000, 5, 16_384, 3_000, 7];
    const pairs = Array.from({ length: 90 }, (_, at) => {
      return [`size${at}`, Buffer.alloc(sizes[at % sizes.length], at)];
    });
    await table.putMany(pairs);
    const keys = pairs.flatMap(([key], at) => (at % 4 === 0 ? [key, `none${at}`] : [key]));
    const expected = new Map(pairs);
    const check = (found) => {
      keys.forEach((key, at) => assert.deepEqual(found[at]?.value, expected.get(key)));
    };
    const first = await table.getMany(keys);
    check(first);
    const second = await table.getMany(keys);
    second.forEach((it) => it?.value.fill(255));
    check(first);
    first[5].value.fill(255);
    first.forEach((it, at) => {
      if (at !== 5) assert.deepEqual(it?.value, expected.get(keys[at]));
    });
    await table.deleteMany(keys);
  });

  test("an error's stack leads to the code that called", async () => {
    const failing = [
      () => table.put("stack", "x", { ifVersion: 99n }), // The cluster refuses it.
      () => table.get("stack", { signal: AbortSignal.abort() }), // It is not begun.
      () => table.get("", {}), // An argument is wrong.
      () => table.getNumber("stack", { deadline: -1 }),
      () => Promise.all([table.get("stack"), table.delete("stack", { ifPresent: true })]),
    ];
    for (const fails of failing) {
      async function userOfTheTable() {
        await fails();
      }
      await assert.rejects(userOfTheTable(), (error) => /userOfTheTable/.test(error.stack));
    }
  });
});
