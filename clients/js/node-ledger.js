// The file of a ledger in Node; sstq.js imports this module where there is no IndexedDB.
//
// The ledger is replaced as a whole, synced with its folder. While that goes on FILE.lock keeps other processes out.
// FILE.made stays beside it for ever, so that a ledger that was deleted does not come back as a new budget.

import { access, open, readFile, rename, unlink } from "node:fs/promises";
import { dirname, resolve } from "node:path";

const LOCK_TRIES = 250, LOCK_PAUSE = 20; // milliseconds

export function fileStorage(name, fail) {
  const place = resolve(name), lock = `${place}.lock`, made = `${place}.made`;

  /** Replace the state by what `change` makes of it, unless that is undefined; resolves when it is durable. */
  async function update(change) {
    await acquire();
    try {
      const changed = change(await read());
      if (changed !== undefined) await replace(`${JSON.stringify(changed)}\n`);
    } finally {
      await unlink(lock);
    }
  }

  async function acquire() {
    for (let tries = 0; ; tries++) {
      try {
        return await (await open(lock, "wx", 0o600)).close();
      } catch (error) {
        if (error.code !== "EEXIST") throw error;
        if (tries === LOCK_TRIES)
          fail("ledger", `${lock} is there for 5 seconds; delete it if no program uses the ledger`);
      }
      await new Promise((done) => setTimeout(done, LOCK_PAUSE));
    }
  }

  /** The state; null if the file has none, undefined if there never was a ledger. */
  async function read() {
    const text = await readFile(place, "utf8").catch(unlessMissing);
    if (text === undefined) {
      const wasMade = await access(made).then(() => true, unlessMissing);
      if (wasMade) fail("ledger", `the ledger ${place} is missing, although ${made} is there; put it back`);
      return undefined;
    }
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  async function replace(text) {
    const part = `${place}.part`, file = await open(part, "w", 0o600);
    await file.writeFile(text);
    await file.sync();
    await file.close();
    await rename(part, place);
    await (await open(made, "a", 0o600)).close();
    const folder = await open(dirname(place)); // the new names must last as well
    await folder.sync();
    await folder.close();
  }

  return { place, update };
}

function unlessMissing(error) {
  if (error.code !== "ENOENT") throw error;
}
