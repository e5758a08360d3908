// Measures the Node client, and ioredis: docs/testing/costs.md describes its input and output.
//
// It reads requests from its standard input, one line of JSON each, does rounds of operations, and
// writes the time of an operation in each round. A request that makes no sense is a fault of the
// judge: it ends the program with status 1.

import { createInterface } from "node:readline";
import { connect } from "thunderhead";

const keys = Array.from({ length: 100 }, (_, number) => `key${number}`);

/** Lets as many workers as `width` do the operations, each its share one after the other. */
async function together(count, width, operation) {
  const worker = async (key) => {
    for (let left = count / width; left > 0; left--) await operation(key);
  };
  if (width === 1) return worker(keys[0]);
  return Promise.all(keys.slice(0, width).map(worker));
}

/** Does calls of `width` objects, one after the other. */
async function batches(count, width, call) {
  for (let left = count / width; left > 0; left--) await call();
}

/** Connects to Thunderhead, and writes an object under each key. Returns a function for each work. */
async function startThunderhead(request) {
  const db = await connect(request.url);
  const table = await db.table(request.table);
  const value = Buffer.alloc(request.value_bytes, "v");
  const objects = keys.map((key) => [key, value]);
  const get = (key) => table.get(key);
  const put = (key) => table.put(key, value);
  await table.putMany(objects);
  return {
    get: (count, width) => together(count, width, get),
    put: (count, width) => together(count, width, put),
    get_in_flight: (count, width) => together(count, width, get),
    put_in_flight: (count, width) => together(count, width, put),
    get_many: (count, width) => batches(count, width, () => table.getMany(keys)),
    put_many: (count, width) => batches(count, width, () => table.putMany(objects)),
    close: () => db.close(),
  };
}

/** The same with ioredis. It sends calls of one turn together, if it is told so. */
async function startRedis(request) {
  const { Redis } = await import("ioredis");
  const alone = new Redis(request.url);
  const together_ = new Redis(request.url, { enableAutoPipelining: true });
  const value = Buffer.alloc(request.value_bytes, "v");
  const objects = new Map(keys.map((key) => [key, value]));
  await alone.mset(objects);
  return {
    get: (count, width) => together(count, width, (key) => alone.getBuffer(key)),
    put: (count, width) => together(count, width, (key) => alone.set(key, value)),
    get_in_flight: (count, width) => together(count, width, (key) => together_.getBuffer(key)),
    put_in_flight: (count, width) => together(count, width, (key) => together_.set(key, value)),
    get_many: (count, width) => batches(count, width, () => alone.mgetBuffer(keys)),
    put_many: (count, width) => batches(count, width, () => alone.mset(objects)),
    close: () => Promise.all([alone.quit(), together_.quit()]),
  };
}

const starts = { thunderhead: startThunderhead, redis: startRedis };
const started = new Map();

async function replyTo({ mode, store, work, width, count, rounds, ...request }) {
  if (mode !== "async") throw new Error(`there is no mode ${mode}`);
  if (!started.has(store)) {
    try {
      started.set(store, await starts[store](request));
    } catch (error) {
      if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
      const how = "install it with: npm install --no-save ioredis";
      return { missing: `ioredis is not installed; ${how}` };
    }
  }
  const round = started.get(store)[work];
  const ns = [];
  for (let left = rounds; left > 0; left--) {
    const began = process.hrtime.bigint();
    await round(count, width);
    ns.push(Number(process.hrtime.bigint() - began) / count);
  }
  return { ns };
}

const write = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);

write({ ready: true, language: "node", modes: ["async"] });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, ...request } = JSON.parse(line);
  write({ id, ...(await replyTo(request)) });
}
for (const { close } of started.values()) await close();
