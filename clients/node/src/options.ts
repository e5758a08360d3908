/** Checks options and numbers that the user gives. */

import { describe, type NewTable } from "./bytes.js";
import { InvalidArgumentError } from "./errors.js";

/** The options of every operation. */
export interface CallOptions {
  /**
   * The time limit in milliseconds, retries included. The default is that of the client. An
   * operation always has one.
   */
  deadline?: number;
  /**
   * Ends the operation early. The promise is rejected with a `CancelledError` if nothing was done,
   * or with an `OutcomeUnknownError` if a change may have been done. If the operation has ended
   * already, the promise has its result.
   */
  signal?: AbortSignal;
}

/** The options of a write: at most one condition. */
export interface PutOptions extends CallOptions {
  /** Write only if the object has this version. */
  ifVersion?: bigint;
  /** Write only if there is no such object. */
  ifAbsent?: boolean;
  /** Write only if there is such an object. */
  ifPresent?: boolean;
  /**
   * How long the object lives in milliseconds, or `Infinity`; by default as long as the table says.
   * The time begins when the server does the write.
   */
  ttl?: number;
}

/** The options of many writes: a condition holds for each of them. */
export interface PutManyOptions extends CallOptions {
  /** Write each object only if it is absent. */
  ifAbsent?: boolean;
  /** Write each object only if it is present. */
  ifPresent?: boolean;
  /** How long each object lives in milliseconds, or `Infinity`. */
  ttl?: number;
}

/** The options of a delete: at most one condition. */
export interface DeleteOptions extends CallOptions {
  /** Delete only if the object has this version. */
  ifVersion?: bigint;
  /** Fail if there is no such object. */
  ifPresent?: boolean;
}

/** The options of a change of an object's expiry: at most one condition. */
export interface ExpireOptions extends CallOptions {
  /** Change it only if the object has this version. */
  ifVersion?: bigint;
  /** Fail if there is no such object. */
  ifPresent?: boolean;
}

/** The behaviour of a table when memory is full. */
export type Policy = "durable" | "cache";

/** The options of a new table. They never change afterwards. */
export interface NewTableOptions {
  /** Over how many shards the table is spread; 1 by default. */
  span?: number;
  /** How long an object lives if its write does not say it, in milliseconds; `Infinity` by default. */
  ttl?: number;
  /**
   * With `cache`, objects that were not used lately make room for new ones when memory is full. With
   * `durable`, the default, writes are refused.
   */
  policy?: Policy;
  /**
   * The most bytes of its objects, with their keys and headers; no limit by default. A durable table
   * refuses writes that would exceed it, and a cache evicts its own objects.
   */
  maxBytes?: number;
  /** The bytes of a cache of which none are evicted for other tables. */
  reservedBytes?: number;
}

/** The longest deadline: a year. A longer one is more likely a mistake of units. */
const DEADLINE_MAX = 366 * 24 * 3600 * 1000;

const VERSION_MAX = 0xffff_ffff_ffff_ffffn;
const INTEGER_MIN = -0x8000_0000_0000_0000n;
const INTEGER_MAX = 0x7fff_ffff_ffff_ffffn;

const enum Condition {
  Always = 0,
  Absent = 1,
  Present = 2,
  VersionIs = 3,
}

/** Options that have been checked. */
export interface Checked {
  condition: number;
  version: bigint;
  deadline: number | undefined;
  signal: AbortSignal | undefined;
  ttl: number | undefined;
}

const NONE: Readonly<Checked> = {
  condition: Condition.Always,
  version: 0n,
  deadline: undefined,
  signal: undefined,
  ttl: undefined,
};

/** The names that calls without a condition accept, and those with one. */
export const CALL: readonly string[] = ["deadline", "signal"];
export const PUT: readonly string[] = [...CALL, "ifVersion", "ifAbsent", "ifPresent", "ttl"];
export const PUT_MANY: readonly string[] = [...CALL, "ifAbsent", "ifPresent", "ttl"];
export const DELETE: readonly string[] = [...CALL, "ifVersion", "ifPresent"];
export const NEW_TABLE: readonly string[] = ["span", "ttl", "policy", "maxBytes", "reservedBytes"];
export const TABLE: readonly string[] = [...CALL, "create"];
export const CONNECT: readonly string[] = [...CALL, "polling", "inFlight"];

/** Throws if the options are not an object, or have a name that is not known. */
export function checkNames(options: object, known: readonly string[]): void {
  if (options === null || typeof options !== "object") {
    throw new TypeError(`the options must be an object, and are ${describe(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new TypeError(
        `the option ${JSON.stringify(name)} is unknown here; known are ${known.join(", ")}`,
      );
    }
  }
}

/** Checks the options of an operation. */
export function checked(
  options: (PutOptions & DeleteOptions) | undefined,
  known: readonly string[],
): Readonly<Checked> {
  if (options === undefined) return NONE;
  checkNames(options, known);
  const { deadline, signal } = options;
  const result: Checked = { ...NONE, deadline: checkDeadline(deadline), signal };
  checkSignal(signal);
  if (options.ttl !== undefined) result.ttl = checkTtl(options.ttl);
  let conditions = 0;
  if ("ifVersion" in options) {
    const { ifVersion } = options;
    if (typeof ifVersion !== "bigint") {
      // An undefined version must not become a write without a condition.
      throw new TypeError(
        `ifVersion must be a bigint, the version of an object, and is ${describe(ifVersion)}; ` +
          "use ifAbsent to create an object",
      );
    }
    if (ifVersion <= 0n || ifVersion > VERSION_MAX) {
      throw new InvalidArgumentError(
        `no object has the version ${ifVersion}; use ifAbsent to create an object`,
      );
    }
    result.condition = Condition.VersionIs;
    result.version = ifVersion;
    conditions++;
  }
  if (isSet(options.ifAbsent, "ifAbsent")) {
    result.condition = Condition.Absent;
    conditions++;
  }
  if (isSet(options.ifPresent, "ifPresent")) {
    result.condition = Condition.Present;
    conditions++;
  }
  if (conditions > 1) {
    throw new InvalidArgumentError(
      "an operation has at most one of ifVersion, ifAbsent and ifPresent; leave the others out",
    );
  }
  return result;
}

function isSet(value: unknown, name: string): boolean {
  if (value !== undefined && typeof value !== "boolean") {
    throw new TypeError(`${name} must be true or false, and is ${describe(value)}`);
  }
  return value === true;
}

export function checkDeadline(deadline: unknown): number | undefined {
  if (deadline === undefined) return undefined;
  if (typeof deadline !== "number") {
    throw new TypeError(
      `the deadline must be a number of milliseconds, and is ${describe(deadline)}`,
    );
  }
  if (!(deadline > 0 && deadline <= DEADLINE_MAX)) {
    throw new InvalidArgumentError(
      `the deadline must be more than 0 and at most a year in milliseconds, and is ${deadline}`,
    );
  }
  return deadline;
}

/** Checks a time to live, and rounds it up to milliseconds. */
export function checkTtl(ttl: unknown): number {
  if (typeof ttl !== "number") {
    throw new TypeError(`the ttl must be a number of milliseconds, and is ${describe(ttl)}`);
  }
  const milliseconds = Math.ceil(ttl);
  const fits = milliseconds > 0 && milliseconds <= Number.MAX_SAFE_INTEGER;
  if (!fits && milliseconds !== Infinity) {
    throw new InvalidArgumentError(
      `the ttl must be more than 0 and less than 2^53 milliseconds, or Infinity, and is ${ttl}`,
    );
  }
  return milliseconds;
}

function checkBytes(value: unknown, name: string, least: number): number {
  if (typeof value !== "number") {
    throw new TypeError(`${name} must be a number, and is ${describe(value)}`);
  }
  if (!Number.isSafeInteger(value) || value < least) {
    throw new InvalidArgumentError(
      `${name} must be a whole number of at least ${least} and below 2^53, and is ${value}`,
    );
  }
  return value;
}

/** Checks the options of a new table. */
export function checkNewTable(options: NewTableOptions): NewTable & { span: number } {
  checkNames(options, NEW_TABLE);
  const { span, ttl, policy, maxBytes, reservedBytes } = options;
  if (policy !== undefined && policy !== "durable" && policy !== "cache") {
    throw new InvalidArgumentError(
      `the policy is "durable" or "cache", and not ${describe(policy)}`,
    );
  }
  const time = ttl === undefined ? Infinity : checkTtl(ttl);
  return {
    span: span === undefined ? 1 : checkCount(span, "span"),
    ttl: time === Infinity ? 0 : time,
    isCache: policy === "cache",
    maxBytes: maxBytes === undefined ? 0 : checkBytes(maxBytes, "maxBytes", 1),
    reservedBytes: reservedBytes === undefined ? 0 : checkBytes(reservedBytes, "reservedBytes", 0),
  };
}

export function checkSignal(signal: unknown): void {
  if (signal === undefined) return;
  const like = signal as Partial<AbortSignal> | null;
  if (
    typeof like !== "object" ||
    like === null ||
    typeof like.aborted !== "boolean" ||
    typeof like.addEventListener !== "function"
  ) {
    throw new TypeError(`the signal must be an AbortSignal, and is ${describe(signal)}`);
  }
}

/** Checks a whole number of 64 bits. */
export function checkInteger(value: unknown, float: string): bigint {
  if (typeof value === "number") {
    if (!Number.isInteger(value)) {
      throw new InvalidArgumentError(`${value} is not a whole number; use ${float} for it`);
    }
    if (!Number.isSafeInteger(value)) {
      throw new InvalidArgumentError(
        `${value} is beyond 2^53, where a number is not exact; use a bigint`,
      );
    }
    return BigInt(value);
  }
  if (typeof value !== "bigint") {
    throw new TypeError(
      `the number must be a whole number or a bigint, and is ${describe(value)}`,
    );
  }
  if (value < INTEGER_MIN || value > INTEGER_MAX) {
    throw new InvalidArgumentError(`${value} does not fit into 64 bits`);
  }
  return value;
}

export function checkFloat(value: unknown): number {
  if (typeof value !== "number") {
    throw new TypeError(`the number must be of the type number, and is ${describe(value)}`);
  }
  return value;
}

/** Checks a hash or an id, which has 64 bits without a sign. */
export function checkU64(value: unknown, name: string): bigint {
  if (typeof value !== "bigint") {
    throw new TypeError(`${name} must be a bigint, and is ${describe(value)}`);
  }
  if (value < 0n || value > VERSION_MAX) {
    throw new InvalidArgumentError(`${name} must have 64 bits without a sign, and is ${value}`);
  }
  return value;
}

/** Checks a whole number from 1 to 2^32 - 1. */
export function checkCount(value: unknown, name: string): number {
  if (typeof value !== "number") {
    throw new TypeError(`${name} must be a number, and is ${describe(value)}`);
  }
  if (!Number.isInteger(value) || value < 1 || value > 0xffff_ffff) {
    throw new InvalidArgumentError(`${name} must be a whole number above 0, and is ${value}`);
  }
  return value;
}

/** Checks the name of a table. */
export function checkName(name: unknown): string {
  if (typeof name !== "string") {
    throw new TypeError(`the name of a table must be a string, and is ${describe(name)}`);
  }
  const bytes = Buffer.byteLength(name);
  const isText = !/[\p{Cc}\p{Surrogate}]/u.test(name);
  if (bytes < 1 || bytes > 255 || !isText) {
    throw new InvalidArgumentError(
      "the name of a table has 1 to 255 bytes and no control characters; " +
        `this one is ${JSON.stringify(name.slice(0, 40))}`,
    );
  }
  return name;
}
