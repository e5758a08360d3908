// Ends while operations are pending.
import { connect } from "thunderhead";

const db = await connect(process.argv[2]);
const table = await db.table("t", { create: true });
for (let at = 0; at < 1000; at++) table.put(`${at}`, "x").catch(() => {});
await table.put("first", "x");
for (let at = 0; at < 1000; at++) table.put(`${at}`, "x").catch(() => {});
if (process.argv[3] === "exit") process.exit(7);
setImmediate(() => {
  throw new Error("the program fails");
});
