// Real servers for the tests. The environment variable THUNDERHEAD names the program.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after } from "node:test";

const program = process.env.THUNDERHEAD ?? "thunderhead";
const servers = [];

// Registered here, the hook belongs to the file and not to the test or hook that starts a server.
after(() => Promise.all(servers.map((server) => server.stop())));

/** Starts a temporary server and returns it when it serves. It ends with the tests of the file. */
export async function startServer(...args) {
  const stdio = ["ignore", "pipe", "inherit"];
  const child = spawn(program, ["dev", "--json", ...args], { stdio });
  const ended = once(child, "exit");
  const lines = createInterface({ input: child.stdout });
  const [line] = await Promise.race([
    once(lines, "line"),
    ended.then(() => Promise.reject(new Error(`${program} dev ended before it served`))),
  ]);
  const { coordinators } = JSON.parse(line);
  const server = {
    url: `thunderhead://${coordinators.join(",")}`,
    address: coordinators[0],
    child,
    ended,
    /** Asks it to end and waits. */
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      await ended;
    },
  };
  servers.push(server);
  return server;
}

/** Starts a temporary store. Its segments are as large as a server's, for values of every size. */
export function startStore() {
  return startServer("--ephemeral", "--segment-bytes", "8MiB");
}

let names = 0;

/** Returns the name of a table that no other test uses. */
export function uniqueName() {
  names += 1;
  return `t${process.pid}-${names}`;
}
