// A worker with a client of its own.
import { parentPort, workerData } from "node:worker_threads";
import { connect } from "thunderhead";

const { url, way } = workerData;
const connecting = connect(url);
if (way === "connect") parentPort.postMessage("connecting");
const db = await connecting;
const table = await db.table(workerData.table);
if (way === "work") {
  await Promise.all(Array.from({ length: 100 }, () => table.increment("workers")));
  await db.close();
} else {
  const keepBusy = async () => {
    for (;;) await table.put("busy", "x");
  };
  for (let at = 0; at < 100; at++) keepBusy().catch(() => {});
  await table.get("busy");
  if (way === "close") db.close();
  if (way === "exit") process.exit(0);
  if (way === "scan") for await (const _ of table.scan()) break;
  parentPort.postMessage("busy");
}
