// The examples, which the documentation shows, do as they say.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { freeAddress, startServer, startStore } from "./server.mjs";

const run = promisify(execFile);

describe("examples", () => {
  let directory;

  before(() => {
    directory = mkdtempSync(join(tmpdir(), "thunderhead-node-"));
    cpSync(fileURLToPath(new URL("../../../examples/node", import.meta.url)), directory, {
      recursive: true,
    });
    mkdirSync(join(directory, "node_modules"));
    const client = fileURLToPath(new URL("..", import.meta.url));
    symlinkSync(client, join(directory, "node_modules", "thunderhead"));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  const example = async (name, ...args) => {
    const { stdout, stderr } = await run(process.execPath, [join(directory, name), ...args]);
    assert.equal(stderr, "");
    return stdout.trim().split("\n");
  };

  test("hello", async () => {
    const lines = await example("hello.mjs", (await startStore()).url);
    const first = ["ada: analyst", "missing: undefined", "ada has changed meanwhile"];
    assert.deepEqual(lines.slice(0, 3), first);
    assert.deepEqual(lines.slice(3).sort(), ["ada: countess", "grace: admiral", "joan: engineer"]);
  });

  test("queue", async () => {
    const { url } = await startStore();
    assert.equal((await example("queue.mjs", url)).at(-1), "done: 20 jobs");
    assert.equal((await example("queue.mjs", url)).at(-1), "done: 0 jobs");
  });

  test("load", async () => {
    const lines = await example("load.mjs", (await startStore()).url, "20000");
    assert.equal(lines.at(-2), "100 %");
    assert.equal(lines.at(-1), "loaded 20000 objects");
  });

  test("counter, with a server that is killed and restarted", async () => {
    const address = await freeAddress();
    const data = join(directory, "data");
    const start = () => startServer("--listen", address, "--data", data, "--memory", "64MiB");
    let server = await start();
    const counter = spawn(
      process.execPath,
      [join(directory, "counter.mjs"), server.url, "20000"],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    const lines = [];
    for await (const line of createInterface({ input: counter.stdout })) {
      lines.push(line);
      if (line === "1000 visits" || line === "8000 visits") {
        await server.stop("SIGKILL");
        server = await start();
      }
    }
    assert.equal(lines.at(-1), "counted 20000 of 20000");
    await server.stop();
  });
});
