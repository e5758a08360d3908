// The types, as a program in TypeScript sees them. `tsc --strict` checks this file; nothing runs it.

import {
  BatchError,
  CancelledError,
  type Changed,
  Client,
  ConditionFailedError,
  connect,
  type Entry,
  type ErrorCode,
  type Found,
  NotDoneError,
  OutcomeUnknownError,
  type Sum,
  Table,
  type TableInfo,
  ThunderheadError,
} from "thunderhead";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function is<_ extends true>(): void {}

const db = await connect("thunderhead://localhost", { deadline: 500, polling: "never" });
is<Equal<typeof db, Client>>();
const table = await db.table("users", { create: { span: 2 } });
is<Equal<typeof table, Table>>();

is<Equal<Awaited<ReturnType<Table["get"]>>, Found | undefined>>();
is<Equal<Awaited<ReturnType<Table["put"]>>, Changed>>();
is<Equal<Awaited<ReturnType<Table["delete"]>>, Changed | undefined>>();
is<Equal<Awaited<ReturnType<Table["increment"]>>, Sum<bigint>>>();
is<Equal<Awaited<ReturnType<Table["incrementFloat"]>>, Sum<number>>>();
is<Equal<Awaited<ReturnType<Table["getMany"]>>, (Found | undefined)[]>>();
is<Equal<Awaited<ReturnType<Client["tables"]>>, TableInfo[]>>();

const found = await table.get("ada");
// @ts-expect-error The object may be missing.
found.value;
const version: bigint | undefined = found?.version;
is<Equal<NonNullable<typeof found>["value"], Buffer>>();

await table.put("ada", new Uint8Array(2), { ifVersion: 5n, signal: AbortSignal.timeout(50) });
await table.put(Buffer.from("ada"), "countess", { ifAbsent: true });
// @ts-expect-error A version is a bigint.
await table.put("ada", "x", { ifVersion: 5 });
// @ts-expect-error An undefined version is not "no condition".
await table.put("ada", "x", { ifVersion: version });
// @ts-expect-error A condition has a name of its own.
await table.put("ada", "x", { ifVersoin: 5n });
// @ts-expect-error A value is no number.
await table.put("ada", 5);
// @ts-expect-error A key is no number.
await table.get(5);
// @ts-expect-error A read has no condition.
await table.get("ada", { ifVersion: 5n });
// @ts-expect-error A delete of an absent object makes no sense.
await table.delete("ada", { ifAbsent: true });
// @ts-expect-error A floating-point increment takes a number.
await table.incrementFloat("n", 1n);
// @ts-expect-error Only connect makes a client.
new Client();
// @ts-expect-error Only a client makes a table.
new Table();
// @ts-expect-error The internals are not public.
Table.of;

await table.put("ada", "x", { ttl: 60_000, ifAbsent: true });
is<Equal<Awaited<ReturnType<Table["expire"]>>, Changed | undefined>>();
is<Equal<Awaited<ReturnType<Table["ttl"]>>, number | undefined>>();
await db.createTable("cache", { ttl: 60_000, policy: "cache", span: 2, deadline: 100 });
await db.createTable("small", { maxBytes: 2 ** 30, reservedBytes: 2 ** 20 });
await db.table("cache", { create: { ttl: Infinity, policy: "durable" } });
// @ts-expect-error There is no such policy.
await db.createTable("cache", { policy: "archive" });
// @ts-expect-error A read has no time to live.
await table.get("ada", { ttl: 5 });

await table.increment("n");
await table.increment("n", 2n ** 60n);
await table.putMany(new Map([["a", "b"]]), { ifAbsent: true });
await table.putMany([["a", Buffer.from("b")]]);
// @ts-expect-error A pair has a value.
await table.putMany([["a"]]);
await table.getMany(new Set(["a"]));

for await (const entry of table.scan({ deadline: 100 })) {
  is<Equal<typeof entry, Entry>>();
  const number: bigint | number | undefined = entry.number;
  void number;
}
for await (const page of table.scan().pages()) is<Equal<typeof page, Entry[]>>();

try {
  await table.put("ada", "x");
} catch (error) {
  if (error instanceof ConditionFailedError) {
    is<Equal<typeof error.version, bigint | undefined>>();
    is<Equal<typeof error.code, "CONDITION_FAILED">>();
  } else if (error instanceof OutcomeUnknownError || error instanceof CancelledError) {
    const thunderhead: ThunderheadError = error;
    const code: ErrorCode = thunderhead.code;
    void code;
  } else if (error instanceof BatchError) {
    const results: readonly unknown[] = error.results;
    void results;
  } else if (error instanceof NotDoneError) {
    const number: number = error.number;
    void number;
  }
}

db.unref().ref();
const disposable: AsyncDisposable = db;
void disposable;
await db.close();
