// The driver of the Node client: docs/testing/drivers.md says what it reads and writes.
//
// It reads requests from its standard input, one line of JSON each, and writes a reply for each. A
// request that makes no sense is a fault of the judge: it ends the driver with status 1.

import { createInterface } from "node:readline";
import {
  BatchError,
  ConditionFailedError,
  connect,
  NotANumberError,
  NotDoneError,
  OutcomeUnknownError,
  ThunderheadError,
} from "thunderhead";

const decoded = (text) => Buffer.from(text, "base64");
const encoded = (bytes) => bytes.toString("base64");

/** Returns the options for the condition of a request. */
function conditions({ if: condition }) {
  if (condition === undefined) return {};
  if (condition === "absent") return { ifAbsent: true };
  if (condition === "present") return { ifPresent: true };
  const version = BigInt(condition.version);
  // No object has version 0: it stands for an absent one.
  return version === 0n ? { ifAbsent: true } : { ifVersion: version };
}

const versioned = (changed) =>
  changed === undefined ? { absent: true } : { version: `${changed.version}` };

const found = (it) =>
  it === undefined ? { absent: true } : { version: `${it.version}`, value: encoded(it.value) };

/** Returns the outcome that the type of an error tells. */
function outcome(error) {
  if (error instanceof NotDoneError) return "not_done";
  if (error instanceof OutcomeUnknownError) return "unknown";
  throw error;
}

function failed(error) {
  const hasVersion = error instanceof ConditionFailedError || error instanceof NotANumberError;
  const version = `${(hasVersion && error.version) || 0n}`;
  return { code: error.number, outcome: outcome(error), version, text: error.message };
}

/** Awaits the results of a call with `count` operations, of which each has its own outcome. */
async function each(call, count, convert) {
  const results = await call.catch((error) => {
    if (error instanceof BatchError) return error.results;
    return Array(count).fill(error);
  });
  return {
    results: results.map((it) => (it instanceof Error ? { error: failed(it) } : convert(it))),
  };
}

/** Performs an operation on a table, and returns the `ok` of its reply. */
async function perform(table, request) {
  const canceller = new AbortController();
  const performed = begin(table, request, canceller.signal);
  if (request.cancel) canceller.abort();
  return performed;
}

async function begin(table, request, signal) {
  const key = decoded(request.key ?? "");
  const options = { signal, ...conditions(request) };
  switch (request.op) {
    case "get":
      return found(await table.get(key, { signal }));
    case "put":
      return versioned(await table.put(key, decoded(request.value), options));
    case "put_number":
      return versioned(await table.putNumber(key, BigInt(request.number), options));
    case "delete":
      return versioned(await table.delete(key, options));
    case "increment": {
      const { value, version } = await table.increment(key, BigInt(request.by), { signal });
      return { version: `${version}`, sum: `${value}` };
    }
    case "get_many": {
      const keys = request.keys.map(decoded);
      return each(table.getMany(keys), keys.length, found);
    }
    case "put_many": {
      const objects = request.objects.map((pair) => pair.map(decoded));
      return each(table.putMany(objects), objects.length, versioned);
    }
    case "scan": {
      const objects = [];
      for await (const it of table.scan()) objects.push({ key: encoded(it.key), ...found(it) });
      return { objects };
    }
    default:
      throw new Error(`there is no operation ${request.op}`);
  }
}

/** A client, which performs its requests one after the other. */
class Performer {
  #db;
  #tables = new Map();
  /** The last request that it was given. */
  #last = Promise.resolve();

  push(request) {
    this.#last = this.#last.then(() => this.#answer(request));
  }

  /** Waits for its requests and closes the client. */
  async end() {
    await this.#last;
    await this.#db?.close();
  }

  async #answer(request) {
    const { id } = request;
    try {
      write({ id, ok: await this.#reply(request) });
    } catch (error) {
      if (!(error instanceof ThunderheadError)) throw error;
      write({ id, error: failed(error) });
    }
  }

  async #reply(request) {
    if (request.op === "open") {
      if (request.mode !== "async") throw new Error(`there is no mode ${request.mode}`);
      await this.#db?.close();
      this.#tables.clear();
      this.#db = await connect(request.url);
      return {};
    }
    if (this.#db === undefined) throw new Error(`the client ${request.client} is not open`);
    if (request.op === "close") {
      await this.#db.close();
      return {};
    }
    const name = request.table;
    if (!this.#tables.has(name)) this.#tables.set(name, await this.#db.table(name));
    return perform(this.#tables.get(name), request);
  }
}

const write = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);

write({ ready: true, language: "node", modes: ["async"], cancels: ["async"] });
const performers = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const { client } = request;
  if (!performers.has(client)) performers.set(client, new Performer());
  performers.get(client).push(request);
}
await Promise.all(Array.from(performers.values(), (it) => it.end()));
