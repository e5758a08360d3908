/**
 * The client for Thunderhead.
 *
 * ```ts
 * import { connect } from "thunderhead";
 *
 * const db = await connect("thunderhead://localhost");
 * const users = await db.table("users", { create: true });
 * const { version } = await users.put("ada", "analyst");
 * await users.put("ada", "countess", { ifVersion: version });
 * for await (const { key, value } of users.scan()) console.log(`${key}: ${value}`);
 * await db.close();
 * ```
 *
 * @module
 */

export type { Bytes } from "./bytes.js";
export {
  Client,
  connect,
  type ConnectOptions,
  type CreateOptions,
  type TableOptions,
} from "./client.js";
export {
  BatchError,
  CancelledError,
  ClosedError,
  ConditionFailedError,
  type ErrorCode,
  InternalError,
  InvalidArgumentError,
  NoSuchTableError,
  NotANumberError,
  NotDoneError,
  OutcomeUnknownError,
  OverflowError,
  RefusedError,
  SystemError,
  TableExistsError,
  ThunderheadError,
  TimedOutError,
} from "./errors.js";
export type {
  CallOptions,
  DeleteOptions,
  ExpireOptions,
  NewTableOptions,
  Policy,
  PutManyOptions,
  PutOptions,
} from "./options.js";
export type { Changed, Entry, Found, Sum, TableInfo, TabletInfo } from "./results.js";
export { Scan } from "./scan.js";
export { Table } from "./table.js";
