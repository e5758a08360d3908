// Compiles the sources into `dist`: CommonJS, declarations, and an ES module around them.
//
// The ES module only exports the names of the CommonJS module again. So a program that loads the
// package in both ways has one copy of each class, and `instanceof` works.

import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const dist = join(root, "dist");
const require = createRequire(import.meta.url);

rmSync(dist, { recursive: true, force: true });
const compiler = require.resolve("typescript/bin/tsc");
execFileSync(process.execPath, [compiler, "--project", root], { stdio: "inherit" });
const names = Object.keys(require(join(dist, "index.js"))).sort();
const lines = names.map((name) => `export const ${name} = thunderhead.${name};\n`);
writeFileSync(
  join(dist, "index.mjs"),
  `import thunderhead from "./index.js";\n\n${lines.join("")}export default thunderhead;\n`,
);
writeFileSync(
  join(dist, "index.d.mts"),
  'export * from "./index.js";\nimport * as thunderhead from "./index.js";\n' +
    "export default thunderhead;\n",
);
