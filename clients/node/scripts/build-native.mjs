// Builds the native part and puts it beside the sources as `thunderhead.node`.

import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const cargo = (...args) =>
  execFileSync("cargo", args, { cwd: root, stdio: ["ignore", "pipe", "inherit"] });

cargo("build", "--release", "--package", "thunderhead-node");
const metadata = JSON.parse(cargo("metadata", "--format-version", "1", "--no-deps").toString());
const built = join(metadata.target_directory, "release", "libthunderhead_node.so");
const to = join(root, "thunderhead.node");
// A process that has the former file loaded keeps it: a new file takes its name.
rmSync(to, { force: true });
copyFileSync(built, to);
console.log(to);
