// An idle client that is not referenced: the process ends by itself, but not before its work.
import { connect } from "thunderhead";

const db = await connect(process.argv[2]);
db.unref();
const table = await db.table("t", { create: true });
await table.put("key", "value");
console.log("written");
db.ref();
db.unref();
await table.get("key");
console.log("read");
