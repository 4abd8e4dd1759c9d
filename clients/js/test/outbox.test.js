// What was paid for waits until it is acknowledged, and the same bytes are sent again, also after a restart.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { link, mkdtemp, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Client, Ledger, Outbox } from "../sstq.js";
import { signedDocument, withCollector } from "./collector.js";

const QUICK = { mostEpsilon: 2, pause: 0.001, patience: 0 };
const VECTOR = [0.1, -0.2, 0.3];
const refused = (code, message = /./) => ({ name: "SstqError", code, message });
const uploads = (requests) => requests.filter(({ method }) => method === "POST");
const bytesOf = (requests) => new Set(uploads(requests).map(({ headers, body }) => headers["idempotency-key"] + body));

async function inFolder(use) {
  const folder = await mkdtemp(join(tmpdir(), "sstq-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("what is not acknowledged waits beside the ledger and is sent again as it was", () =>
  inFolder((folder) =>
    withCollector(
      async (url, requests) => {
        const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 10 });
        const client = await Client.open(url, { ...QUICK, ledger });
        await assert.rejects(client.send(VECTOR), { ...refused("refused", /0 of 1 messages count, 1 wait/), waiting: 1 });
        await assert.rejects(client.send(VECTOR), { ...refused("waiting", /1 messages to steps wait/), waiting: 1 });
        assert.equal((await stat(join(folder, "ledger.outbox"))).mode & 0o777, 0o600);
        const unpaid = await Client.open(url, { ...QUICK, outbox: await Outbox.open(join(folder, "ledger.outbox")) });
        await assert.rejects(unpaid.sendWaiting(), refused("argument", /ledger must be given/));
        // As after a restart.
        const again = await Client.open(url, { ...QUICK, ledger: await Ledger.open(join(folder, "ledger"), { epsilon: 10 }) });
        await assert.rejects(again.sendWaiting(), refused("unreachable"));
        assert.equal(await again.sendWaiting(), 1);
        assert.equal(await again.sendWaiting(), 0);
        assert.equal(bytesOf(requests).size, 1);
        assert.equal(uploads(requests).length, 3);
        assert.equal(await ledger.spent(), 2);
        assert.equal(await client.send(VECTOR), 1);
        assert.equal(await ledger.spent(), 4);
      },
      { answers: [503, "hang up"] },
    ),
  ));

for (const [status, isFinal] of [
  ...[400, 409, 410, 413, 422].map((status) => [status, true]),
  ...[401, 403, 404, 405, 425, 501].map((status) => [status, false]),
])
  test(`the status ${status} is ${isFinal ? "a refusal for good" : "one that waits"}`, () =>
    withCollector(
      async (url) => {
        const client = await Client.open(url, QUICK);
        const message = isFinal ? /refused for good.*so its epsilon = 2 stays spent/ : /1 wait in the outbox/;
        await assert.rejects(client.send(VECTOR), { ...refused("refused", message), status });
        assert.equal(await client.sendWaiting(), isFinal ? 0 : 1);
      },
      { answers: [status] },
    ));

test("a single-use token waits with its message, and a spent one is a refusal for good", () =>
  withCollector(
    async (url, requests) => {
      const outbox = new Outbox(), client = await Client.open(url, { ...QUICK, outbox, token: "once" });
      await assert.rejects(client.send(VECTOR), refused("refused", /1 wait/));
      const other = await Client.open(url, { ...QUICK, outbox, token: "another" });
      assert.equal(await other.sendWaiting(), 1);
      await assert.rejects(other.send(VECTOR), refused("refused", /refused for good/));
      assert.equal(await other.sendWaiting(), 0);
      const tokens = uploads(requests).map(({ headers }) => headers.authorization);
      assert.deepEqual(tokens, ["Bearer once", "Bearer once", "Bearer another"]);
    },
    { document: signedDocument({ senders: "single-use", most_messages: 1 }), answers: [503, "success", 403] },
  ));

test("what can be known costs nothing", () =>
  inFolder(async (folder) => {
    const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 10 });
    for (const [changes, code] of [
      [{ senders: "token" }, "argument"],
      [{ opens: "2036-01-01T00:00:00Z" }, "time"],
      [{ closes: "2026-01-01T00:00:00Z" }, "time"],
    ])
      await withCollector(
        async (url, requests) => {
          const client = await Client.open(url, { ...QUICK, ledger });
          await assert.rejects(client.send(VECTOR), refused(code));
          assert.deepEqual([uploads(requests).length, await ledger.spent(), await client.sendWaiting()], [0, 0, 0]);
        },
        { document: signedDocument(changes) },
      );
    const poor = await Ledger.open(join(folder, "poor"), { epsilon: 1 });
    await withCollector(async (url, requests) => {
      const client = await Client.open(url, { ...QUICK, ledger: poor });
      await assert.rejects(client.send(VECTOR), refused("ledger", /more than the cap/));
      assert.deepEqual([uploads(requests).length, await poor.spent(), await client.sendWaiting()], [0, 0, 0]);
    });
  }));

for (const [what, allowance, code, message] of [
  ["a quota that is too small", { content: '{"messages":1}' }, "refused", /pays for 1 more messages, not 2; nothing was/],
  ["a campaign that was closed early", { status: 410 }, "refused", /410/],
  ["a wrong token", { status: 403 }, "refused", /403/],
])
  test(`${what} costs nothing`, () =>
    inFolder((folder) =>
      withCollector(
        async (url, requests) => {
          const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 10 });
          const client = await Client.open(url, { ...QUICK, ledger, token: "a-token" });
          await assert.rejects(client.send([VECTOR, VECTOR]), refused(code, message));
          assert.deepEqual([uploads(requests).length, await ledger.spent(), await client.sendWaiting()], [0, 0, 0]);
        },
        { allowance },
      ),
    ));

test("a collector that does not say what it takes is sent to", () =>
  withCollector(async (url) => assert.equal(await (await Client.open(url, QUICK)).send(VECTOR), 1), {
    allowance: { status: 405 },
  }));

test("answers of one client are sent one after the other", () =>
  withCollector(async (url, requests) => {
    const client = await Client.open(url, QUICK);
    assert.deepEqual(await Promise.all([client.send(VECTOR), client.send(VECTOR), client.send(VECTOR)]), [1, 1, 1]);
    assert.equal(bytesOf(requests).size, 3);
  }));

test("an outbox of your own is any storage, such as localStorage", () =>
  withCollector(
    async (url, requests) => {
      const texts = new Map(), localStorage = { getItem: (name) => texts.get(name) ?? null, setItem: (...both) => texts.set(...both) };
      const storage = {
        update: async (change) => {
          const text = localStorage.getItem("outbox");
          const state = change(text === null ? undefined : JSON.parse(text));
          if (state !== undefined) localStorage.setItem("outbox", JSON.stringify(state));
        },
      };
      await assert.rejects((await Client.open(url, { ...QUICK, outbox: new Outbox(storage) })).send(VECTOR));
      assert.equal(await (await Client.open(url, { ...QUICK, outbox: new Outbox(storage) })).sendWaiting(), 1);
      assert.equal(bytesOf(requests).size, 1);
    },
    { answers: [503] },
  ));

test("a damaged outbox is never replaced", () =>
  inFolder(async (folder) => {
    const place = join(folder, "outbox");
    for (const text of ["", "{}", '{"format":"sstq-js-outbox-1","uploads":{}}', "7"]) {
      await writeFile(place, text);
      await assert.rejects(Outbox.open(place), refused("outbox", /outbox is damaged or of another kind/));
      assert.equal(await readFile(place, "utf8"), text);
    }
  }));

const PROGRAM = `
import { Client, Ledger, Outbox } from ${JSON.stringify(new URL("../sstq.js", import.meta.url).href)};
const [url, place, when, what] = process.argv.slice(1), die = () => process.kill(process.pid, "SIGKILL");
const owners = { put: Outbox.prototype, spend: Ledger.prototype, fetch: globalThis, finish: Outbox.prototype };
if (when !== "never") {
  const owner = owners[what], original = owner[what];
  owner[what] = async function (...given) {
    if (what === "fetch" && given[1].method !== "POST") return original.apply(this, given);
    if (when === "before") die();
    await original.apply(this, given);
    die();
  };
}
const ledger = await Ledger.open(place, { epsilon: 100 });
const client = await Client.open(url, { mostEpsilon: 2, patience: 0, ledger });
console.log((await client.sendWaiting()) || (await client.send([0.1, -0.2, 0.3])));
`;

/** What a program prints, or null if it was killed. */
function run(...given) {
  const running = spawn(process.execPath, ["--input-type=module", "-e", PROGRAM, ...given]), printed = [], failed = [];
  running.stdout.on("data", (data) => printed.push(String(data)));
  running.stderr.on("data", (data) => failed.push(String(data)));
  return new Promise((resolve) =>
    running.on("close", (code, signal) => {
      assert.ok(code === 0 || signal === "SIGKILL", failed.join(""));
      resolve(signal === "SIGKILL" ? null : printed.join(""));
    }),
  );
}

for (const [when, what, paid] of [
  ["before", "put", 0],
  ["after", "put", 0],
  ["after", "spend", 2],
  ["before", "fetch", 2],
  ["after", "fetch", 2],
  ["before", "finish", 2],
])
  test(`a program that is killed ${when} ${what} sends and pays once`, () =>
    inFolder((folder) =>
      withCollector(async (url, requests) => {
        const place = join(folder, "ledger"), ledger = await Ledger.open(place, { epsilon: 100 });
        assert.equal(await run(url, place, when, what), null);
        assert.equal(await ledger.spent(), paid);
        assert.equal(await run(url, place, "never", "-"), "1\n");
        assert.equal(await ledger.spent(), 2);
        assert.equal(bytesOf(requests).size, 1);
      }),
    ));

test("the lock of a process that was killed is removed, and that of a living one is not", () =>
  inFolder(async (folder) => {
    const place = join(folder, "outbox"), outbox = await Outbox.open(place), dead = spawn(process.execPath, ["-e", ""]);
    await new Promise((resolve) => dead.on("close", resolve));
    await symlink(`${hostname()} ${dead.pid}`, `${place}.lock`);
    assert.deepEqual(await Promise.all([outbox.waiting("a"), outbox.waiting("a")]), [[], []]);
    for (const owner of [`${hostname()} ${process.pid}`, `elsewhere ${dead.pid}`]) {
      await symlink(owner, `${place}.lock`);
      await assert.rejects(outbox.waiting("a"), refused("outbox", /outbox\.lock is there for 5 seconds; delete it if/));
      assert.equal(await readlink(`${place}.lock`), owner);
      await rm(`${place}.lock`);
    }
  }));

test("links to a ledger are no further budgets, whether it was there before them or not", () =>
  inFolder(async (folder) => {
    const place = join(folder, "ledger"), [early, late] = ["early", "late"].map((name) => join(folder, name));
    await symlink("ledger", early);
    await (await Ledger.open(early, { epsilon: 2 })).spend(1.5, "a");
    await symlink(place, late);
    for (const name of [early, late, place]) {
      const ledger = await Ledger.open(name, { epsilon: 2 });
      assert.equal(await ledger.spent(), 1.5);
      await assert.rejects(ledger.spend(1, name), refused("ledger", /more than is left/));
    }
    await link(place, join(folder, "hard"));
    for (const name of [place, join(folder, "hard")])
      await assert.rejects((await Ledger.open(name, { epsilon: 2 })).spend(0.5, "b"), refused("ledger", /a hard link/));
    await rm(join(folder, "hard"));
    await (await Ledger.open(late, { epsilon: 2 })).spend(0.5, "b");
    assert.equal(await (await Ledger.open(place, { epsilon: 2 })).spent(), 2);
  }));
