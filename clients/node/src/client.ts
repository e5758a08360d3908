/** A client of a cluster, as the user sees it. */

import { describe, type NewTable, Question } from "./bytes.js";
import { Engine } from "./engine.js";
import {
  cancelledFailure,
  errorOf,
  InvalidArgumentError,
  NoSuchTableError,
  TableExistsError,
} from "./errors.js";
import { Failure } from "./failure.js";
import { type Connection as NativeConnection, native, type Settings } from "./native.js";
import {
  CALL,
  type CallOptions,
  type Checked,
  checkCount,
  checkDeadline,
  checked,
  checkName,
  checkNames,
  checkNewTable,
  checkSignal,
  checkU64,
  CONNECT,
  NEW_TABLE,
  type NewTableOptions,
  TABLE,
} from "./options.js";
import type { TableInfo } from "./results.js";
import { Table } from "./table.js";

/** The options of {@link connect}. They override the settings of the URL. */
export interface ConnectOptions {
  /** The time limit of connecting and of each operation in milliseconds; 10,000 by default. */
  deadline?: number;
  /** The way in which the client's thread waits for answers; `adaptive` by default. */
  polling?: "always" | "adaptive" | "never";
  /** The most operations in flight; 8192 by default. Others wait for their turn. */
  inFlight?: number;
  /** Ends connecting early, with a `CancelledError`. */
  signal?: AbortSignal;
}

/** The options of {@link Client.createTable}. */
export interface CreateOptions extends CallOptions, NewTableOptions {}

/** The options of {@link Client.table}. */
export interface TableOptions extends CallOptions {
  /** Create the table if there is none of this name; an object says how. */
  create?: boolean | NewTableOptions;
}

/** `Symbol.asyncDispose`, which the first releases of Node 18 lack. */
const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);

/**
 * Connects to a cluster. The URL names its coordinators: `thunderhead://localhost:7070`, or
 * `thunderhead://h1,h2:7071/?deadline=2s`.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Client> {
  if (typeof url !== "string") {
    throw new TypeError(
      `the URL must be a string such as "thunderhead://localhost:7070", and is ${describe(url)}`,
    );
  }
  checkNames(options, CONNECT);
  const { deadline, polling, inFlight, signal } = options;
  const settings: Settings = {};
  const time = checkDeadline(deadline);
  if (time !== undefined) settings.deadline = time;
  if (polling !== undefined) {
    if (!["always", "adaptive", "never"].includes(polling)) {
      throw new InvalidArgumentError(
        `polling is "always", "adaptive" or "never", and not ${describe(polling)}`,
      );
    }
    settings.polling = polling;
  }
  if (inFlight !== undefined) settings.inFlight = checkCount(inFlight, "inFlight");
  checkSignal(signal);
  if (signal?.aborted) throw errorOf(cancelledFailure, signal);

  const { Connection } = native();
  const engine = new Engine();
  let onClosed = () => {};
  const closed = new Promise<void>((resolve) => {
    onClosed = resolve;
  });
  let connection: NativeConnection | undefined;
  const failure = await new Promise<Failure | undefined>((resolve) => {
    const onAbort = () => {
      connection?.end();
      resolve(cancelledFailure);
    };
    const onChange = () => {
      const begun = connection as NativeConnection;
      switch (begun.state()) {
        case "connecting":
          return;
        case "connected":
          signal?.removeEventListener("abort", onAbort);
          engine.start(begun);
          return resolve(undefined);
        case "failed": {
          signal?.removeEventListener("abort", onAbort);
          const { code, text } = begun.failure() ?? { code: 0, text: "" };
          begun.end();
          return resolve(new Failure(code, false, 0n, text));
        }
        case "closed":
          onClosed();
      }
    };
    connection = new Connection(url, settings, onChange);
    signal?.addEventListener("abort", onAbort);
  });
  if (failure !== undefined) throw errorOf(failure, signal);
  return Client.of(engine, connection as unknown as NativeConnection, closed);
}

/**
 * A client of a cluster. A program needs one; any number of operations may be in progress at a
 * time. A worker thread makes one of its own.
 *
 * An open client keeps the process alive: see {@link Client.close} and {@link Client.unref}.
 */
export class Client implements AsyncDisposable {
  readonly #engine: Engine;
  readonly #connection: NativeConnection;
  readonly #closed: Promise<void>;
  #closing: Promise<void> | undefined;

  private constructor(engine: Engine, connection: NativeConnection, closed: Promise<void>) {
    this.#engine = engine;
    this.#connection = connection;
    this.#closed = closed;
  }

  /** @internal */
  static of(engine: Engine, connection: NativeConnection, closed: Promise<void>): Client {
    return new Client(engine, connection, closed);
  }

  /** The time limit of operations that name none, in milliseconds. */
  get deadline(): number {
    return this.#engine.deadline;
  }

  /**
   * Returns a table. If there is none of this name, rejects with a {@link NoSuchTableError}, or
   * creates it if `create` says so.
   */
  async table(name: string, options: TableOptions = {}): Promise<Table> {
    checkNames(options, TABLE);
    const { create, ...call } = options;
    if (create !== undefined && typeof create !== "boolean" && typeof create !== "object") {
      throw new TypeError(`create must be true, false or an object, and is ${describe(create)}`);
    }
    const given = checked(call, CALL);
    if (!create) return this.#find(name, given);
    const how = checkNewTable(create === true ? {} : create);
    try {
      return await this.#find(name, given);
    } catch (error) {
      if (!(error instanceof NoSuchTableError)) throw error;
    }
    try {
      return await this.#create(name, how, given);
    } catch (error) {
      // Another client was faster.
      if (!(error instanceof TableExistsError)) throw error;
    }
    return this.#find(name, given);
  }

  /** Creates a table. Rejects with a {@link TableExistsError} if there is one of this name. */
  async createTable(name: string, options: CreateOptions = {}): Promise<Table> {
    checkNames(options, [...CALL, ...NEW_TABLE]);
    const { deadline, signal, ...how } = options;
    const call: CallOptions = {};
    if (deadline !== undefined) call.deadline = deadline;
    if (signal !== undefined) call.signal = signal;
    return this.#create(name, checkNewTable(how), checked(call, CALL));
  }

  /** Deletes a table with all its objects. */
  async dropTable(name: string, options?: CallOptions): Promise<void> {
    await this.#ask(Question.DropTable, checkName(name), 0n, 0n, checked(options, CALL));
  }

  /** Returns all tables, with their tablets. */
  async tables(options?: CallOptions): Promise<TableInfo[]> {
    const results = await this.#ask(Question.Tables, "", 0n, 0n, checked(options, CALL));
    return results.filter((result) => result !== undefined);
  }

  /** Splits a tablet into two. The hash is the first one of the second tablet. */
  async split(name: string, hash: bigint, options?: CallOptions): Promise<TableInfo> {
    const at = checkU64(hash, "the hash");
    return this.#one(Question.Split, checkName(name), at, 0n, checked(options, CALL));
  }

  /**
   * Moves the tablet that begins with a hash to another master, and waits for the end of the move.
   * A large tablet takes longer than the default deadline.
   */
  async migrate(
    name: string,
    firstHash: bigint,
    master: bigint,
    options?: CallOptions,
  ): Promise<TableInfo> {
    const first = checkU64(firstHash, "the hash");
    const to = checkU64(master, "the master");
    return this.#one(Question.Migrate, checkName(name), first, to, checked(options, CALL));
  }

  /**
   * Closes the client: operations in progress end, later ones are rejected with a `ClosedError`.
   * Ends the client's lease, so that servers can forget its completion records. May be called
   * again.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#engine.stop();
    this.#connection.close();
    await this.#closed;
    this.#engine.end();
  }

  /** {@link Client.close}, for `await using`. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Lets the process end although the client is open. Operations in progress keep it alive. */
  unref(): this {
    this.#engine.setRef(false);
    return this;
  }

  /** Undoes {@link Client.unref}. */
  ref(): this {
    this.#engine.setRef(true);
    return this;
  }

  async #find(name: string, given: Readonly<Checked>): Promise<Table> {
    const info = await this.#one(Question.Table, checkName(name), 0n, 0n, given);
    return Table.of(this.#engine, info.name, info.id);
  }

  async #create(
    name: string,
    how: NewTable & { span: number },
    given: Readonly<Checked>,
  ): Promise<Table> {
    const kind = Question.CreateTable;
    const info = await this.#one(kind, checkName(name), BigInt(how.span), 0n, given, how);
    return Table.of(this.#engine, info.name, info.id);
  }

  /** Asks a question that a table answers. */
  async #one(
    kind: Question,
    name: string,
    first: bigint,
    second: bigint,
    given: Readonly<Checked>,
    made?: NewTable,
  ): Promise<TableInfo> {
    const results = await this.#ask(kind, name, first, second, given, made);
    const info = results.find((result) => result?.name === name);
    if (info === undefined) throw errorOf(noSuchTable, given.signal, name);
    return info;
  }

  async #ask(
    kind: Question,
    name: string,
    first: bigint,
    second: bigint,
    given: Readonly<Checked>,
    made?: NewTable,
  ): Promise<(TableInfo | undefined)[]> {
    const { deadline, signal } = given;
    const results = await this.#engine.ask(kind, name, first, second, deadline, signal, made);
    for (const result of results) {
      if (result instanceof Failure) throw errorOf(result, signal, name === "" ? undefined : name);
    }
    return results as (TableInfo | undefined)[];
  }
}

/** The answer of a coordinator that has no table of a name. */
const noSuchTable = new Failure(1020, false, 0n, "there is no such table");
