/** A table, as the user sees it. */

import { type Action, type Bytes, describe, hasNumber, Kind } from "./bytes.js";
import type { Engine, Target } from "./engine.js";
import { BatchError, errorOf, NotANumberError } from "./errors.js";
import { Failure } from "./failure.js";
import {
  CALL,
  type CallOptions,
  type Checked,
  checkFloat,
  checkInteger,
  checked,
  checkTtl,
  DELETE,
  type DeleteOptions,
  type ExpireOptions,
  PUT,
  PUT_MANY,
  type PutManyOptions,
  type PutOptions,
} from "./options.js";
import type { Changed, Found, Sum } from "./results.js";
import { Scan } from "./scan.js";

const READ = actionOf(Kind.Read);
const WRITE = actionOf(Kind.Write);
const REMOVE = actionOf(Kind.Delete);
const WRITE_INTEGER = actionOf(Kind.WriteNumber);
const WRITE_FLOAT = actionOf(Kind.WriteNumber, true);
const ADD_INTEGER = actionOf(Kind.Increment);
const ADD_FLOAT = actionOf(Kind.Increment, true);
const SET_EXPIRY = actionOf(Kind.SetExpiry);
const READ_EXPIRY = actionOf(Kind.ReadExpiry);

/** An operation without a condition. */
function actionOf(kind: Kind, isFloat = false): Action {
  return { kind, condition: 0, isFloat, version: 0n };
}

/**
 * A table. Any number of operations may be in progress. Operations that begin in one turn of the
 * event loop are sent together. Keys and values are copied before a method returns.
 *
 * Every method returns a promise and never throws by itself.
 */
export class Table {
  /** The table's name. */
  readonly name: string;
  /** The table's id. It never changes, and no later table has it. */
  readonly id: bigint;
  readonly #engine: Engine;
  readonly #target: Target;

  private constructor(engine: Engine, name: string, id: bigint) {
    this.#engine = engine;
    this.name = name;
    this.id = id;
    this.#target = { low: Number(id & 0xffff_ffffn), high: Number(id >> 32n), name };
  }

  /** @internal */
  static of(engine: Engine, name: string, id: bigint): Table {
    return new Table(engine, name, id);
  }

  /** Reads an object. Resolves to `undefined` if there is no such object. */
  get(key: Bytes, options?: CallOptions): Promise<Found | undefined> {
    return Table.#operate(this, READ, key, undefined, options, CALL);
  }

  /**
   * Reads a whole number. Resolves to `undefined` if there is no such object. An object of 8 bytes
   * that is no number cannot be told from one.
   */
  async getNumber(key: Bytes, options?: CallOptions): Promise<Sum | undefined> {
    const found = await this.get(key, options);
    return found && { value: eight(found).readBigInt64LE(), version: found.version };
  }

  /** Reads a floating-point number, like {@link Table.getNumber}. */
  async getFloat(key: Bytes, options?: CallOptions): Promise<Sum<number> | undefined> {
    const found = await this.get(key, options);
    return found && { value: eight(found).readDoubleLE(), version: found.version };
  }

  /** Writes an object. */
  put(key: Bytes, value: Bytes, options?: PutOptions): Promise<Changed> {
    return Table.#operate(this, WRITE, key, value, options, PUT);
  }

  /**
   * Writes a whole number, which {@link Table.increment} can add to. A read returns its 8 bytes,
   * little-endian.
   */
  putNumber(key: Bytes, number: number | bigint, options?: PutOptions): Promise<Changed> {
    return Table.#operate(this, WRITE_INTEGER, key, number, options, PUT);
  }

  /** Writes a floating-point number, which {@link Table.incrementFloat} can add to. */
  putFloat(key: Bytes, number: number, options?: PutOptions): Promise<Changed> {
    return Table.#operate(this, WRITE_FLOAT, key, number, options, PUT);
  }

  /**
   * Adds to a whole number of 64 bits and resolves to the sum. An absent object counts as 0. The
   * addition happens exactly once, however often the client must send it.
   */
  increment(key: Bytes, by: number | bigint = 1n, options?: CallOptions): Promise<Sum> {
    return Table.#operate(this, ADD_INTEGER, key, by, options, CALL);
  }

  /** Adds to a floating-point number, like {@link Table.increment}. */
  incrementFloat(key: Bytes, by: number, options?: CallOptions): Promise<Sum<number>> {
    return Table.#operate(this, ADD_FLOAT, key, by, options, CALL);
  }

  /**
   * Deletes an object. Resolves to the version that the object had, or to `undefined` if there was
   * no such object.
   */
  delete(key: Bytes, options?: DeleteOptions): Promise<Changed | undefined> {
    return Table.#operate(this, REMOVE, key, undefined, options, DELETE);
  }

  /**
   * Changes when an object expires: it lives for `ttl` milliseconds from now on, or for `Infinity`.
   * Resolves to its new version, or to `undefined` if there is no such object.
   */
  async expire(key: Bytes, ttl: number, options?: ExpireOptions): Promise<Changed | undefined> {
    const time = checkTtl(ttl);
    const given = { ...checked(options, DELETE), ttl: time };
    const { condition, version } = given;
    const action = { ...SET_EXPIRY, condition, version };
    return new Promise((resolve) => {
      this.#engine.operate(action, this.#target, key, undefined, given, resolve);
    });
  }

  /**
   * Returns how many milliseconds an object still lives: `Infinity` if it does not expire. Resolves
   * to `undefined` if there is no such object.
   */
  ttl(key: Bytes, options?: CallOptions): Promise<number | undefined> {
    return Table.#operate(this, READ_EXPIRY, key, undefined, options, CALL);
  }

  /**
   * Reads many objects at once. The results are in the order of the keys.
   *
   * Rejects with a {@link BatchError} if any read failed; its `results` has all results.
   */
  async getMany(keys: Iterable<Bytes>, options?: CallOptions): Promise<(Found | undefined)[]> {
    const given = checked(options, CALL);
    return this.#many(READ, list(keys, "the keys"), undefined, given);
  }

  /**
   * Writes many objects at once, each by itself and in no particular order. Takes pairs of a key
   * and a value, such as a `Map`. The results are in the order of the pairs.
   *
   * Rejects with a {@link BatchError} if any write failed; its `results` has all results.
   */
  async putMany(
    objects: Iterable<readonly [Bytes, Bytes]>,
    options?: PutManyOptions,
  ): Promise<Changed[]> {
    const given = checked(options, PUT_MANY);
    const { condition, version } = given;
    const keys: Bytes[] = [];
    const values: Bytes[] = [];
    for (const pair of list(objects, "the objects")) {
      if (!Array.isArray(pair) || pair.length !== 2) {
        throw new TypeError(`each object must be a pair [key, value], and is ${describe(pair)}`);
      }
      const [key, value] = pair as unknown as [Bytes, Bytes];
      keys.push(key);
      values.push(value);
    }
    const action = { kind: Kind.Write, condition, isFloat: false, version };
    return this.#many(action, keys, values, given);
  }

  /**
   * Deletes many objects at once. Each result is the version that the object had, or `undefined` if
   * there was no such object. The results are in the order of the keys.
   *
   * Rejects with a {@link BatchError} if any delete failed; its `results` has all results.
   */
  async deleteMany(keys: Iterable<Bytes>, options?: CallOptions): Promise<(Changed | undefined)[]> {
    const given = checked(options, CALL);
    return this.#many(REMOVE, list(keys, "the keys"), undefined, given);
  }

  /**
   * Walks over all objects: `for await (const { key, value } of table.scan())`. The deadline is
   * that of each page.
   */
  scan(options?: CallOptions): Scan {
    return Scan.of(this.#engine, this.#target, checked(options, CALL));
  }

  /**
   * Does an operation. What the executor throws rejects the promise: a wrong argument, and also a
   * table that is none, because a method was called without its table.
   */
  static #operate<T>(
    table: Table,
    action: Action,
    key: Bytes,
    value: Bytes | bigint | number | undefined,
    options: (PutOptions & DeleteOptions) | undefined,
    known: readonly string[],
  ): Promise<T> {
    return new Promise((resolve) => {
      const given = checked(options, known);
      const { condition, version } = given;
      const content = hasNumber(action.kind) ? checkNumber(action, value) : value;
      const conditional = condition === 0 ? action : { ...action, condition, version };
      table.#engine.operate(conditional, table.#target, key, content, given, resolve);
    });
  }

  async #many<T>(
    action: Action,
    keys: Bytes[],
    values: Bytes[] | undefined,
    given: Readonly<Checked>,
  ): Promise<T[]> {
    const results = await this.#engine.operateMany(action, this.#target, keys, values, given);
    if (results.some((result) => result instanceof Failure)) {
      const errors = results.map((result) =>
        result instanceof Failure ? errorOf(result, given.signal, this.name) : (result as T),
      );
      throw new BatchError(errors);
    }
    return results as T[];
  }
}

/** Checks the number that an operation stores or adds. */
function checkNumber({ kind, isFloat }: Action, value: unknown): bigint | number {
  if (isFloat) return checkFloat(value);
  return checkInteger(value, kind === Kind.Increment ? "incrementFloat" : "putFloat");
}

function list<T>(all: Iterable<T>, name: string): T[] {
  const isIterable =
    typeof all === "object" && all !== null && typeof all[Symbol.iterator] === "function";
  if (!isIterable || all instanceof Uint8Array) {
    throw new TypeError(
      `${name} must be an array or another iterable object, and are ${describe(all)}`,
    );
  }
  return Array.from(all);
}

function eight(found: Found): Buffer {
  if (found.value.length !== 8) {
    throw new NotANumberError(
      `the object is not a number: it has ${found.value.length} bytes; read it with get`,
      found.version,
    );
  }
  return found.value;
}
