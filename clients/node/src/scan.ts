/** The walk over all objects of a table. */

import type { Engine, Target } from "./engine.js";
import { errorOf } from "./errors.js";
import { Failure } from "./failure.js";
import type { Checked } from "./options.js";
import type { Entry } from "./results.js";

/** The state of a scan in the native part, which ends even if its user forgets the scan. */
interface Open {
  engine: Engine;
  scan: number;
}

const forgotten = new FinalizationRegistry<Open>(({ engine, scan }) => {
  if (scan > 0) engine.closeScan(scan);
});

/**
 * All objects of a table, in no particular order. An object that exists during the whole scan is
 * returned exactly once, also if servers crash or its tablet moves meanwhile. An object that is
 * created or deleted during the scan may be returned or not.
 *
 * Each loop over it is a walk of its own. An error ends the loop: a walk is never cut short
 * silently.
 */
export class Scan implements AsyncIterable<Entry> {
  readonly #engine: Engine;
  readonly #target: Target;
  readonly #options: Readonly<Checked>;

  private constructor(engine: Engine, target: Target, options: Readonly<Checked>) {
    this.#engine = engine;
    this.#target = target;
    this.#options = options;
  }

  /** @internal */
  static of(engine: Engine, target: Target, options: Readonly<Checked>): Scan {
    return new Scan(engine, target, options);
  }

  /** Walks over the objects one by one. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Entry, void, undefined> {
    for await (const page of this.pages()) yield* page;
  }

  /** Walks over the objects in pages of about 64 KiB, as they come from the servers. */
  pages(): AsyncGenerator<Entry[], void, undefined> {
    const open: Open = { engine: this.#engine, scan: 0 };
    const pages = this.#pages(open);
    forgotten.register(pages, open, open);
    return pages;
  }

  async *#pages(open: Open): AsyncGenerator<Entry[], void, undefined> {
    const { engine } = open;
    const { deadline, signal } = this.#options;
    try {
      open.scan = engine.openScan(this.#target);
      for (;;) {
        const page = await engine.page(open.scan, deadline, signal);
        if (page instanceof Failure) throw errorOf(page, signal, this.#target.name);
        if (page.entries.length > 0) yield page.entries;
        if (page.isLast) return;
      }
    } finally {
      forgotten.unregister(open);
      engine.closeScan(open.scan);
      open.scan = 0;
    }
  }
}
