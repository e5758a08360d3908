// Counts, and never counts twice, although the server may be killed and restarted meanwhile.
//
//     node counter.mjs thunderhead://localhost:7070 10000

import { connect, OutcomeUnknownError } from "thunderhead";

const [url = "thunderhead://localhost:7070", total = "10000"] = process.argv.slice(2);
// Within the deadline, the client repeats a request until it knows the outcome. The server does
// each increment once, however often the request arrives.
const db = await connect(url, { deadline: 120_000 });
const counters = await db.table("counters", { create: true });
await counters.putNumber("visits", 0);

let left = Number(total);
async function visitor() {
  while (left > 0) {
    left -= 1;
    const { value } = await counters.increment("visits");
    if (value % 1000n === 0n) console.log(`${value} visits`);
  }
}

try {
  await Promise.all(Array.from({ length: 50 }, visitor));
  console.log(`counted ${(await counters.getNumber("visits"))?.value} of ${total}`);
} catch (error) {
  // Even the deadline was not enough. The number may include this visit or not.
  if (!(error instanceof OutcomeUnknownError)) throw error;
  console.error(`gave up: ${error.message}`);
  process.exitCode = 1;
} finally {
  await db.close();
}
