// connect-redis: the sessions of Express, with the client node-redis.

import { RedisStore } from "connect-redis";
import { createClient } from "redis";
import { count, insist, port, say } from "./common.mjs";

const client = createClient({ socket: { host: "127.0.0.1", port, reconnectStrategy: () => 50 } });
client.on("error", () => {});
await insist(() => client.connect());
const store = new RedisStore({ client, prefix: "session:" });
const call = (name, ...words) =>
  new Promise((resolve, reject) => {
    store[name](...words, (error, found) => (error ? reject(error) : resolve(found)));
  });
const session = (number) => ({ cookie: { maxAge: 600_000, expires: new Date(Date.now() + 600_000) }, number });
for (let number = 0; number < count; number += 1) {
  await insist(() => call("set", `${number}`, session(number)));
  await insist(() => call("touch", `${number}`, session(number)));
  if (number % 50 === 49) say(`begun ${number + 1}`);
}
for (let number = 0; number < count; number += 1) {
  const found = await insist(() => call("get", `${number}`));
  if (found?.number !== number) throw new Error(`session ${number} is lost`);
}
const length = await insist(() => call("length"));
if (length !== count) throw new Error(`${length} sessions instead of ${count}`);
say(`all ${count} sessions are there`);
process.exit(0);
