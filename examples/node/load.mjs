// Loads many objects, and shows the progress.
//
//     node load.mjs thunderhead://localhost:7070 100000

import { BatchError, connect, ThunderheadError } from "thunderhead";

const [url = "thunderhead://localhost:7070", total = "100000"] = process.argv.slice(2);
const count = Number(total);
const db = await connect(url, { deadline: 60_000 });
const table = await db.table("loaded", { create: true });

/** The objects to load, in batches of 500. */
function* batches() {
  for (let from = 0; from < count; from += 500) {
    const numbers = Array.from({ length: Math.min(500, count - from) }, (_, at) => from + at);
    yield numbers.map((number) => [`key ${number}`, `value ${number}`]);
  }
}

/** Writes objects. A write without a condition may be repeated, also if its outcome is unknown. */
async function write(objects, tries = 3) {
  try {
    await table.putMany(objects);
  } catch (error) {
    if (!(error instanceof BatchError) || tries === 1) throw error;
    const failed = objects.filter((_, at) => error.results[at] instanceof ThunderheadError);
    await write(failed, tries - 1);
  }
}

// Four batches at a time keep the servers busy and need little memory.
const remaining = batches();
let loaded = 0;
async function loader() {
  for (const objects of remaining) {
    await write(objects);
    const before = loaded;
    loaded += objects.length;
    const percent = (objects) => Math.floor((10 * objects) / count) * 10;
    if (percent(loaded) !== percent(before)) console.log(`${percent(loaded)} %`);
  }
}
await Promise.all(Array.from({ length: 4 }, loader));
console.log(`loaded ${loaded} objects`);
await db.close();
