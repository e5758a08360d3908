// Memory stays flat over many operations, with errors, cancelled operations and abandoned scans.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { connect } from "thunderhead";
import { startStore } from "./server.mjs";

const MIB = 1024 * 1024;

test("memory is flat over many operations of every kind", async () => {
  assert.equal(typeof globalThis.gc, "function", "run the tests with --expose-gc");
  const { url } = await startStore();
  const db = await connect(url);
  const table = await db.table("t", { create: true });
  await table.putMany(Array.from({ length: 500 }, (_, at) => [`${at}`, "x".repeat(200)]));
  const long = new AbortController();

  const work = async (worker) => {
    for (let at = 0; at < 100; at++) {
      const key = `${(worker + at) % 500}`;
      await table.put(key, "x".repeat(3 * at));
      await table.get(key, { signal: long.signal });
      await table.put(key, "x", { ifVersion: 1n << 60n }).then(assert.fail, () => {});
      await table.get(5).then(assert.fail, () => {});
      await table.getMany([key, "none", key]);
      const controller = new AbortController();
      const cancelled = table.increment(`n${worker}`, 1, { signal: controller.signal });
      if (at % 2 === 1) await setImmediate();
      controller.abort();
      await cancelled.catch(() => {});
      if (at % 50 === 0) await table.scan()[Symbol.asyncIterator]().next();
      if (at % 100 === 0) await table.put(key, Buffer.alloc(200_000));
    }
  };
  const round = async () => {
    await Promise.all(Array.from({ length: 20 }, (_, worker) => work(worker)));
    for (let times = 0; times < 3; times++) {
      globalThis.gc();
      await setImmediate();
    }
    const { rss, heapUsed, external } = process.memoryUsage();
    return { rss, heapUsed, external };
  };
  for (let warm = 0; warm < 3; warm++) await round();
  const before = await round();
  let after;
  for (let again = 0; again < 4; again++) after = await round();
  for (const [name, most] of [["heapUsed", 2], ["external", 2], ["rss", 24]]) {
    const growth = (after[name] - before[name]) / MIB;
    assert.ok(growth < most, `${name} grew by ${growth.toFixed(1)} MiB`);
  }
  await db.close();
});

test("clients that come and go leave nothing behind", async () => {
  const { url } = await startStore();
  const descriptors = async () => (await import("node:fs")).readdirSync("/proc/self/fd").length;
  const once = async () => {
    const db = await connect(url);
    const table = await db.table("t", { create: true });
    await table.put("key", "value");
    await db.close();
  };
  for (let warm = 0; warm < 3; warm++) await once();
  const before = await descriptors();
  for (let again = 0; again < 20; again++) await once();
  // The thread of a closed client ends by itself, soon.
  while ((await descriptors()) > before) await setImmediate();
});
