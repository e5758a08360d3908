/**
 * Errors: two kinds, by type.
 *
 * - A {@link NotDoneError} says that nothing was done. The operation may be repeated.
 * - An {@link OutcomeUnknownError} says that a change may have been done or not. The program must
 *   look before it repeats the change.
 *
 * A {@link BatchError} is neither: it has one outcome for each of many operations. An argument of a
 * wrong type is a `TypeError`, as everywhere in JavaScript.
 */

import { Failure } from "./failure.js";

/** The stable codes of errors. A code is never used again for another error. */
export type ErrorCode =
  | "ABORT_ERR"
  | "BATCH_FAILED"
  | "CLOSED"
  | "CONDITION_FAILED"
  | "INTERNAL"
  | "INVALID_ARGUMENT"
  | "NO_SUCH_TABLE"
  | "NOT_A_NUMBER"
  | "OUTCOME_UNKNOWN"
  | "OVERFLOW"
  | "REFUSED"
  | "SYSTEM"
  | "TABLE_EXISTS"
  | "TIMED_OUT";

/** An error of the client or the cluster. */
export abstract class ThunderheadError extends Error {
  /** A stable text that identifies the kind of error. */
  abstract readonly code: ErrorCode;
  /** The number of the error in the client's core, for logs; 0 if JavaScript detected it. */
  readonly number: number;

  /** @internal */
  constructor(message: string, number = 0, options?: ErrorOptions) {
    super(message, options);
    this.number = number;
  }
}

/** Nothing was done. */
export abstract class NotDoneError extends ThunderheadError {}

/**
 * A change may have been done or not. Read the object, then decide whether to repeat the change.
 *
 * If an `AbortSignal` ended the operation, `cause` is the signal's reason.
 */
export class OutcomeUnknownError extends ThunderheadError {
  readonly code: ErrorCode = "OUTCOME_UNKNOWN";
}

/** A bug in the client. A change may have been done or not. Please report it. */
export class InternalError extends OutcomeUnknownError {
  override readonly code = "INTERNAL";
}

/** The condition of an operation does not hold. */
export class ConditionFailedError extends NotDoneError {
  readonly code = "CONDITION_FAILED";
  /** The version that the object has; `undefined` if there is no such object. */
  readonly version: bigint | undefined;

  /** @internal */
  constructor(version: bigint | undefined, number?: number) {
    const found =
      version === undefined ? "there is no such object" : `the object's version is ${version}`;
    super(`the condition does not hold: ${found}; read the object and decide again`, number);
    this.version = version;
  }
}

/** The deadline passed, and nothing was done. The message names the obstacle. */
export class TimedOutError extends NotDoneError {
  readonly code = "TIMED_OUT";
}

/** There is no such table. */
export class NoSuchTableError extends NotDoneError {
  readonly code = "NO_SUCH_TABLE";
}

/** There is a table of this name already. */
export class TableExistsError extends NotDoneError {
  readonly code = "TABLE_EXISTS";
}

/** The client was closed before the operation began. */
export class ClosedError extends NotDoneError {
  readonly code = "CLOSED";
}

/**
 * An `AbortSignal` ended the operation before it was done. Its name is `AbortError`, as everywhere
 * in JavaScript, and `cause` is the signal's reason.
 */
export class CancelledError extends NotDoneError {
  readonly code = "ABORT_ERR";
}

/** The object is not a number of the kind that the operation needs. */
export class NotANumberError extends NotDoneError {
  readonly code = "NOT_A_NUMBER";
  /** The version that the object has. */
  readonly version: bigint | undefined;

  /** @internal */
  constructor(message: string, version: bigint | undefined, number?: number) {
    super(message, number);
    this.version = version;
  }
}

/** The sum does not fit into 64 bits. */
export class OverflowError extends NotDoneError {
  readonly code = "OVERFLOW";
}

/** An argument has the right type and a wrong value. */
export class InvalidArgumentError extends NotDoneError {
  readonly code = "INVALID_ARGUMENT";
}

/** The cluster refused the operation for another reason, which the message says. */
export class RefusedError extends NotDoneError {
  readonly code = "REFUSED";
}

/** The system has no descriptor, thread or memory left for a client. */
export class SystemError extends NotDoneError {
  readonly code = "SYSTEM";
}

/**
 * Some of many operations failed. Each was done, not done, or has an unknown outcome by itself:
 * see {@link BatchError.results}.
 */
export class BatchError<T = unknown> extends ThunderheadError {
  readonly code = "BATCH_FAILED";
  /** The result or the error of each operation, in the order of the operations. */
  readonly results: readonly (T | NotDoneError | OutcomeUnknownError)[];
  /** How many operations failed. */
  readonly failed: number;

  /** @internal */
  constructor(results: (T | NotDoneError | OutcomeUnknownError)[]) {
    const errors = results.filter((it) => it instanceof ThunderheadError);
    const first = errors[0] as ThunderheadError;
    super(
      `${errors.length} of ${results.length} operations failed; look at each of the results; ` +
        `the first error: ${first.message}`,
      0,
      { cause: first },
    );
    this.results = results;
    this.failed = errors.length;
  }
}

// The name is on the prototype, as in the classes of the language.
for (const type of [
  ThunderheadError,
  NotDoneError,
  OutcomeUnknownError,
  InternalError,
  ConditionFailedError,
  TimedOutError,
  NoSuchTableError,
  TableExistsError,
  ClosedError,
  CancelledError,
  NotANumberError,
  OverflowError,
  InvalidArgumentError,
  RefusedError,
  SystemError,
  BatchError,
]) {
  const value = type === CancelledError ? "AbortError" : type.name;
  Object.defineProperty(type.prototype, "name", { value, configurable: true, writable: true });
}

/** The numbers of errors in the client's core, and 1000 plus the statuses of a server. */
const CONDITION_FAILED = 1;
const NO_SUCH_TABLE = 2;
const INCOMPREHENSIBLE = 3;
const NO_COORDINATORS = 10;
const SYSTEM = 11;
const CLOSED = 12;
const CANCELLED = 20;
const FORKED = 21;
const KEY_EMPTY = 1010;
const KEY_TOO_LONG = 1011;
const VALUE_TOO_LONG = 1012;
const NOT_A_NUMBER = 1013;
const OVERFLOW = 1014;
const TABLE_EXISTS = 1019;
const NO_TABLE_OF_THIS_NAME = 1020;
const BAD_NAME = 1021;
const BAD_RANGE = 1026;
const NO_SUCH_SERVER = 1027;
const TIMED_OUT = new Set([4, 5, 6, 7, 9, 13, 14, 15, 16, 17, 18, 19]);

/** @internal */
export const closedFailure = new Failure(CLOSED, false, 0n, "");
/** @internal */
export const cancelledFailure = new Failure(CANCELLED, false, 0n, "");

/** @internal */
export function internalFailure(text: string): Failure {
  return new Failure(-1, true, 0n, text);
}

/**
 * Returns the error for a failure. `table` is the name of the table that the operation named.
 *
 * @internal
 */
export function errorOf(
  failure: Failure,
  signal?: AbortSignal,
  table?: string,
): NotDoneError | OutcomeUnknownError {
  const { number, isUnknown, version, text } = failure;
  const cause = signal?.aborted ? { cause: signal.reason as unknown } : undefined;
  if (number === -1) {
    return new InternalError(
      `a bug in the client: ${text}; a change may have been done or not, check before you repeat ` +
        "it; please report this",
    );
  }
  if (isUnknown) {
    const advice =
      number === INCOMPREHENSIBLE ? "; a change may have been done or not, check first" : "";
    return new OutcomeUnknownError(text + advice, number, cause);
  }
  if (TIMED_OUT.has(number)) return new TimedOutError(text, number);
  switch (number) {
    case CONDITION_FAILED:
      return new ConditionFailedError(version === 0n ? undefined : version, number);
    case NO_SUCH_TABLE:
    case NO_TABLE_OF_THIS_NAME:
      return new NoSuchTableError(
        table === undefined
          ? text
          : `there is no table ${JSON.stringify(table)}; create it with createTable, ` +
            "or check its name",
        number,
      );
    case TABLE_EXISTS:
      return new TableExistsError(`${text}; use it with table, or choose another name`, number);
    case CLOSED:
    case FORKED:
      return new ClosedError(
        "the client was closed, and nothing was done; make a new one with connect",
        number,
      );
    case CANCELLED:
      return new CancelledError(
        "the operation was cancelled, and nothing was done; repeat it if you need it after all",
        number,
        cause,
      );
    case NOT_A_NUMBER:
      return new NotANumberError(
        `${text}; write it with putNumber or putFloat first`,
        version === 0n ? undefined : version,
        number,
      );
    case OVERFLOW:
      return new OverflowError(text, number);
    case NO_COORDINATORS:
    case KEY_EMPTY:
    case KEY_TOO_LONG:
    case VALUE_TOO_LONG:
    case BAD_NAME:
    case BAD_RANGE:
    case NO_SUCH_SERVER:
    case 0:
      return new InvalidArgumentError(text, number);
    case SYSTEM:
      return new SystemError(text, number);
    default:
      return new RefusedError(text, number);
  }
}
