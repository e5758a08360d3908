/**
 * The engine of a client: it collects the requests of a turn, submits them together, and hands the
 * results to the promises.
 *
 * Requests that begin in one turn of the event loop are written into one buffer, and cross the
 * border once, in a tick after the turn. When results are ready, the event loop calls
 * {@link Engine.onResults}, which takes all of them in one buffer.
 */

import {
  type Action,
  type Bytes,
  Class,
  type NewTable,
  Outgoing,
  type Question,
  viewOf,
} from "./bytes.js";
import { cancelledFailure, closedFailure, errorOf, internalFailure } from "./errors.js";
import { Failure } from "./failure.js";
import { type Connection, native } from "./native.js";
import type { Checked } from "./options.js";
import { type Entry, Reader, type Result } from "./results.js";

/** The size of the buffer for results. Larger results have a buffer of their own. */
const RESULT_BYTES = 64 * 1024;

/** When so many bytes of requests have collected, they are submitted before the turn ends. */
const SUBMIT_BYTES = 256 * 1024;

/** The most operations in one submission: a larger batch is several submissions. */
const OPERATIONS_MAX = 128;

/** The page of a scan. */
export interface Page {
  entries: Entry[];
  isLast: boolean;
}

/** A table: the halves of its id, and its name for errors. */
export interface Target {
  readonly low: number;
  readonly high: number;
  readonly name: string;
}

/** The form in which a request takes its results. */
const enum Form {
  One,
  List,
  Page,
}

/** A request whose result has not come yet. */
class Pending {
  /** The number under which the core knows it; -1 before it is submitted. */
  number = -1;
  /** Its place in the buffer of requests, until it is submitted. */
  start = 0;
  end = 0;

  constructor(
    readonly tag: number,
    readonly form: Form,
    readonly operations: number,
    readonly resolve: (result: never) => void,
    readonly signal: AbortSignal | undefined,
    /** The name of its table, for the error of a single operation. */
    readonly table: string | undefined,
  ) {}
}

/** The requests of one signal. A signal has one listener, however many requests it has. */
interface Listening {
  requests: Set<Pending>;
  onAbort: () => void;
}

export class Engine {
  /** The deadline of a request that names none, in milliseconds. */
  deadline = 0;
  private connection: Connection | undefined;
  private readonly outgoing = new Outgoing();
  /** The requests in `outgoing`, in their order. */
  private batch: Pending[] = [];
  private isFlushPlanned = false;
  private readonly flushBound = () => this.flush();
  /** The requests without a result, by tag. */
  private readonly pending: (Pending | undefined)[] = [];
  private readonly freeTags: number[] = [];
  private pendingCount = 0;
  private isRef = true;
  private readonly listening = new WeakMap<AbortSignal, Listening>();
  private readonly results = Buffer.allocUnsafeSlow(RESULT_BYTES);
  private readonly resultView = viewOf(this.results);
  /** Set when the user closes the client. */
  isClosed = false;

  /** Begins to use a connection. */
  start(connection: Connection): void {
    this.connection = connection;
    this.deadline = connection.start(() => this.onResults());
  }

  /** Whether an idle client keeps the process alive. Requests in progress always do. */
  setRef(isRef: boolean): void {
    this.isRef = isRef;
    this.connection?.setRef(isRef || this.pendingCount > 0);
  }

  // Requests.

  /**
   * Does one operation, and resolves the user's promise with its result or its error. There is no
   * other promise: each would cost as much as all else here.
   */
  operate(
    action: Action,
    { low, high, name }: Target,
    key: Bytes,
    value: Bytes | bigint | number | undefined,
    { deadline, signal, ttl }: Readonly<Checked>,
    resolve: (result: never) => void,
  ): void {
    const pending = this.begin(Form.One, 1, deadline, Class.Operations, signal, resolve, name);
    if (pending === undefined) return;
    try {
      this.outgoing.operation(action, low, high, key, value, ttl);
    } catch (error) {
      this.undo(pending);
      throw error;
    }
    this.added(pending);
  }

  /** Does one operation for each key. The results are in the order of the keys. */
  async operateMany(
    action: Action,
    { low, high }: Target,
    keys: Bytes[],
    values: Bytes[] | undefined,
    { deadline, signal, ttl }: Readonly<Checked>,
  ): Promise<Result[]> {
    const parts: Promise<Result[]>[] = [];
    const begun: Pending[] = [];
    try {
      for (let from = 0; from < keys.length; from += OPERATIONS_MAX) {
        const to = Math.min(keys.length, from + OPERATIONS_MAX);
        let error: unknown;
        parts.push(
          new Promise((resolve) => {
            const pending = this.begin(
              Form.List,
              to - from,
              deadline,
              Class.Operations,
              signal,
              resolve,
            );
            if (pending === undefined) return;
            try {
              for (let at = from; at < to; at++) {
                const value = values?.[at];
                this.outgoing.operation(action, low, high, keys[at] as Bytes, value, ttl);
              }
            } catch (cause) {
              this.undo(pending);
              error = cause;
              return;
            }
            begun.push(pending);
            this.added(pending, true);
          }),
        );
        if (error !== undefined) throw error;
      }
    } catch (error) {
      // A wrong argument: nothing of the batch is done, because nothing was submitted.
      begun.forEach((pending) => this.cancel(pending));
      throw error;
    }
    this.submitIfLong();
    const results = await Promise.all(parts);
    return results.length === 1 ? (results[0] as Result[]) : results.flat();
  }

  ask(
    kind: Question,
    name: string,
    first: bigint,
    second: bigint,
    deadline: number | undefined,
    signal: AbortSignal | undefined,
    made?: NewTable,
  ): Promise<Result[]> {
    return new Promise((resolve) => {
      const pending = this.begin(Form.List, 1, deadline, Class.Question, signal, resolve);
      if (pending === undefined) return;
      this.outgoing.question(kind, name, first, second, made);
      this.added(pending);
    });
  }

  openScan({ low, high }: Target): number {
    return this.connection?.openScan(low, high) ?? 0;
  }

  closeScan(scan: number): void {
    this.connection?.closeScan(scan);
  }

  page(
    scan: number,
    deadline: number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Page | Failure> {
    return new Promise((resolve) => {
      const pending = this.begin(Form.Page, 1, deadline, Class.Page, signal, resolve);
      if (pending === undefined) return;
      this.outgoing.scan(scan);
      this.added(pending);
    });
  }

  /** Writes the head of a request. Returns nothing if the request has failed already. */
  private begin(
    form: Form,
    operations: number,
    deadline: number | undefined,
    type: Class,
    signal: AbortSignal | undefined,
    resolve: (result: never) => void,
    table?: string,
  ): Pending | undefined {
    if (this.isClosed || signal?.aborted) {
      const refused = new Pending(-1, form, operations, resolve, signal, table);
      fail(refused, this.isClosed ? closedFailure : cancelledFailure);
      return undefined;
    }
    const tag = this.freeTags.pop() ?? this.pending.length;
    const pending = new Pending(tag, form, operations, resolve, signal, table);
    pending.start = this.outgoing.used;
    this.outgoing.head(tag, deadline ?? this.deadline, type, operations);
    this.pending[tag] = pending;
    if (++this.pendingCount === 1 && !this.isRef) this.connection?.setRef(true);
    if (signal !== undefined) this.listen(signal, pending);
    return pending;
  }

  /** Ends a request that could not be written. */
  private undo(pending: Pending): void {
    this.outgoing.used = pending.start;
    this.forget(pending);
  }

  /** Plans the submission of a request that has been written. */
  private added(pending: Pending, isPart = false): void {
    pending.end = this.outgoing.used;
    this.batch.push(pending);
    if (!this.isFlushPlanned) {
      this.isFlushPlanned = true;
      // A tick runs after all microtasks that are ready, and so after the requests that they make.
      process.nextTick(this.flushBound);
    }
    if (!isPart) this.submitIfLong();
  }

  private submitIfLong(): void {
    if (this.outgoing.used >= SUBMIT_BYTES) this.submit();
  }

  private flush(): void {
    this.isFlushPlanned = false;
    this.submit();
  }

  /** Submits the requests of this turn. */
  private submit(): void {
    const { batch, outgoing, connection } = this;
    if (batch.length === 0) return;
    this.batch = [];
    let first = -1;
    let failure = closedFailure;
    try {
      first = connection?.submit(outgoing.buffer, outgoing.used) ?? -1;
    } catch (error) {
      failure = internalFailure(String(error));
    }
    outgoing.clear();
    if (first < 0) {
      if (failure === closedFailure) failure = this.reasonOfEnd();
      for (const pending of batch) this.complete(pending, failure);
      return;
    }
    for (let at = 0; at < batch.length; at++) (batch[at] as Pending).number = first + at;
  }

  /** The failure of requests that a closed connection refused. */
  private reasonOfEnd(): Failure {
    const panic = this.isClosed ? null : native().latestPanic();
    return panic === null ? closedFailure : internalFailure(panic);
  }

  // Cancelling.

  private listen(signal: AbortSignal, pending: Pending): void {
    let listening = this.listening.get(signal);
    if (listening === undefined) {
      const requests = new Set<Pending>();
      const onAbort = () => requests.forEach((request) => this.cancel(request));
      listening = { requests, onAbort };
      this.listening.set(signal, listening);
    }
    if (listening.requests.size === 0) signal.addEventListener("abort", listening.onAbort);
    listening.requests.add(pending);
  }

  private cancel(pending: Pending): void {
    if (pending.number >= 0) {
      this.connection?.cancel(pending.number);
      return;
    }
    // It has not been submitted, so it is taken out of the buffer.
    const at = this.batch.indexOf(pending);
    if (at < 0) return;
    this.batch.splice(at, 1);
    const bytes = pending.end - pending.start;
    this.outgoing.remove(pending.start, pending.end);
    for (const later of this.batch.slice(at)) {
      later.start -= bytes;
      later.end -= bytes;
    }
    this.complete(pending, cancelledFailure);
  }

  // Results.

  /** Takes all results that are ready. */
  private onResults(): void {
    const { connection, results } = this;
    if (connection === undefined) return;
    try {
      for (;;) {
        const bytes = connection.take(results);
        if (bytes === 0) return;
        if (bytes > 0) {
          this.read(new Reader(results, this.resultView, bytes));
        } else {
          const large = Buffer.allocUnsafeSlow(-bytes);
          this.read(new Reader(large, viewOf(large), connection.take(large)));
        }
      }
    } catch (error) {
      // A bug. The results are lost, so all outcomes are unknown.
      this.abandon(internalFailure(String(error)));
    }
  }

  private read(reader: Reader): void {
    while (!reader.isAtEnd()) {
      const tag = reader.tag();
      const count = reader.count();
      const pending = this.pending[tag];
      if (pending === undefined) throw new Error(`no request has the tag ${tag}`);
      const resolve = pending.resolve as (result: unknown) => void;
      let result: unknown;
      if (pending.form === Form.One) {
        result = reader.result();
        if (result instanceof Failure) result = raised(pending, result);
      } else if (pending.form === Form.List) {
        const list: Result[] = [];
        for (let at = 0; at < count; at++) list.push(reader.result());
        result = list;
      } else {
        result = reader.page(count);
      }
      this.forget(pending);
      resolve(result);
    }
  }

  private complete(pending: Pending, failure: Failure): void {
    this.forget(pending);
    fail(pending, failure);
  }

  private forget(pending: Pending): void {
    this.pending[pending.tag] = undefined;
    this.freeTags.push(pending.tag);
    if (--this.pendingCount === 0 && !this.isRef) this.connection?.setRef(false);
    const { signal } = pending;
    if (signal === undefined) return;
    const listening = this.listening.get(signal);
    if (listening?.requests.delete(pending) && listening.requests.size === 0) {
      signal.removeEventListener("abort", listening.onAbort);
    }
  }

  // The end.

  /** Refuses further requests, and submits those of this turn. */
  stop(): void {
    this.submit();
    this.isClosed = true;
  }

  /** Takes the last results and lets go of the connection. */
  end(): void {
    this.onResults();
    this.abandon(internalFailure("the client was closed while a request had no result"));
  }

  private abandon(failure: Failure): void {
    this.isClosed = true;
    this.batch = [];
    this.outgoing.clear();
    this.connection?.end();
    this.connection = undefined;
    for (const pending of this.pending) {
      if (pending !== undefined) this.complete(pending, failure);
    }
  }
}

/** Hands a failure to a request in the form in which it takes its results. */
function fail(pending: Pending, failure: Failure): void {
  const resolve = pending.resolve as (result: unknown) => void;
  if (pending.form === Form.One) resolve(raised(pending, failure));
  else if (pending.form === Form.Page) resolve(failure);
  else resolve(new Array<Failure>(pending.operations).fill(failure));
}

/**
 * Returns a promise that is rejected with the error of a single operation, after two turns of the
 * microtasks. By then the user's promise waits for this one, so the error's stack leads over both
 * to the code that awaits the operation.
 */
async function raised({ signal, table }: Pending, failure: Failure): Promise<never> {
  await undefined;
  await undefined;
  throw errorOf(failure, signal, table);
}
