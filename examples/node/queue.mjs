// A work queue: several workers share jobs, and each job is taken by one worker.
//
//     node queue.mjs thunderhead://localhost:7070

import { ConditionFailedError, connect } from "thunderhead";

const db = await connect(process.argv[2] ?? "thunderhead://localhost:7070");
const jobs = await db.table("jobs", { create: true });

// A job that is in the queue already stays as it is.
for (let number = 1; number <= 20; number++) {
  const job = JSON.stringify({ state: "ready", number });
  await jobs.put(`job ${number}`, job, { ifAbsent: true }).catch((error) => {
    if (!(error instanceof ConditionFailedError)) throw error;
  });
}

/** Takes a job. Resolves to its new version, or to `undefined` if another worker was faster. */
async function take(key, job, version, worker) {
  try {
    const taken = JSON.stringify({ ...job, state: "taken", worker });
    return (await jobs.put(key, taken, { ifVersion: version })).version;
  } catch (error) {
    if (error instanceof ConditionFailedError) return undefined;
    throw error;
  }
}

async function work(worker) {
  let done = 0;
  for await (const { key, value, version } of jobs.scan()) {
    const job = JSON.parse(value.toString());
    if (job.state !== "ready") continue;
    const taken = await take(key, job, version, worker);
    if (taken === undefined) continue;
    const result = job.number ** 2; // The work.
    const finished = JSON.stringify({ ...job, state: "done", worker, result });
    await jobs.put(key, finished, { ifVersion: taken });
    done += 1;
  }
  console.log(`${worker} has done its share`);
  return done;
}

const workers = ["ada", "grace", "joan"];
const done = await Promise.all(workers.map(work));
console.log(`done: ${done.reduce((sum, each) => sum + each, 0)} jobs`);
await db.close();
