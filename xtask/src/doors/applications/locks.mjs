// redlock and rate-limiter-flexible: a counter behind a lock, and limits of requests.

import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import Redlock from "redlock";
import { count, insist, port, say } from "./common.mjs";

const client = new Redis({ host: "127.0.0.1", port, retryStrategy: () => 50, maxRetriesPerRequest: 1 });
client.on("error", () => {});
const redlock = new Redlock([client], { retryCount: 0 });
redlock.on("error", () => {});

// Each turn holds the lock. So reading, adding and writing lose no turn, also when one repeats.
for (let turn = 0; turn < count; turn += 1) {
  await insist(async () => {
    const lock = await redlock.acquire(["the lock"], 1000);
    const found = Number((await client.get("counter")) ?? 0);
    if (found !== turn && found !== turn + 1) throw new Error(`the counter is ${found} in turn ${turn}`);
    await client.set("counter", turn + 1);
    await lock.release();
  });
  if (turn % 50 === 49) say(`begun ${turn + 1}`);
}
const counter = await insist(() => client.get("counter"));
if (Number(counter) !== count) throw new Error(`the counter is ${counter}`);

const limiter = new RateLimiterRedis({ storeClient: client, points: 5, duration: 60, keyPrefix: "limit" });
let [passed, refused] = [0, 0];
for (let request = 0; request < 8; request += 1) {
  await limiter.consume("one user").then(
    () => (passed += 1),
    (why) => {
      if (why instanceof Error) throw why;
      refused += 1;
    },
  );
}
if (passed !== 5 || refused !== 3) throw new Error(`${passed} passed, ${refused} were refused`);
say(`all ${count} turns were counted once`);
process.exit(0);
