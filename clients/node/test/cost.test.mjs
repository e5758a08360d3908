// The cost program answers each request that docs/testing/costs.md names.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect } from "thunderhead";
import { startStore } from "./server.mjs";

const works = ["get", "put", "get_many", "put_many", "get_in_flight", "put_in_flight"];

test("the cost program measures each work", async (context) => {
  const { url } = await startStore();
  const db = await connect(url);
  context.after(() => db.close());
  await db.createTable("cost");
  const child = spawn(process.execPath, [fileURLToPath(new URL("cost.mjs", import.meta.url))]);
  context.after(() => child.kill());
  const common = { mode: "async", store: "thunderhead", url, table: "cost" };
  const requests = works.map((work, id) => {
    const width = work.includes("_") ? 100 : 1;
    return { id, work, width, count: 200, rounds: 2, value_bytes: 50, ...common };
  });
  child.stdin.end(requests.map((request) => `${JSON.stringify(request)}\n`).join(""));
  const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
  assert.equal(errors, "");
  const [ready, ...replies] = output.trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(ready, { ready: true, language: "node", modes: ["async"] });
  assert.deepEqual(replies.map(({ id }) => id), requests.map(({ id }) => id));
  for (const { ns } of replies) assert.ok(ns.length === 2 && Math.min(...ns) > 0);
});
