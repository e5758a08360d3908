// Tables and scans, against a real server.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  connect,
  InvalidArgumentError,
  NoSuchTableError,
  RefusedError,
  Table,
  TableExistsError,
} from "thunderhead";
import { startServer, startStore, uniqueName } from "./server.mjs";

describe("tables", () => {
  let db;

  before(async () => {
    db = await connect((await startStore()).url);
  });
  after(() => db?.close());

  test("a table is created once, found by name, and dropped", async () => {
    const name = uniqueName();
    await assert.rejects(db.table(name), (error) => {
      assert.ok(error instanceof NoSuchTableError);
      assert.equal(error.code, "NO_SUCH_TABLE");
      assert.match(error.message, new RegExp(`"${name}"; create it`));
      return true;
    });
    const created = await db.createTable(name);
    assert.ok(created instanceof Table);
    assert.equal(created.name, name);
    await assert.rejects(db.createTable(name), (error) => {
      assert.ok(error instanceof TableExistsError);
      return error.code === "TABLE_EXISTS";
    });
    assert.equal((await db.table(name)).id, created.id);
    assert.equal((await db.table(name, { create: true })).id, created.id);
    await db.dropTable(name);
    await assert.rejects(db.dropTable(name), { code: "NO_SUCH_TABLE" });
    await assert.rejects(created.get("key"), { code: "NO_SUCH_TABLE" });
    assert.notEqual((await db.table(name, { create: { span: 1 } })).id, created.id);
  });

  test("clients that create a table at the same time get the same one", async () => {
    const name = uniqueName();
    const tables = await Promise.all(
      Array.from({ length: 5 }, () => db.table(name, { create: true })),
    );
    assert.equal(new Set(tables.map((table) => table.id)).size, 1);
  });

  test("all tables are listed with their tablets", async () => {
    const name = uniqueName();
    const { id } = await db.createTable(name);
    const info = (await db.tables()).find((table) => table.name === name);
    assert.equal(info.id, id);
    assert.equal(info.tablets.length, 1);
    assert.deepEqual(
      [info.tablets[0].firstHash, info.tablets[0].lastHash],
      [0n, 2n ** 64n - 1n],
    );
    assert.equal(typeof info.tablets[0].master, "bigint");
  });

  test("a tablet is split", async () => {
    const name = uniqueName();
    await db.createTable(name);
    const { tablets } = await db.split(name, 2n ** 63n);
    assert.deepEqual(tablets.map(({ firstHash }) => firstHash), [0n, 2n ** 63n]);
    await assert.rejects(db.split(name, 0n), InvalidArgumentError);
    await assert.rejects(db.split(uniqueName(), 5n), NoSuchTableError);
    await assert.rejects(db.migrate(name, 5n, tablets[0].master), InvalidArgumentError);
    await assert.rejects(db.migrate(name, 0n, 999n), { name: /Error/, code: /./ });
  });

  test("names of tables are text of 1 to 255 bytes", async () => {
    const name = `日本 ${uniqueName()}`;
    assert.equal((await db.createTable(name)).name, name);
    for (const bad of ["", "a\nb", "x".repeat(256), "é".repeat(128), "\ud800"]) {
      await assert.rejects(db.createTable(bad), InvalidArgumentError);
      await assert.rejects(db.table(bad), InvalidArgumentError);
      await assert.rejects(db.dropTable(bad), InvalidArgumentError);
    }
  });

  test("a scan returns every object once, over many pages", async () => {
    const table = await db.table(uniqueName(), { create: true });
    const expected = new Map();
    for (let at = 0; at < 3000; at++) expected.set(`key ${at}`, `value ${at}`.padEnd(100));
    await table.putMany(expected);
    await table.putNumber("whole", 2n ** 60n);
    await table.putFloat("float", 0.5);
    await db.split(table.name, 2n ** 62n);

    let pages = 0;
    for await (const page of table.scan().pages()) {
      pages += 1;
      assert.ok(page.length > 0);
    }
    assert.ok(pages > 3, `${pages} pages`);

    const numbers = [];
    for await (const { key, value, version, number } of table.scan()) {
      assert.equal(typeof version, "bigint");
      if (number === undefined) {
        assert.equal(value.toString(), expected.get(key.toString()));
        assert.ok(expected.delete(key.toString()), `${key} came twice`);
      } else {
        numbers.push([key.toString(), number]);
      }
    }
    assert.equal(expected.size, 0);
    assert.deepEqual(numbers.sort(), [["float", 0.5], ["whole", 2n ** 60n]]);
  });

  test("a scan may be left early, repeated, and started twice", async () => {
    const table = await db.table(uniqueName(), { create: true });
    await table.putMany(Array.from({ length: 10 }, (_, at) => [`${at}`, "x"]));
    const scan = table.scan();
    for await (const _ of scan) break;
    const count = async () => {
      let objects = 0;
      for await (const _ of scan) objects += 1;
      return objects;
    };
    assert.deepEqual(await Promise.all([count(), count()]), [10, 10]);
    const iterator = scan[Symbol.asyncIterator]();
    const all = await Promise.all(Array.from({ length: 12 }, () => iterator.next()));
    assert.equal(all.filter(({ done }) => !done).length, 10);
    await iterator.return();
    assert.equal((await iterator.next()).done, true);
  });

  test("a scan of a dropped table fails loudly", async () => {
    const table = await db.table(uniqueName(), { create: true });
    await table.putMany(Array.from({ length: 3000 }, (_, at) => [`${at}`, "x".repeat(100)]));
    const seen = [];
    await assert.rejects(async () => {
      for await (const { key } of table.scan()) {
        if (seen.length === 0) await db.dropTable(table.name);
        seen.push(key);
      }
    }, NoSuchTableError);
    assert.ok(seen.length < 3000);
  });

  test("an empty table has an empty scan", async () => {
    const table = await db.table(uniqueName(), { create: true });
    for await (const _ of table.scan()) assert.fail("there is no object");
  });
});

test("a tablet moves to another master while the client works", async () => {
  const server = await startServer("--ephemeral", "--shards", "2");
  const db = await connect(server.url);
  const table = await db.createTable("moves", { span: 2 });
  await table.putMany(Array.from({ length: 100 }, (_, at) => [`${at}`, `${at}`]));
  const [from, to] = (await db.tables())[0].tablets;
  assert.notEqual(from.master, to.master);
  const moved = await db.migrate("moves", from.firstHash, to.master);
  assert.ok(moved.tablets.every(({ master }) => master === to.master));
  const found = await table.getMany(Array.from({ length: 100 }, (_, at) => `${at}`));
  assert.ok(found.every(({ value }, at) => value.toString() === `${at}`));
  await assert.rejects(db.migrate("moves", from.firstHash, 12345n), (error) => {
    assert.ok(error instanceof RefusedError || error instanceof InvalidArgumentError, error);
    return true;
  });
  await db.close();
});
