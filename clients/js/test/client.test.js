// Campaigns, uploads and the ledger against a collector that fails on purpose.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { copyFile, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { Client, Ledger, Mechanism } from "../sstq.js";
import { publicKey, shuffledDocument, signedDocument, withCollector } from "./collector.js";

const QUICK = { mostEpsilon: 2, pause: 0.001 };
const VECTOR = [0.1, -0.2, 0.3];
const uploads = (requests) => requests.filter(({ method }) => method === "POST");
const refused = (code, message = /./) => ({ name: "SstqError", code, message });

async function inFolder(use) {
  const folder = await mkdtemp(join(tmpdir(), "sstq-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("one vector is one upload of its bits", () =>
  withCollector(async (url, requests) => {
    const client = await Client.open(`${url}/`, { ...QUICK, pinnedKey: publicKey });
    assert.equal(client.campaign.key, publicKey);
    assert.equal(await client.send(VECTOR), 1);
    const [{ headers, body }] = uploads(requests);
    assert.match(headers["idempotency-key"], /^[0-9a-f]{32}$/);
    assert.equal(headers["sstq-count"], "1");
    assert.equal(headers["sstq-digest"], await client.campaign.mechanism.digest());
    assert.equal(headers["content-type"], "application/octet-stream");
    assert.equal(headers.authorization, undefined);
    assert.equal(body.length, 2 * Math.ceil(client.campaign.mechanism.messageBits / 8));
  }));

test("many vectors are sent in parts, each under a key of its own", () =>
  withCollector(
    async (url, requests) => {
      const client = await Client.open(url, { ...QUICK, token: "a-token" });
      assert.equal(await client.send(Array(23).fill(VECTOR)), 23);
      assert.deepEqual(uploads(requests).map(({ headers }) => headers["sstq-count"]), ["10", "10", "3"]);
      assert.equal(new Set(uploads(requests).map(({ headers }) => headers["idempotency-key"])).size, 3);
      assert.equal(uploads(requests)[0].headers.authorization, "Bearer a-token");
    },
    { document: signedDocument({ most_messages: 10, senders: "token" }) },
  ));

test("retries repeat the bytes and the key", () =>
  withCollector(
    async (url, requests) => {
      const client = await Client.open(url, QUICK);
      assert.equal(await client.send(VECTOR), 1);
      assert.equal(uploads(requests).length, 6);
      assert.equal(new Set(uploads(requests).map(({ headers, body }) => headers["idempotency-key"] + body)).size, 1);
    },
    { answers: [500, "hang up", 503, 429, 408] },
  ));

test("Retry-After is waited for, and patience ends", () =>
  withCollector(
    async (url) => {
      const begun = Date.now(), client = await Client.open(url, { ...QUICK, patience: 3 });
      await client.send(VECTOR);
      assert.ok(Date.now() - begun >= 1000);
      const sentence = /^127\.0\.0\.1:\d+ refused the request \(429\): status “429” \(0 of 1 messages count, 1 wait in the outbox; sendWaiting repeats them/;
      await assert.rejects(client.send(VECTOR), refused("refused", sentence));
    },
    {
      answers: [
        { status: 503, headers: { "Retry-After": "1" } },
        "success",
        { status: 429, headers: { "Retry-After": "9" } },
      ],
    },
  ));

for (const status of [400, 403, 409, 410, 413, 422, 425])
  test(`the status ${status} is final`, () =>
    withCollector(
      async (url, requests) => {
        const client = await Client.open(url, QUICK);
        await assert.rejects(client.send(VECTOR), { ...refused("refused"), status });
        assert.equal(uploads(requests).length, 1);
      },
      { answers: [status] },
    ));

test("a receipt of another upload does not count", () =>
  withCollector(
    async (url) => assert.rejects((await Client.open(url, QUICK)).send(VECTOR), refused("unreachable", /receipt/)),
    { receipt: '{"count":2}' },
  ));

test("a single-use token is for one person", () =>
  withCollector(
    async (url, requests) => {
      const client = await Client.open(url, { ...QUICK, token: "once" });
      await assert.rejects(client.send([VECTOR, VECTOR]), refused("argument", /one person, got 2 messages/));
      assert.equal(await client.send(VECTOR), 1);
      assert.equal(uploads(requests).length, 1);
    },
    { document: signedDocument({ senders: "single-use", most_messages: 1 }) },
  ));

test("nobody there", () =>
  assert.rejects(Client.open("http://127.0.0.1:1/steps", { ...QUICK, patience: 0 }), refused("unreachable")));

test("a server that does not answer is given up in time, and retries are told of", async () => {
  const server = createServer(() => {}); // takes the request and says nothing
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const told = [], url = `http://127.0.0.1:${server.address().port}/steps`;
    const onRetry = (error, seconds) => told.push([error.code, seconds > 0]);
    const opening = Client.open(url, { ...QUICK, timeout: 0.05, patience: 0.2, onRetry });
    await assert.rejects(opening, refused("unreachable", /no answer from 127\.0\.0\.1:\d+: 0.05 seconds$/));
    assert.ok(told.length > 0 && told.every((each) => each[0] === "unreachable" && each[1]));
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("a part that was not copied is named", () =>
  inFolder(async (folder) => {
    await copyFile(new URL("../sstq.js", import.meta.url), join(folder, "alone.mjs"));
    const alone = await import(pathToFileURL(join(folder, "alone.mjs")).href);
    const opening = alone.Ledger.open(join(folder, "ledger"), { epsilon: 1 });
    await assert.rejects(opening, refused("module", /node-files\.js is missing: copy it beside sstq\.js/));
    await withCollector(
      async (url) => {
        const shuffled = alone.Client.open(url, { ...QUICK, mostEpsilon: 100 });
        await assert.rejects(shuffled, refused("module", /sealing\.js is missing: copy it beside sstq\.js/));
      },
      { shuffled: shuffledDocument },
    );
  }));

const fresh = signedDocument(), changed = fresh.document.replace('"clip":1', '"clip":2');
const members = (changes) => ({ document: signedDocument(changes) });
const document = JSON.parse(fresh.document), { mechanism } = document;
for (const [what, options, code, message] of [
  ["a changed document", { document: { ...fresh, document: changed } }, "signature", /somebody changed it/],
  ["no signature", { document: { ...fresh, signature: "" } }, "signature", /somebody changed it/],
  ["a signature that is none", { document: { ...fresh, signature: "x".repeat(88) } }, "signature", /somebody/],
  ["a key that is none", members({ keys: ["0".repeat(64)] }), "signature", /somebody/],
  ["a member that nobody knows", members({ surprise: 1 }), "campaign", /does not know: surprise/],
  ["another version", members({ version: 1 }), "campaign", /version must be 2, got 1/],
  ["a digest of another mechanism", members({ digest: "0".repeat(64) }), "campaign", /digest must be that of its mech/],
  ["other bits", members({ message_bits: 3 }), "campaign", /message_bits must be 9, got 3/],
  ["another campaign", members({ name: "other" }), "campaign", /this is the campaign "other"/],
  ["a time that is none", members({ opens: "tomorrow" }), "campaign", /opens must be a time/],
  ["another mechanism", members({ mechanism: { ...mechanism, mechanism: "clean" } }), "mechanism", /"groupunit" or/],
  ["bounds", members({ mechanism: { ...mechanism, bounds: [["age", 0, 110]] } }), "mechanism", /scale the vectors before/],
  ["a mechanism with more in it", members({ mechanism: { ...mechanism, x: 1 } }), "mechanism", /not know: x/],
])
  test(`refused: ${what}`, () =>
    withCollector((url) => assert.rejects(Client.open(url, QUICK), refused(code, message)), options));

test("refused: another key than the pinned one, and more ε than the client allows", () =>
  withCollector(async (url) => {
    const other = Client.open(url, { ...QUICK, pinnedKey: "1".repeat(64) });
    await assert.rejects(other, refused("signature", /another key than the pinned one/));
    const less = Client.open(url, { ...QUICK, mostEpsilon: 1.9 });
    await assert.rejects(less, refused("epsilon", /epsilon = 2, more than 1.9/));
    await assert.rejects(Client.open(url, {}), refused("argument", /mostEpsilon must be a number/));
    await assert.rejects(Client.open(url, { ...QUICK, pinnedKey: "ab" }), refused("argument", /64 hexadecimal/));
    await assert.rejects(Client.open("steps", QUICK), refused("argument", /url must be/));
  }));

test("refused: a document that names the pinned key and is signed by another of its keys", async () => {
  const other = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"; // the first of RFC 8032
  await withCollector(
    async (url) => {
      await assert.rejects(Client.open(url, { ...QUICK, pinnedKey: other }), refused("signature", /somebody changed it/));
      assert.equal((await Client.open(url, { ...QUICK, pinnedKey: publicKey })).campaign.key, publicKey);
      assert.equal((await Client.open(url, QUICK)).campaign.key, publicKey);
    },
    members({ keys: [publicKey, other] }),
  );
});

test("nothing is spent or sent before the campaign opens and after it closes", () =>
  inFolder(async (folder) => {
    const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 10 });
    for (const times of [{ opens: "2036-01-01T00:00:00Z" }, { closes: "2026-01-01T00:00:00Z" }])
      await withCollector(
        async (url, requests) => {
          const client = await Client.open(url, { ...QUICK, ledger });
          await assert.rejects(client.send(VECTOR), refused("time", /20\d6-01-01T00:00:00Z/));
          assert.equal(uploads(requests).length, 0);
        },
        { document: signedDocument(times) },
      );
    assert.equal(await ledger.spent(), 0);
  }));

test("the expense is on the disk before the message leaves, and retries cost nothing", () =>
  inFolder(async (folder) => {
    const path = join(folder, "ledger"), ledger = await Ledger.open(path, { epsilon: 5 });
    await withCollector(
      async (url, requests) => {
        const client = await Client.open(url, { ...QUICK, ledger, patience: 1 });
        await client.send([VECTOR, VECTOR]); // two people: one of them pays here
        await client.send(VECTOR);
        assert.equal(await ledger.spent(), 4);
        await assert.rejects(client.send(VECTOR), refused("ledger", /epsilon = 2 is more than is left: 1 of 5/));
        assert.equal(uploads(requests).length, 5); // one per person, and two that were refused
      },
      { answers: [503, 503] },
    );
    // Refused by the collector: spent all the same, because somebody may have seen it.
    const other = await Ledger.open(join(folder, "other"), { epsilon: 2 });
    await withCollector(
      async (url) => {
        const client = await Client.open(url, { ...QUICK, ledger: other });
        await assert.rejects(client.send(VECTOR), refused("refused", /refused for good.*epsilon = 2 stays spent/));
        assert.equal(await client.sendWaiting(), 0);
      },
      { answers: [410] },
    );
    assert.equal(await other.spent(), 2);
    const files = ["ledger", "ledger.made", "ledger.outbox", "other", "other.made", "other.outbox"];
    assert.deepEqual((await readdir(folder)).sort(), files);
    assert.equal(JSON.parse(await readFile(path, "utf8")).entries.length, 2);
  }));

test("a ledger adds up exactly and cannot be overspent by processes that race", () =>
  inFolder(async (folder) => {
    const path = join(folder, "ledger"), module = new URL("../sstq.js", import.meta.url).href;
    const tenths = await Ledger.open(join(folder, "tenths"), { epsilon: 0.3 });
    await tenths.spend(0.1, "a");
    await tenths.spend(0.1, "b");
    // Three times the double 0.1 is more than the double 0.3.
    await assert.rejects(tenths.spend(0.1, "c"), refused("ledger", /more than is left/));
    await tenths.spend(0.09999999999999998, "c");
    // Ten times the double 0.1 is more than 1, although nine of them, added up in doubles, leave 0.1 and more.
    const whole = await Ledger.open(join(folder, "whole"), { epsilon: 1 });
    for (let i = 0; i < 9; i++) await whole.spend(0.1, `${i}`);
    await assert.rejects(whole.spend(0.1, "9"), refused("ledger", /more than is left/));

    await Ledger.open(path, { epsilon: 10, cap: 1 });
    const program = `import { Ledger } from "${module}";
      const ledger = await Ledger.open(${JSON.stringify(path)}, { epsilon: 10, cap: 1 });
      const spent = await Promise.allSettled(Array.from({ length: 6 }, (_, i) => ledger.spend(1, process.argv[1] + i)));
      console.log(spent.filter(({ status }) => status === "fulfilled").length);`;
    const run = (name) => promisify(execFile)(process.execPath, ["--input-type=module", "-e", program, name]);
    const outputs = await Promise.all(["x", "y", "z"].map(run));
    assert.equal(outputs.reduce((sum, { stdout }) => sum + Number(stdout), 0), 10);
    const ledger = await Ledger.open(path, { epsilon: 10, cap: 1 });
    assert.equal(await ledger.spent(), 10);
    assert.equal((await ledger.entries()).length, 10);
  }));

test("a process that is killed loses nothing that it was told is spent", () =>
  inFolder(async (folder) => {
    const path = join(folder, "ledger"), module = new URL("../sstq.js", import.meta.url).href;
    const program = `import { Ledger } from "${module}";
      const ledger = await Ledger.open(${JSON.stringify(path)}, { epsilon: 1e6 });
      for (let i = 0; ; i++) console.log(await ledger.spend(1, process.argv[1] + i) ?? "spent");`;
    let told = 0;
    for (const name of ["x", "y", "z"]) {
      const running = spawn(process.execPath, ["--input-type=module", "-e", program, name]);
      running.stdout.on("data", (data) => {
        told += String(data).match(/spent/g).length;
        if (told % 5 === 4) running.kill("SIGKILL");
      });
      await new Promise((resolve) => running.on("close", resolve));
      const ledger = await Ledger.open(path, { epsilon: 1e6 });
      assert.ok((await ledger.spent()) >= told);
      told = await ledger.spent();
    }
    assert.ok(told >= 12);
    await writeFile(`${path}.lock`, "");
    const begun = Date.now();
    await assert.rejects(Ledger.open(path, { epsilon: 1e6 }), refused("ledger", /ledger.lock is there.*delete it if/));
    assert.ok(Date.now() - begun > 4000);
  }));

test("a ledger keeps its terms, its cap and its purposes, and is never replaced", () =>
  inFolder(async (folder) => {
    const path = join(folder, "ledger"), ledger = await Ledger.open(path, { epsilon: 4, cap: 2 });
    await ledger.spend(2, "a");
    await assert.rejects(ledger.spend(2, "a"), refused("ledger", /a was spent already/));
    await assert.rejects(ledger.spend(2.1, "b"), refused("ledger", /more than the cap/));
    await assert.rejects(ledger.spend(-1, "b"), refused("argument", /epsilon must be a number/));
    await assert.rejects(Ledger.open(path, { epsilon: 5, cap: 2 }), refused("ledger", /other terms: epsilon = 4/));
    await assert.rejects(Ledger.open(path), refused("argument", /epsilon must be a number/));
    const text = await readFile(path, "utf8");
    for (const damaged of ["", text.slice(0, -3), "{}", text.replace('"epsilon":2', '"epsilon":-2')]) {
      await writeFile(path, damaged);
      await assert.rejects(ledger.spend(1, "c"), refused("ledger", /damaged/));
      await assert.rejects(Ledger.open(path, { epsilon: 4, cap: 2 }), refused("ledger", /damaged/));
    }
    await rm(path);
    await assert.rejects(ledger.spend(1, "c"), refused("ledger", /ledger is missing, although .*ledger\.made is there/));
    await assert.rejects(Ledger.open(path, { epsilon: 4, cap: 2 }), refused("ledger", /put it back/));
    await writeFile(path, text);
    assert.equal(await (await Ledger.open(path, { epsilon: 4, cap: 2 })).spent(), 2);
  }));

test("bad arguments are named", async () => {
  const groups = { ...mechanism, mechanism: "groupunit", groups: 4, blocks: 4, share_people: 0 };
  delete groups.bits;
  const grouped = new Mechanism({ ...groups, inside: 100, threshold: "1000000000000000000" });
  const plain = new Mechanism(mechanism);
  for (const [encoder, vector, group, message] of [
    [plain, [1, 2], undefined, /vector must be 3 numbers, got 2/],
    [plain, undefined, undefined, /vector must be 3 numbers, got undefined/],
    [plain, [1, 2, NaN], undefined, /finite float32 numbers, got null at place 2/],
    [plain, [1, 1e39, 3], undefined, /finite float32 numbers, got 1e\+39 at place 1/],
    [plain, ["1", 2, 3], undefined, /finite float32 numbers, got "1" at place 0/],
    [plain, VECTOR, 0, /group must be left out, got 0/],
    [grouped, VECTOR, undefined, /group must be an integer from 0 to 3, got undefined/],
    [grouped, VECTOR, 4, /group must be an integer from 0 to 3, got 4/],
  ])
    assert.throws(() => encoder.encode(vector, group), refused("argument", message));
  assert.throws(() => plain.encodeWithWords(VECTOR, undefined, [1n]), refused("argument", /words must be/));
  assert.throws(() => plain.pack([[512]]), refused("argument", /row must be an integer in \[0, 512\), got 512/));
  for (const text of ["", "[]", "null", "7", '{"format":"sstq-mechanism"}'])
    assert.throws(() => new Mechanism(text), refused("mechanism"));
});

test("an answer never depends on what is private", () => {
  const groups = { ...mechanism, mechanism: "groupunit", groups: 4, blocks: 4, share_people: 0 };
  delete groups.bits;
  const grouped = new Mechanism({ ...groups, inside: 100, threshold: "1000000000000000000" });
  const plain = new Mechanism(mechanism), original = crypto.getRandomValues, asked = [];
  crypto.getRandomValues = function (array) {
    asked.push(array.length);
    return array.fill(0x123456789abcdef0n);
  };
  try {
    const zeros = plain.answer([0, 0, 0]);
    for (const vector of [[1, 2, NaN], [1, 1e39, 3], ["1", 2, 3], [null, 2, 3], [Infinity, 0, 0]])
      assert.deepEqual(plain.answer(vector), zeros);
    const drawn = grouped.answer([0, 0, 0], 0); // 4·0x123…/2^64 = 0
    for (const group of [undefined, 4, -1, 0.5, "2", null]) assert.deepEqual(grouped.answer(VECTOR, group), drawn);
    assert.throws(() => plain.answer([1, 2]), refused("argument", /vector must be 3 numbers, got 2/));
  } finally {
    crypto.getRandomValues = original;
  }
  assert.deepEqual(new Set(asked.slice(0, 12)), new Set([1, plain.wordsEach]));
});

test("the search for a row takes as many steps for the own block as for others", async () => {
  const source = await readFile(new URL("../sstq.js", import.meta.url), "utf8");
  const [start, end] = ["function ranked", "function lastInside"].map((mark) => source.indexOf(mark));
  const counted = source.slice(start, end).replace("bits[i]", "(globalThis.steps++, bits[i])");
  assert.notEqual(counted, source.slice(start, end));
  const text = source.slice(0, start) + counted + source.slice(end);
  const { Mechanism: Counted } = await import(`data:text/javascript,${encodeURIComponent(text)}`);
  const groups = { ...mechanism, mechanism: "groupunit", groups: 4, blocks: 4, share_people: 0 };
  delete groups.bits;
  const encoder = new Counted({ ...groups, inside: 100, threshold: "1000000000000000000" });
  const steps = new Set(), rows = new Set();
  for (const first of [0n, 2n ** 63n, 2n ** 64n - 1n])
    for (let second = 0n; second < 16n; second++) {
      globalThis.steps = 0;
      const words = BigUint64Array.of(0n, first, second << 60n, 0n).slice(0, encoder.wordsEach);
      rows.add(encoder.encodeWithWords(VECTOR, 1, words)[0]);
      steps.add(globalThis.steps);
    }
  assert.ok(rows.size > 20);
  assert.equal(steps.size, 1);
});

test("a page without WebCrypto is told so", async () => {
  const known = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value: {}, configurable: true });
  try {
    await assert.rejects(new Mechanism(mechanism).digest(), refused("crypto", /HTTPS or localhost/));
  } finally {
    Object.defineProperty(globalThis, "crypto", known);
  }
});
