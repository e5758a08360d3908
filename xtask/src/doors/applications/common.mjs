// What the programs for Node share: see docs/testing/applications.md.

export const [port, count, directory] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];

/** A program that makes no progress for so many milliseconds has failed. */
const PATIENCE = 60_000;

export function say(line) {
  process.stdout.write(`${line}\n`);
}

export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Repeats a call until the server has acknowledged it. A killed server needs a while. */
export async function insist(call) {
  const end = performance.now() + PATIENCE;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (performance.now() > end) throw error;
      say(`again: ${error.message}`);
      await pause(50);
    }
  }
}

/** The jobs that were done. */
export class Done {
  jobs = new Set();
  times = 0;

  add(job) {
    this.jobs.add(job);
    this.times += 1;
  }

  /** Waits until all jobs were done at least once. */
  async awaitAll() {
    let [latest, began] = [0, performance.now()];
    while (this.jobs.size < count) {
      if (this.jobs.size !== latest) {
        [latest, began] = [this.jobs.size, performance.now()];
        say(`done ${latest}`);
      }
      if (performance.now() - began > PATIENCE) {
        const missing = Array.from({ length: count }, (_, job) => job).filter((job) => !this.jobs.has(job));
        throw new Error(`${missing.length} jobs were acknowledged and never done: ${missing.slice(0, 10)}`);
      }
      await pause(100);
    }
    say(`all ${count} done, ${this.times - count} of them again`);
  }
}
