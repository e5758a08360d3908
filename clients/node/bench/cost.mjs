// Measures the cost of a read: one at a time, and with 100 in flight.
//
//     THUNDERHEAD=… node bench/cost.mjs [URL]
//
// It prints the best of several rounds, because other programs of the machine only make a round
// slower.

import { connect } from "thunderhead";

const rounds = 7;
const db = await connect(process.argv[2] ?? "thunderhead://localhost:7070");
const table = await db.table("cost", { create: true });
await table.put("key", "x".repeat(100));

async function alone(count) {
  for (let at = 0; at < count; at++) await table.get("key");
}

async function inFlight(count, width) {
  const worker = async () => {
    for (let at = 0; at < count / width; at++) await table.get("key");
  };
  await Promise.all(Array.from({ length: width }, worker));
}

async function many(count, width) {
  const keys = Array.from({ length: width }, () => "key");
  for (let at = 0; at < count / width; at++) await table.getMany(keys);
}

for (const [name, count, run] of [
  ["alone", 5_000, alone],
  ["100 in flight", 100_000, (count) => inFlight(count, 100)],
  ["getMany of 100", 100_000, (count) => many(count, 100)],
]) {
  const times = [];
  const cpus = [];
  await run(count / 5);
  for (let round = 0; round < rounds; round++) {
    const cpu = process.cpuUsage();
    const begin = process.hrtime.bigint();
    await run(count);
    times.push(Number(process.hrtime.bigint() - begin) / 1000 / count);
    const { user, system } = process.cpuUsage(cpu);
    cpus.push((user + system) / count);
  }
  times.sort((a, b) => a - b);
  cpus.sort((a, b) => a - b);
  console.log(
    `${name.padEnd(16)} best ${times[0].toFixed(2)} us, ` +
      `median ${times[rounds >> 1].toFixed(2)} us; ` +
      `processor time of all threads, best ${cpus[0].toFixed(2)} us`,
  );
}
await db.close();
