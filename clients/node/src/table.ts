/** A table, as the user sees it. */

import { type Action, type Bytes, describe, Kind } from "./bytes.js";
import type { Engine } from "./engine.js";
import { BatchError, errorOf, NotANumberError } from "./errors.js";
import { Failure } from "./failure.js";
import {
  CALL,
  type CallOptions,
  type Checked,
  checkFloat,
  checkInteger,
  checked,
  DELETE,
  type DeleteOptions,
  PUT,
  PUT_MANY,
  type PutManyOptions,
  type PutOptions,
} from "./options.js";
import type { Changed, Found, Result, Sum } from "./results.js";
import { Scan } from "./scan.js";

const READ: Action = { kind: Kind.Read, condition: 0, isFloat: false, version: 0n };
const WRITE: Action = { kind: Kind.Write, condition: 0, isFloat: false, version: 0n };

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
  readonly #low: number;
  readonly #high: number;

  private constructor(engine: Engine, name: string, id: bigint) {
    this.#engine = engine;
    this.name = name;
    this.id = id;
    this.#low = Number(id & 0xffff_ffffn);
    this.#high = Number(id >> 32n);
  }

  /** @internal */
  static of(engine: Engine, name: string, id: bigint): Table {
    return new Table(engine, name, id);
  }

  /** Reads an object. Resolves to `undefined` if there is no such object. */
  async get(key: Bytes, options?: CallOptions): Promise<Found | undefined> {
    const given = checked(options, CALL);
    return this.#end(await this.#begin(READ, key, undefined, given), given) as Found | undefined;
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
  async put(key: Bytes, value: Bytes, options?: PutOptions): Promise<Changed> {
    const given = checked(options, PUT);
    const { condition, version } = given;
    const action =
      condition === 0 ? WRITE : { kind: Kind.Write, condition, isFloat: false, version };
    return this.#end(await this.#begin(action, key, value, given), given) as Changed;
  }

  /**
   * Writes a whole number, which {@link Table.increment} can add to. A read returns its 8 bytes,
   * little-endian.
   */
  async putNumber(key: Bytes, number: number | bigint, options?: PutOptions): Promise<Changed> {
    const given = checked(options, PUT);
    const value = checkInteger(number, "putFloat");
    const result = await this.#beginNumber(Kind.WriteNumber, key, value, given);
    return this.#end(result, given) as Changed;
  }

  /** Writes a floating-point number, which {@link Table.incrementFloat} can add to. */
  async putFloat(key: Bytes, number: number, options?: PutOptions): Promise<Changed> {
    const given = checked(options, PUT);
    const value = checkFloat(number);
    const result = await this.#beginNumber(Kind.WriteNumber, key, value, given);
    return this.#end(result, given) as Changed;
  }

  /**
   * Adds to a whole number of 64 bits and resolves to the sum. An absent object counts as 0. The
   * addition happens exactly once, however often the client must send it.
   */
  async increment(key: Bytes, by: number | bigint = 1n, options?: CallOptions): Promise<Sum> {
    const given = checked(options, CALL);
    const value = checkInteger(by, "incrementFloat");
    return this.#end(await this.#beginNumber(Kind.Increment, key, value, given), given) as Sum;
  }

  /** Adds to a floating-point number, like {@link Table.increment}. */
  async incrementFloat(key: Bytes, by: number, options?: CallOptions): Promise<Sum<number>> {
    const given = checked(options, CALL);
    const sum = await this.#beginNumber(Kind.Increment, key, checkFloat(by), given);
    return this.#end(sum, given) as Sum<number>;
  }

  /**
   * Deletes an object. Resolves to the version that the object had, or to `undefined` if there was
   * no such object.
   */
  async delete(key: Bytes, options?: DeleteOptions): Promise<Changed | undefined> {
    const given = checked(options, DELETE);
    const { condition, version } = given;
    const action = { kind: Kind.Delete, condition, isFloat: false, version };
    const result = await this.#begin(action, key, undefined, given);
    return this.#end(result, given) as Changed | undefined;
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
    const action = { kind: Kind.Delete, condition: 0, isFloat: false, version: 0n };
    return this.#many(action, list(keys, "the keys"), undefined, given);
  }

  /**
   * Walks over all objects: `for await (const { key, value } of table.scan())`. The deadline is
   * that of each page.
   */
  scan(options?: CallOptions): Scan {
    return Scan.of(this.#engine, this.#low, this.#high, this.name, checked(options, CALL));
  }

  /** Begins an operation with a number. */
  #beginNumber(
    kind: Kind,
    key: Bytes,
    value: bigint | number,
    given: Readonly<Checked>,
  ): Promise<Result> {
    const { condition, version } = given;
    const action = { kind, condition, isFloat: typeof value === "number", version };
    return this.#begin(action, key, value, given);
  }

  /** Begins an operation. It is no `async` function: that would cost as much as all else here. */
  #begin(
    action: Action,
    key: Bytes,
    value: Bytes | bigint | number | undefined,
    { deadline, signal }: Readonly<Checked>,
  ): Promise<Result> {
    return this.#engine.operate(action, this.#low, this.#high, key, value, deadline, signal);
  }

  /** Returns a result, or throws its error. */
  #end(result: Result, given: Readonly<Checked>): Result {
    if (result instanceof Failure) throw errorOf(result, given.signal, this.name);
    return result;
  }

  async #many<T>(
    action: Action,
    keys: Bytes[],
    values: Bytes[] | undefined,
    given: Readonly<Checked>,
  ): Promise<T[]> {
    const { deadline, signal } = given;
    const results = await this.#engine.operateMany(
      action,
      this.#low,
      this.#high,
      keys,
      values,
      deadline,
      signal,
    );
    if (results.some((result) => result instanceof Failure)) {
      const errors = results.map((result) =>
        result instanceof Failure ? errorOf(result, signal, this.name) : (result as T),
      );
      throw new BatchError(errors);
    }
    return results as T[];
  }
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
