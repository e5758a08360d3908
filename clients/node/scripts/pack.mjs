// Packs the package and the package of this platform's native part, as tarballs in `packed`.
//
// The native part of each platform is a package of its own, and the main package names all of them
// as optional dependencies. So npm installs the one that fits, and no script runs then.
//
// This script packs the platform that it runs on. A release runs it on each platform.

import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The platforms that a release has. */
const PLATFORMS = [
  { os: "linux", cpu: "x64", libc: "glibc", suffix: "gnu" },
  { os: "linux", cpu: "arm64", libc: "glibc", suffix: "gnu" },
];

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const packed = process.argv[2] ?? join(root, "packed");
const description = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const { version, license } = description;
const nameOf = ({ os, cpu, suffix }) => `thunderhead-${os}-${cpu}-${suffix}`;
const platform = PLATFORMS.find(({ os, cpu }) => os === process.platform && cpu === process.arch);
if (platform === undefined) throw new Error(`no package for ${process.platform} ${process.arch}`);

rmSync(packed, { recursive: true, force: true });
const stage = (name) => {
  const directory = join(packed, "stage", name);
  mkdirSync(directory, { recursive: true });
  copyFileSync(join(root, "..", "..", "LICENSE"), join(directory, "LICENSE"));
  return directory;
};
const write = (directory, content) =>
  writeFileSync(join(directory, "package.json"), `${JSON.stringify(content, null, 2)}\n`);
const pack = (directory) =>
  execFileSync("npm", ["pack", "--silent", "--pack-destination", packed], { cwd: directory })
    .toString()
    .trim();

const native = stage(nameOf(platform));
copyFileSync(join(root, "thunderhead.node"), join(native, "thunderhead.node"));
execFileSync("strip", ["--strip-unneeded", join(native, "thunderhead.node")]);
write(native, {
  name: nameOf(platform),
  version,
  description: `The native part of thunderhead for ${platform.os} ${platform.cpu}`,
  license,
  main: "thunderhead.node",
  files: ["thunderhead.node"],
  engines: description.engines,
  os: [platform.os],
  cpu: [platform.cpu],
  libc: [platform.libc],
});

const main = stage("thunderhead");
cpSync(join(root, "dist"), join(main, "dist"), { recursive: true });
copyFileSync(join(root, "README.md"), join(main, "README.md"));
const { private: _private, scripts: _scripts, devDependencies: _dev, ...kept } = description;
const optionalDependencies = Object.fromEntries(PLATFORMS.map((it) => [nameOf(it), version]));
write(main, { ...kept, optionalDependencies });

const tarballs = [native, main].map(pack);
rmSync(join(packed, "stage"), { recursive: true });
for (const tarball of tarballs) console.log(join(packed, tarball));
