// Real servers for the tests. The environment variable THUNDERHEAD names the program.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { setTimeout } from "node:timers/promises";

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
    /** Lets it stand still: it answers nothing until `resume`. */
    async pause() {
      child.kill("SIGSTOP");
      // The signal takes a moment to reach each thread.
      while (!isStopped(child.pid)) await setTimeout(1);
    },
    resume() {
      child.kill("SIGCONT");
    },
    /** Asks it to end and waits. */
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      // A test that failed may have left it paused.
      child.kill("SIGCONT");
      await ended;
    },
  };
  servers.push(server);
  return server;
}

/** Whether all threads of a process are stopped. */
function isStopped(pid) {
  const tasks = `/proc/${pid}/task`;
  return readdirSync(tasks).every((task) => {
    const line = readFileSync(`${tasks}/${task}/stat`, "utf8");
    // The state follows the name, which is in brackets.
    return line.slice(line.lastIndexOf(")") + 2).startsWith("T");
  });
}

/** Starts a temporary store. Its segments are as large as a server's, for values of every size. */
export function startStore() {
  return startServer("--ephemeral", "--segment-bytes", "8MiB");
}

/**
 * Returns an address for a server that is started again there. Each process has a host of its own:
 * on 127.0.0.1, a connection could meanwhile take the port, or the next one, which the server needs
 * too.
 */
export async function freeAddress() {
  const { pid } = process;
  const host = `127.${1 + ((pid >> 16) & 31)}.${(pid >> 8) & 255}.${pid & 255}`;
  const server = createServer().listen(0, host);
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return `${host}:${port}`;
}

let names = 0;

/** Returns the name of a table that no other test uses. */
export function uniqueName() {
  names += 1;
  return `t${process.pid}-${names}`;
}
