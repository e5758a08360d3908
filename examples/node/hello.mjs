// The first program: write, read, write under a condition, and look at all objects.
//
//     node hello.mjs thunderhead://localhost:7070

import { ConditionFailedError, connect } from "thunderhead";

const db = await connect(process.argv[2] ?? "thunderhead://localhost:7070");
const users = await db.table("users", { create: true });

const { version } = await users.put("ada", "analyst");
const found = await users.get("ada");
console.log(`ada: ${found?.value}`);
console.log(`missing: ${await users.get("missing")}`); // A missing key is a value, not an error.

// This write happens only if the object has not changed since it was read.
await users.put("ada", "countess", { ifVersion: version });
try {
  await users.put("ada", "baroness", { ifVersion: version });
} catch (error) {
  if (!(error instanceof ConditionFailedError)) throw error;
  console.log(error.version === undefined ? "ada is gone" : "ada has changed meanwhile");
}

// Requests that begin together are sent together.
await Promise.all([users.put("grace", "admiral"), users.put("joan", "engineer")]);
for await (const { key, value } of users.scan()) console.log(`${key}: ${value}`);

await db.close();
