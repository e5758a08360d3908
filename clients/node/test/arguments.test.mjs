// Wrong arguments: a wrong type is a TypeError, a wrong value is an InvalidArgumentError. Neither
// reaches the server, and the client works afterwards.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, InvalidArgumentError, NotDoneError } from "thunderhead";
import { startStore, uniqueName } from "./server.mjs";

describe("wrong arguments", () => {
  let db;
  let table;

  before(async () => {
    db = await connect((await startStore()).url);
    table = await db.table(uniqueName(), { create: true });
  });
  after(async () => {
    // All the mistakes left the client as it was.
    await table?.put("still", "works");
    assert.equal((await table.get("still")).value.toString(), "works");
    await db?.close();
  });

  const strange = [undefined, null, 1, 1n, true, {}, [], Symbol("s"), () => {}, new Date(), NaN];

  const views = [new Uint16Array(2), new ArrayBuffer(2), new DataView(new ArrayBuffer(1))];
  for (const bad of [...strange, ...views]) {
    const name = `${Object.prototype.toString.call(bad)} of the type ${typeof bad}`;

    test(`a key cannot be ${name}`, async () => {
      for (const call of [
        () => table.get(bad),
        () => table.put(bad, "x"),
        () => table.delete(bad),
        () => table.increment(bad),
        () => table.putNumber(bad, 1),
        () => table.getMany([bad]),
        () => table.putMany([[bad, "x"]]),
        () => table.deleteMany(["ok", bad]),
      ]) {
        await assert.rejects(call(), (error) => {
          assert.ok(error instanceof TypeError, String(error));
          assert.match(error.message, /the key must be a string, a Buffer or a Uint8Array, and/);
          return true;
        });
      }
    });

    test(`a value cannot be ${name}`, async () => {
      const expected = { name: "TypeError", message: /the value must be a string, a Buffer/ };
      await assert.rejects(table.put("key", bad), expected);
      await assert.rejects(table.putMany([["key", bad]]), expected);
    });
  }

  test("a number as a value is told from a number to count with", async () => {
    await assert.rejects(table.put("key", 5), /use putNumber/);
  });

  for (const [part, call] of [
    ["empty", () => table.get("")],
    ["empty", () => table.put(Buffer.alloc(0), "x")],
    ["65537", () => table.get("x".repeat(65537))],
    ["65536", () => table.get("é".repeat(32769))],
    ["65537", () => table.get(Buffer.alloc(65537))],
    ["1048577", () => table.put("key", Buffer.alloc(1048577))],
    ["1048577", () => table.put("key", "x".repeat(1048577))],
    ["1048578", () => table.put("key", "é".repeat(524289))],
    ["surrogate", () => table.put("\ud800", "x")],
    ["surrogate", () => table.put("x".repeat(50) + "\udc00", "x")],
    ["surrogate", () => table.put("key", "\udc00\ud800")],
    ["whole number; use incrementFloat", () => table.increment("n", 0.5)],
    ["whole number; use putFloat", () => table.putNumber("n", 0.5)],
    ["whole number", () => table.increment("n", NaN)],
    ["whole number", () => table.increment("n", Infinity)],
    ["use a bigint", () => table.increment("n", 2 ** 53)],
    ["64 bits", () => table.increment("n", 2n ** 63n)],
    ["64 bits", () => table.putNumber("n", -(2n ** 63n) - 1n)],
    ["no object has the version 0", () => table.put("key", "x", { ifVersion: 0n })],
    ["no object has the version", () => table.put("key", "x", { ifVersion: -1n })],
    ["no object has the version", () => table.delete("key", { ifVersion: 2n ** 64n })],
    ["at most one", () => table.put("key", "x", { ifVersion: 1n, ifAbsent: true })],
    ["at most one", () => table.put("key", "x", { ifPresent: true, ifAbsent: true })],
    ["more than 0", () => table.get("key", { deadline: 0 })],
    ["more than 0", () => table.get("key", { deadline: -1 })],
    ["more than 0", () => table.get("key", { deadline: NaN })],
    ["at most a year", () => table.get("key", { deadline: Infinity })],
    ["above 0", () => db.createTable("t", { span: 0 })],
    ["above 0", () => db.table("t", { create: { span: 1.5 } })],
    ["64 bits without", () => db.split("t", -1n)],
    ["64 bits without", () => db.migrate("t", 0n, 2n ** 64n)],
  ]) {
    test(`a wrong value is refused: ${part}, ${call}`, async () => {
      await assert.rejects(call(), (error) => {
        assert.ok(error instanceof InvalidArgumentError && error instanceof NotDoneError, error);
        assert.equal(error.code, "INVALID_ARGUMENT");
        assert.ok(error.message.includes(part), error.message);
        return true;
      });
    });
  }

  for (const [part, call] of [
    ["options must be an object", () => table.get("key", 5)],
    ["options must be an object", () => table.get("key", null)],
    ['"ifVersoin" is unknown', () => table.put("key", "x", { ifVersoin: 1n })],
    ['"ifVersion" is unknown', () => table.get("key", { ifVersion: 1n })],
    ['"ifAbsent" is unknown', () => table.delete("key", { ifAbsent: true })],
    ['"ifVersion" is unknown', () => table.putMany([], { ifVersion: 1n })],
    ["ifVersion must be a bigint", () => table.put("key", "x", { ifVersion: undefined })],
    ["ifVersion must be a bigint", () => table.put("key", "x", { ifVersion: 1 })],
    ["ifAbsent must be true", () => table.put("key", "x", { ifAbsent: 1 })],
    ["deadline must be a number", () => table.get("key", { deadline: "1s" })],
    ["deadline must be a number", () => table.get("key", { deadline: 1n })],
    ["signal must be an AbortSignal", () => table.get("key", { signal: {} })],
    ["signal must be an AbortSignal", () => table.get("key", { signal: new AbortController() })],
    ["keys must be an array", () => table.getMany("key")],
    ["keys must be an array", () => table.getMany(Buffer.from("key"))],
    ["keys must be an array", () => table.deleteMany(undefined)],
    ["objects must be an array", () => table.putMany({ key: "value" })],
    ["pair [key, value]", () => table.putMany(["ab"])],
    ["pair [key, value]", () => table.putMany([["only a key"]])],
    ["whole number or a bigint", () => table.increment("n", "1")],
    ["whole number or a bigint", () => table.increment("n", null)],
    ["of the type number", () => table.incrementFloat("n", 1n)],
    ["of the type number", () => table.putFloat("n", "1")],
    ["of a table must be a string", () => db.table(5)],
    ["of a table must be a string", () => db.dropTable(undefined)],
    ["create must be", () => db.table("t", { create: 1 })],
    ['"spam" is unknown', () => db.table("t", { create: { spam: 1 } })],
    ["span must be a number", () => db.createTable("t", { span: "2" })],
    ["must be a bigint", () => db.split("t", 5)],
    ["must be a bigint", () => db.migrate("t", 0n, "1")],
  ]) {
    test(`a wrong type is refused: ${part}, ${call}`, async () => {
      await assert.rejects(call(), (error) => {
        assert.equal(error.constructor, TypeError, String(error));
        assert.ok(error.message.includes(part), error.message);
        return true;
      });
    });
  }

  test("a method without its table rejects and does not throw", async () => {
    const { get, getNumber, put, putNumber, increment, incrementFloat, getMany } = table;
    const methods = { get, getNumber, put, putNumber, increment, incrementFloat, getMany };
    for (const [name, method] of Object.entries({ ...methods, delete: table.delete })) {
      await assert.rejects(method("key", 1), TypeError, name);
    }
  });

  test("a scan with wrong options throws at once", () => {
    assert.throws(() => table.scan({ deadline: "1s" }), TypeError);
    assert.throws(() => table.scan({ limit: 5 }), TypeError);
  });
});
