/** Reads results from a buffer: see `crates/bindings/src/result.rs` for the bytes. */

import { Failure } from "./failure.js";
import type { Page } from "./engine.js";
import type { Policy } from "./options.js";

/** An object that was found. */
export interface Found {
  /** The object's bytes. The buffer belongs to the caller. */
  value: Buffer;
  /** The object's version. It grows with every change. */
  version: bigint;
}

/** A change that was done. */
export interface Changed {
  /** The version of the object; for a delete, the version that the object had. */
  version: bigint;
}

/** The sum after an increment. */
export interface Sum<N extends bigint | number = bigint> {
  /** The number after the increment. */
  value: N;
  /** The version of the object. */
  version: bigint;
}

/** An object that a scan found. */
export interface Entry {
  /** The object's key. */
  key: Buffer;
  /** The object's bytes. */
  value: Buffer;
  /** The object's version. */
  version: bigint;
  /** The number, if the object was written or counted as one: a `bigint` if it is whole. */
  number: bigint | number | undefined;
}

/** A part of a table that one server has. */
export interface TabletInfo {
  /** The first hash of its keys. */
  firstHash: bigint;
  /** The last hash of its keys. */
  lastHash: bigint;
  /** The id of the master that has it. */
  master: bigint;
}

/** A table. */
export interface TableInfo {
  name: string;
  id: bigint;
  tablets: TabletInfo[];
  /** How long an object lives if its write does not say it, in milliseconds, or `Infinity`. */
  ttl: number;
  /** Its behaviour when memory is full. */
  policy: Policy;
  /** The most bytes of its objects, or `Infinity`. */
  maxBytes: number;
  /** The bytes of which none are evicted for other tables. */
  reservedBytes: number;
}

/** A result of an operation or a question. A number is a time to live. */
export type Result =
  Failure | Found | Changed | Sum<bigint | number> | TableInfo | number | undefined;

const enum Kind {
  Error = 0,
  Value = 1,
  Absent = 2,
  Changed = 3,
  Sum = 4,
  Table = 5,
  Done = 6,
  PageEnd = 7,
  Lives = 8,
}

/** The bytes of the head of a result. */
const HEAD_BYTES = 20;

/** The bytes of the options of a table. */
const OPTIONS_BYTES = 25;

/** Up to this size, a loop copies bytes faster than a call of the runtime does. */
const LOOP_MAX = 32;

export class Reader {
  private at = 0;

  constructor(
    private readonly buffer: Buffer,
    private readonly view: DataView,
    private readonly end: number,
  ) {}

  isAtEnd(): boolean {
    return this.at >= this.end;
  }

  /** Reads a tag. The client's tags have 32 bits. */
  tag(): number {
    const tag = this.view.getUint32(this.at, true);
    this.at += 8;
    return tag;
  }

  count(): number {
    const count = this.view.getUint32(this.at, true);
    this.at += 4;
    return count;
  }

  /** Reads the result of an operation or a question. */
  result(): Result {
    const { view, at } = this;
    const kind: Kind = view.getUint8(at);
    const keyBytes = view.getUint32(at + 4, true);
    const valueBytes = view.getUint32(at + 8, true);
    const start = at + HEAD_BYTES + keyBytes;
    this.at = start + valueBytes;
    switch (kind) {
      case Kind.Value:
        return { value: this.copy(start, valueBytes), version: view.getBigUint64(at + 12, true) };
      case Kind.Absent:
      case Kind.Done:
        return undefined;
      case Kind.Changed:
        return { version: view.getBigUint64(at + 12, true) };
      case Kind.Sum:
        return {
          value: number(view, view.getUint8(at + 1), start) as bigint | number,
          version: view.getBigUint64(at + 12, true),
        };
      case Kind.Table:
        return this.table(at, start, valueBytes);
      case Kind.Error:
        return this.failure(at, start, valueBytes);
      case Kind.Lives:
        return number64(view, start);
      case Kind.PageEnd:
        break;
    }
    throw new Error(`a result is of the unknown kind ${kind}`);
  }

  /** Reads a page of a scan. */
  page(count: number): Page | Failure {
    const entries: Entry[] = [];
    for (let each = 0; each < count; each++) {
      const { view, at } = this;
      const kind: Kind = view.getUint8(at);
      const mark = view.getUint8(at + 1);
      if (kind === Kind.Error) return this.result() as Failure;
      const keyBytes = view.getUint32(at + 4, true);
      const valueBytes = view.getUint32(at + 8, true);
      const start = at + HEAD_BYTES;
      this.at = start + keyBytes + valueBytes;
      if (kind === Kind.PageEnd) return { entries, isLast: mark === 1 };
      entries.push({
        key: this.copy(start, keyBytes),
        value: this.copy(start + keyBytes, valueBytes),
        version: view.getBigUint64(at + 12, true),
        number: number(view, mark, start + keyBytes),
      });
    }
    throw new Error("a page has no end");
  }

  private failure(at: number, start: number, bytes: number): Failure {
    return new Failure(
      this.view.getUint16(at + 2, true),
      this.view.getUint8(at + 1) === 1,
      this.view.getBigUint64(at + 12, true),
      this.buffer.toString("utf8", start, start + bytes),
    );
  }

  private table(at: number, start: number, bytes: number): TableInfo {
    const { view } = this;
    const tablets: TabletInfo[] = [];
    const ttl = number64(view, start) || Infinity;
    const policy = view.getUint8(start + 8) === 1 ? "cache" : "durable";
    const maxBytes = number64(view, start + 9) || Infinity;
    const reservedBytes = number64(view, start + 17);
    for (let each = start + OPTIONS_BYTES; each < start + bytes; each += 24) {
      tablets.push({
        firstHash: view.getBigUint64(each, true),
        lastHash: view.getBigUint64(each + 8, true),
        master: view.getBigUint64(each + 16, true),
      });
    }
    const name = this.buffer.toString("utf8", at + HEAD_BYTES, start);
    const id = view.getBigUint64(at + 12, true);
    return { name, id, tablets, ttl, policy, maxBytes, reservedBytes };
  }

  /** Copies bytes, because the buffer is used again. */
  private copy(start: number, bytes: number): Buffer {
    const { buffer } = this;
    const copy = Buffer.allocUnsafe(bytes);
    if (bytes <= LOOP_MAX) {
      for (let at = 0; at < bytes; at++) copy[at] = buffer[start + at] as number;
    } else {
      buffer.copy(copy, 0, start, start + bytes);
    }
    return copy;
  }
}

/** Reads a number of 64 bits; one beyond 2^53 is `Infinity`. */
function number64(view: DataView, at: number): number {
  const high = view.getUint32(at + 4, true);
  return high > 0x1f_ffff ? Infinity : high * 0x1_0000_0000 + view.getUint32(at, true);
}

/** Reads a number whose mark says whether it is whole. */
function number(view: DataView, mark: number, at: number): bigint | number | undefined {
  if (mark === 1) return view.getBigInt64(at, true);
  if (mark === 2) return view.getFloat64(at, true);
  return undefined;
}
