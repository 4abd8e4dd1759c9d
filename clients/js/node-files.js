// The files of a ledger and of an outbox in Node; sstq.js imports this module where there is no IndexedDB.
//
// A file is replaced as a whole, synced with its folder. While that goes on FILE.lock keeps other processes out.
// LEDGER.made stays beside a ledger for ever, so that one that was deleted does not come back as a new budget.

import { readlinkSync, realpathSync } from "node:fs";
import { access, open, readFile, readlink, rename, stat, symlink, unlink } from "node:fs/promises";
import { hostname } from "node:os";
import { basename, dirname, join, resolve } from "node:path";

const LOCK_TRIES = 250, LOCK_PAUSE = 20; // milliseconds
const OWNER = `${hostname()} ${process.pid}`;

export function fileStorage(kind, name, fail) {
  const place = realPlace(resolve(name)), lock = `${place}.lock`, made = `${place}.made`;

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
      if (await taken(lock)) return;
      if (await isLeft(lock)) await release();
      if (tries === LOCK_TRIES)
        fail(kind, `${lock} is there for 5 seconds; delete it if no program uses the ${kind}`);
      await new Promise((done) => setTimeout(done, LOCK_PAUSE));
    }
  }

  /** Remove the lock of a process that was killed. Only one process at a time looks and removes. */
  async function release() {
    const breaking = `${lock}.breaking`;
    if (!(await taken(breaking))) return;
    try {
      if (await isLeft(lock)) await unlink(lock);
    } finally {
      await unlink(breaking);
    }
  }

  /** The state; null if the file has none, undefined if there never was one. */
  async function read() {
    const text = await readFile(place, "utf8").catch(unlessMissing);
    if (text === undefined) {
      const wasMade = kind === "ledger" && (await access(made).then(() => true, unlessMissing));
      if (wasMade) fail(kind, `the ledger ${place} is missing, although ${made} is there; put it back`);
      return undefined;
    }
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  async function replace(text) {
    const known = await stat(place).catch(unlessMissing);
    if (kind === "ledger" && known?.nlink > 1)
      fail(kind, `the ledger ${place} has another name, a hard link, which would keep the budget of before; delete that`);
    const part = `${place}.part`, file = await open(part, "w", 0o600);
    await file.writeFile(text);
    await file.sync();
    await file.close();
    await rename(part, place);
    if (kind === "ledger") await (await open(made, "a", 0o600)).close();
    const folder = await open(dirname(place)); // the new names must last as well
    await folder.sync();
    await folder.close();
  }

  return { place, update };
}

/** Where a file is or will be: a link to it must not become a second budget. */
function realPlace(place) {
  const tried = (read) => {
    try {
      return read();
    } catch (error) {
      if (!["ENOENT", "EINVAL"].includes(error.code)) throw error;
      return undefined;
    }
  };
  const found = tried(() => realpathSync(place));
  if (found !== undefined) return found;
  const led = tried(() => readlinkSync(place));
  return led === undefined ? join(realpathSync(dirname(place)), basename(place)) : realPlace(resolve(dirname(place), led));
}

/** Whether this process made the lock: a link that leads nowhere and names its owner, both in one step. */
async function taken(lock) {
  try {
    await symlink(OWNER, lock);
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    return false;
  }
}

/** Whether a process of this machine made the lock and is gone. */
async function isLeft(lock) {
  const [host, pid] = (await readlink(lock).catch(() => "")).split(" ");
  if (host !== hostname() || !(pid > 0)) return false;
  try {
    process.kill(Number(pid), 0);
    return false;
  } catch (error) {
    return error.code === "ESRCH";
  }
}

function unlessMissing(error) {
  if (error.code !== "ENOENT") throw error;
}
