// BullMQ: jobs, a worker, and the stream of events.

import { Queue, QueueEvents, Worker } from "bullmq";
import { count, Done, insist, port, say } from "./common.mjs";

const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null, retryStrategy: () => 50 };
const done = new Done();
const queue = new Queue("jobs", { connection });
const worker = new Worker(
  "jobs",
  async (job) => {
    done.add(job.data.job);
    return job.data.job ** 2;
  },
  { connection, concurrency: 8, lockDuration: 2000, stalledInterval: 1000 },
);
const events = new QueueEvents("jobs", { connection });
let completed = 0;
events.on("completed", () => (completed += 1));
for (const each of [queue, worker, events]) each.on("error", () => {});
await insist(() => events.waitUntilReady());

for (let job = 0; job < count; job += 1) {
  await insist(() => queue.add("square", { job }, { jobId: `job ${job}`, attempts: 5, delay: job % 10 === 9 ? 500 : 0 }));
  if (job % 50 === 49) say(`begun ${job + 1}`);
}
await done.awaitAll();
for (let job = 0; job < count; job += 1) {
  const found = await insist(() => queue.getJob(`job ${job}`));
  for (let tries = 0; !(await insist(() => found.isCompleted())); tries += 1) {
    if (tries === 600) throw new Error(`job ${job} is stuck: ${await found.getState()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
say(`all ${count} completed, ${completed} events`);
await Promise.all([worker.close(true), events.close(), queue.close()]);
process.exit(0);
