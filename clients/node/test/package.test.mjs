// The tarballs install in an empty directory, without a script and without the network.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startStore } from "./server.mjs";

const run = promisify(execFile);

test("a program uses the packages that were installed from their tarballs", async () => {
  const { url } = await startStore();
  const directory = mkdtempSync(join(tmpdir(), "thunderhead-node-"));
  try {
    const script = fileURLToPath(new URL("../scripts/pack.mjs", import.meta.url));
    const { stdout } = await run(process.execPath, [script, join(directory, "packed")]);
    const tarballs = stdout.trim().split("\n");
    assert.equal(tarballs.length, 2);
    const program = join(directory, "program");
    await run("mkdir", [program]);
    writeFileSync(join(program, "package.json"), '{ "private": true }');
    // The package of another platform is not there, which an optional dependency may be.
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", ...tarballs], {
      cwd: program,
    });
    const installed = JSON.parse(
      readFileSync(join(program, "node_modules/thunderhead/package.json"), "utf8"),
    );
    assert.equal(installed.scripts, undefined);
    assert.equal(installed.dependencies, undefined);
    const hello = `
      const db = await connect(process.argv[2]);
      const greetings = await db.table("greetings", { create: true });
      await greetings.put("hello", "world");
      console.log("hello", (await greetings.get("hello")).value.toString());
      await db.close();`;
    writeFileSync(join(program, "a.mjs"), `import { connect } from "thunderhead"; ${hello}`);
    writeFileSync(
      join(program, "b.cjs"),
      `const { connect } = require("thunderhead"); (async () => { ${hello} })();`,
    );
    for (const file of ["a.mjs", "b.cjs"]) {
      const { stdout, stderr } = await run(process.execPath, [file, url], { cwd: program });
      assert.deepEqual([stdout, stderr], ["hello world\n", ""]);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
