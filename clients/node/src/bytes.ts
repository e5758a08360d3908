/** Writes requests into a buffer that is used again and again, and checks arguments on the way. */

import { InvalidArgumentError } from "./errors.js";

/** Bytes, or text that is encoded as UTF-8. */
export type Bytes = string | Uint8Array;

/** The longest key and the longest value that a server accepts. */
const KEY_BYTES_MAX = 64 * 1024;
const VALUE_BYTES_MAX = 1024 * 1024;

/** The size of an empty buffer, and the size above which it is not kept. */
const START_BYTES = 64 * 1024;
const KEPT_BYTES_MAX = 1024 * 1024;

/** Up to this length, a loop encodes text faster than a call of Node's encoder. */
const LOOP_MAX = 40;

/** The bytes of the head of a submission, and of the head of an operation. */
const HEAD_BYTES = 24;
const OPERATION_BYTES = 28;

export const enum Kind {
  Read = 0,
  Write = 1,
  Delete = 2,
  Increment = 3,
  WriteNumber = 4,
  SetExpiry = 5,
  ReadExpiry = 6,
}

/** Whether the value of such an operation is a number to store or to add. */
export function hasNumber(kind: Kind): boolean {
  return kind === Kind.Increment || kind === Kind.WriteNumber;
}

export const enum Class {
  Operations = 0,
  Question = 1,
  Page = 2,
}

export const enum Question {
  CreateTable = 0,
  DropTable = 1,
  Table = 2,
  Tables = 3,
  Split = 4,
  Migrate = 5,
}

/** An operation without its table, key and value. */
export interface Action {
  kind: Kind;
  condition: number;
  isFloat: boolean;
  /** The version of the condition. */
  version: bigint;
}

/** The options of a new table, as they cross the border. */
export interface NewTable {
  /** In milliseconds; 0 for ever. */
  ttl: number;
  isCache: boolean;
  /** 0 for no limit. */
  maxBytes: number;
  reservedBytes: number;
}

/** Describes a value for a message. */
export function describe(value: unknown): string {
  if (value === null) return "null";
  if (typeof value === "object") {
    const name = (value as { constructor?: { name?: unknown } }).constructor?.name;
    return typeof name === "string" && name !== "" ? `an object of ${name}` : "an object";
  }
  if (typeof value === "string") return `the string ${JSON.stringify(value.slice(0, 40))}`;
  if (typeof value === "undefined") return "undefined";
  if (typeof value === "bigint") return `the bigint ${value}`;
  if (typeof value === "function") return "a function";
  return `the ${typeof value} ${String(value)}`;
}

function wrongBytes(part: "key" | "value", value: unknown): TypeError {
  const advice =
    part === "value" && (typeof value === "number" || typeof value === "bigint")
      ? "; use putNumber for a number to count with, or make it a string"
      : "";
  return new TypeError(
    `the ${part} must be a string, a Buffer or a Uint8Array, and is ${describe(value)}${advice}`,
  );
}

/** The requests that wait for the end of the turn. */
export class Outgoing {
  buffer: Buffer;
  private view: DataView;
  /** How many bytes are used. */
  used = 0;

  constructor() {
    this.buffer = Buffer.allocUnsafeSlow(START_BYTES);
    this.view = viewOf(this.buffer);
  }

  /** Makes room for so many bytes more. */
  private reserve(bytes: number): void {
    const needed = this.used + bytes;
    if (needed <= this.buffer.length) return;
    const buffer = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.buffer.length));
    this.buffer.copy(buffer, 0, 0, this.used);
    this.buffer = buffer;
    this.view = viewOf(buffer);
  }

  /** Empties the buffer. */
  clear(): void {
    this.used = 0;
    if (this.buffer.length > KEPT_BYTES_MAX) {
      this.buffer = Buffer.allocUnsafeSlow(START_BYTES);
      this.view = viewOf(this.buffer);
    }
  }

  /** Removes the bytes from `start` to `end`. */
  remove(start: number, end: number): void {
    this.buffer.copyWithin(start, end, this.used);
    this.used -= end - start;
  }

  /** Writes the head of a submission. The deadline is in milliseconds. */
  head(tag: number, deadline: number, type: Class, count: number): void {
    this.reserve(HEAD_BYTES);
    const { view, used } = this;
    view.setUint32(used, tag, true);
    view.setUint32(used + 4, 0, true);
    // Both parts of a time in nanoseconds are exact: a deadline is at most a year.
    const nanoseconds = Math.max(1, Math.round(deadline * 1e6));
    view.setUint32(used + 8, nanoseconds % 0x1_0000_0000, true);
    view.setUint32(used + 12, Math.floor(nanoseconds / 0x1_0000_0000), true);
    view.setUint32(used + 16, type, true);
    view.setUint32(used + 20, count, true);
    this.used = used + HEAD_BYTES;
  }

  /**
   * Writes an operation. A `bigint` or `number` as the value is a number to store or to add. The
   * time to live is in milliseconds, or `Infinity`.
   */
  operation(
    action: Action,
    tableLow: number,
    tableHigh: number,
    key: Bytes,
    value: Bytes | bigint | number | undefined,
    ttl: number | undefined,
  ): void {
    this.reserve(OPERATION_BYTES + 8);
    const start = this.used;
    this.used = start + OPERATION_BYTES;
    if (ttl !== undefined) this.number(ttl);
    const keyBytes = this.bytes("key", key, KEY_BYTES_MAX);
    if (keyBytes === 0) {
      throw new InvalidArgumentError("the key is empty; a key has at least one byte");
    }
    let valueBytes = 0;
    if (hasNumber(action.kind)) {
      valueBytes = 8;
      this.reserve(8);
      if (action.isFloat) this.view.setFloat64(this.used, value as number, true);
      else this.view.setBigInt64(this.used, value as bigint, true);
      this.used += 8;
    } else if (action.kind === Kind.Write) {
      valueBytes = this.bytes("value", value as Bytes, VALUE_BYTES_MAX);
    }
    // The buffer may have moved.
    const view = this.view;
    view.setUint32(
      start,
      action.kind |
        (action.condition << 8) |
        ((action.isFloat ? 1 : 0) << 16) |
        ((ttl === undefined ? 0 : 1) << 24),
      true,
    );
    view.setUint32(start + 4, keyBytes, true);
    view.setUint32(start + 8, valueBytes, true);
    view.setUint32(start + 12, tableLow, true);
    view.setUint32(start + 16, tableHigh, true);
    if (action.version === 0n) {
      view.setUint32(start + 20, 0, true);
      view.setUint32(start + 24, 0, true);
    } else {
      view.setBigUint64(start + 20, action.version, true);
    }
  }

  /** Writes a number of 64 bits: the highest one for `Infinity`. */
  private number(value: number): void {
    const { view, used } = this;
    if (value === Infinity) {
      view.setUint32(used, 0xffff_ffff, true);
      view.setUint32(used + 4, 0xffff_ffff, true);
    } else {
      view.setUint32(used, value % 0x1_0000_0000, true);
      view.setUint32(used + 4, Math.floor(value / 0x1_0000_0000), true);
    }
    this.used = used + 8;
  }

  /** Writes a key or a value and returns how many bytes it has. */
  private bytes(part: "key" | "value", value: Bytes, most: number): number {
    const start = this.used;
    if (typeof value === "string") {
      const { length } = value;
      // A unit of a string is at least one byte.
      if (length > most) throw tooLong(part, length, most);
      // And at most three.
      this.reserve(3 * length);
      const { buffer } = this;
      let at = 0;
      if (length <= LOOP_MAX) {
        for (; at < length; at++) {
          const unit = value.charCodeAt(at);
          if (unit > 0x7f) break;
          buffer[start + at] = unit;
        }
        if (at === length) {
          this.used = start + length;
          return length;
        }
      }
      const count = buffer.write(value, start, "utf8");
      // Two different strings must never become the same key.
      if (count !== length && /\p{Surrogate}/u.test(value)) {
        throw new InvalidArgumentError(
          `the ${part} has half of a surrogate pair, which UTF-8 cannot encode; ` +
            "use a Buffer for bytes that are not text",
        );
      }
      if (count > most) throw tooLong(part, count, most);
      this.used = start + count;
      return count;
    }
    if (!(value instanceof Uint8Array)) {
      // Arrays of another realm, as in tests with `vm`, are as good.
      if (Object.prototype.toString.call(value) !== "[object Uint8Array]") {
        throw wrongBytes(part, value);
      }
    }
    const count = value.length;
    if (count > most) throw tooLong(part, count, most);
    this.reserve(count);
    this.buffer.set(value, start);
    this.used = start + count;
    return count;
  }

  /** Writes a question to the coordinator. `made` has the options of a table to create. */
  question(kind: Question, name: string, first: bigint, second: bigint, made?: NewTable): void {
    this.reserve(44 + 3 * name.length);
    const start = this.used;
    const count = this.buffer.write(name, start + 3, "utf8");
    this.view.setUint8(start, kind);
    this.view.setUint16(start + 1, count, true);
    this.view.setBigUint64(start + 3 + count, first, true);
    this.view.setBigUint64(start + 11 + count, second, true);
    this.used = start + 19 + count;
    if (kind !== Question.CreateTable) return;
    this.number(made?.ttl ?? 0);
    this.view.setUint8(this.used, made?.isCache ? 1 : 0);
    this.used += 1;
    this.number(made?.maxBytes ?? 0);
    this.number(made?.reservedBytes ?? 0);
  }

  /** Writes the number of a scan. */
  scan(scan: number): void {
    this.reserve(8);
    this.view.setBigUint64(this.used, BigInt(scan), true);
    this.used += 8;
  }
}

function tooLong(part: "key" | "value", bytes: number, most: number): InvalidArgumentError {
  return new InvalidArgumentError(
    `the ${part} has ${bytes} bytes or more, and at most ${most} are allowed; split it`,
  );
}

export function viewOf(buffer: Uint8Array): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}
