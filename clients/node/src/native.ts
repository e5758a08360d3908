/** Loads the native part of the package. */

import { existsSync } from "node:fs";
import { join } from "node:path";

/** A connection, as `native/connection.rs` describes it. */
export interface Connection {
  state(): "connecting" | "connected" | "failed" | "closed";
  failure(): { code: number; text: string } | null;
  start(onResults: () => void): number;
  submit(buffer: Uint8Array, length: number): number;
  take(into: Uint8Array): number;
  cancel(number: number): void;
  openScan(tableLow: number, tableHigh: number): number;
  closeScan(scan: number): void;
  setRef(isRef: boolean): void;
  close(): void;
  end(): void;
}

/** The settings that override those of the URL. */
export interface Settings {
  deadline?: number;
  polling?: string;
  inFlight?: number;
}

export interface Native {
  Connection: new (url: string, settings: Settings, onChange: () => void) => Connection;
  latestPanic(): string | null;
  provokePanic(): never;
}

/** Whether this Node runs on musl, the C library of Alpine. */
function isMusl(): boolean {
  const report = process.report?.getReport() as
    | { header?: { glibcVersionRuntime?: string } }
    | undefined;
  return report?.header?.glibcVersionRuntime === undefined;
}

function load(): Native {
  // In the sources, the library is beside this package's folders.
  const local = join(__dirname, "..", "thunderhead.node");
  if (existsSync(local)) return require(local) as Native;
  const { platform, arch } = process;
  const library = platform === "linux" ? (isMusl() ? "-musl" : "-gnu") : "";
  const name = `thunderhead-${platform}-${arch}${library}`;
  try {
    return require(name) as Native;
  } catch (cause) {
    throw new Error(
      `the native part of thunderhead for this platform, ${name}, cannot be loaded; ` +
        "install with optional dependencies (no --omit=optional), " +
        "and check that this platform has such a package",
      { cause },
    );
  }
}

let loaded: Native | undefined;

/** Returns the native part. The first call loads it, so a mere import fails on no platform. */
export function native(): Native {
  loaded ??= load();
  return loaded;
}
