// Taking part in studies: one answer per person over all stages, whatever the value, the collector and the network do.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Client, Ledger, Mechanism, Outbox } from "../sstq.js";
import { publicKey, shuffledDocument, shufflerKey, signedDocument, withCollector } from "./collector.js";

const { cases } = JSON.parse(readFileSync(new URL("../../vectors/studies.json", import.meta.url), "utf8"));
const questions = cases.map(({ document }) => JSON.parse(document));
const words = questions.find(({ kind }) => kind === "words");
const panel = { ...questions.find(({ kind }) => kind === "period"), mechanism: words.mechanism, periods: 3, late: "skip" };
const CLOSES = "2100-01-01T00:00:00Z", FORMS = { hours: 24, people: 100 };

/** The signed document of a stage of “steps”, the study of these tests. */
const stageOf = async (...given) => signedDocument(await described(...given));

async function described({ mechanism, ...question }, number = 1, { stage = {}, ...changes } = {}) {
  const read = new Mechanism(mechanism), own = { study: "steps", number, name: `stage ${number}`, ...FORMS, question };
  const message = { mechanism, digest: await read.digest(), message_bits: read.messageBits, most_messages: 1 };
  return { name: `steps--${number}`, labels: undefined, ...message, stage: { ...own, ...stage }, ...changes };
}

/** The same of a period of a panel. */
const periodOf = (number, late = "skip") =>
  stageOf({ ...panel, number, late }, number, { closes: CLOSES, stage: { people: null } });

/** Storage that counts as lasting. */
class Kept {
  async update(change) {
    this.state = structuredClone(change(this.state) ?? this.state);
  }
}

const visitor = (more = {}) => ({ mostEpsilon: 20, patience: 0, outbox: new Outbox(new Kept()), ...more });
const posted = (requests) => requests.filter(({ method }) => method === "POST");
const visit = async (url, options, value) => (await Client.open(url, options)).takePart(value);
const failing = async (work, pattern, code) => {
  const error = await work.then(() => assert.fail("nothing was refused"), (found) => found);
  assert.match(error.message, pattern);
  if (code) assert.equal(error.code, code);
};

test("a person answers one stage, once, and the ledger has one entry", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sstq-")), place = join(folder, "me.ledger");
  let document = await stageOf(words);
  await withCollector(async (url, requests) => {
    const options = { ...visitor(), outbox: undefined, ledger: await Ledger.open(place, { epsilon: 20 }) };
    assert.equal(await visit(url, options, "coffee"), null);
    document = await stageOf(words, 2);
    for (const more of [{}, { outbox: new Outbox(new Kept()) }]) // of another device with the same ledger
      assert.equal(await visit(url, { ...options, ...more }, "coffee"), null);
    const [sent, ...others] = posted(requests), mechanism = new Mechanism(words.mechanism);
    assert.equal(others.length, 0);
    assert.equal(sent.path, "/v1/campaigns/steps--1/messages");
    assert.equal(sent.headers["sstq-digest"], await mechanism.digest());
    assert.equal(sent.body.length, 2 * Math.ceil(mechanism.messageBits / 8));
    const [{ purpose, epsilon }] = await options.ledger.entries();
    assert.deepEqual([purpose, epsilon], [`study ${words.study}`, mechanism.epsilon]);
  }, { document: () => document });
});

test("a stage that is full is come back to, and a study that has ended is not", async () => {
  const document = await stageOf(words), outbox = new Outbox(new Kept());
  const closed = (headers) => ({ document, allowance: { status: 410, content: "{}", headers } });
  await withCollector(async (url, requests) => {
    const again = await visit(url, visitor({ outbox }), "coffee");
    assert.ok(Math.abs(again - Date.now() - 5000) < 2000);
    assert.equal(posted(requests).length, 0);
  }, closed({ "Retry-After": "5" }));
  await withCollector(async (url) => assert.equal(await visit(url, visitor({ outbox }), "coffee"), null), closed({}));
  await withCollector(async (url, requests) => {
    assert.equal(await visit(url, visitor({ outbox }), "coffee"), null);
    assert.equal(posted(requests).length, 1);
  }, { document });
});

test("what could not be sent goes to its own stage, byte for byte", async () => {
  const outbox = new Outbox(new Kept());
  let document = await stageOf(words);
  await withCollector(async (url, requests) => {
    await failing(visit(url, visitor({ outbox }), "coffee"), /1 wait in the outbox/, "unreachable");
    document = await stageOf(words, 2);
    assert.equal(await visit(url, visitor({ outbox }), "tea"), null);
    assert.equal(await visit(url, visitor({ outbox }), "tea"), null);
    const [first, again, ...others] = posted(requests);
    assert.equal(others.length, 0);
    for (const name of ["sstq-digest", "idempotency-key"]) assert.equal(again.headers[name], first.headers[name]);
    assert.deepEqual([again.path, again.body], [first.path, first.body]);
  }, { document: () => document, answers: ["hang up"] });
});

test("what was not paid for yet is paid at the price of its own stage", async () => {
  const outbox = new Outbox(new Kept()), place = join(await mkdtemp(join(tmpdir(), "sstq-")), "me.ledger");
  const ledger = await Ledger.open(place, { epsilon: 20 }), { epsilon } = words.mechanism;
  const other = questions.find(({ study, kind, mechanism }) => study && kind !== "period" && mechanism.epsilon !== epsilon);
  let document = await stageOf(words);
  await withCollector(async (url, requests) => {
    ledger.spend = () => Promise.reject(new Error("the disk is full"));
    await failing(visit(url, visitor({ outbox, ledger }), "coffee"), /disk is full/);
    assert.equal(posted(requests).length, 0);
    delete ledger.spend;
    document = await stageOf({ ...other, study: words.study }, 2);
    assert.equal(await visit(url, visitor({ outbox, ledger }), "tea"), null);
    assert.deepEqual((await ledger.entries()).map((entry) => entry.epsilon), [epsilon]);
    assert.deepEqual(posted(requests).map(({ path }) => path), ["/v1/campaigns/steps--1/messages"]);
  }, { document: () => document });
});

test("an answer that came too late is spent and not made again", async () => {
  const outbox = new Outbox(new Kept());
  await withCollector(async (url, requests) => {
    await failing(visit(url, visitor({ outbox }), "coffee"), /stays spent/, "refused");
    assert.equal(await visit(url, visitor({ outbox }), "coffee"), null);
    assert.equal(posted(requests).length, 1);
  }, { document: await stageOf(words), answers: [410] });
});

test("a device draws its period once, comes again when it begins, and answers in it", async () => {
  const documents = await Promise.all([1, 2, 3].map((number) => periodOf(number)));
  const turns = new Set();
  for (let device = 0; device < 24; device++) {
    const outbox = new Outbox(new Kept()), found = [];
    for (const document of documents)
      await withCollector(async (url, requests) => {
        for (let i = 0; i < 2; i++) found.push([await visit(url, visitor({ outbox }), 1), posted(requests).length]);
      }, { document });
    const turn = 1 + found.findIndex(([, sent]) => sent) / 2;
    turns.add(turn);
    const expected = [1, 2, 3].flatMap((number) => {
      const begins = Date.parse(CLOSES) + (turn - number - 1) * 24 * 3.6e6;
      return Array(2).fill([turn > number ? new Date(begins) : null, Number(turn === number)]);
    });
    assert.deepEqual(found, expected);
  }
  assert.deepEqual([...turns].sort(), [1, 2, 3]);
});

test("a period that no document dates is no time to come again", async () => {
  const question = { ...panel, number: 1 };
  for (const changes of [{}, { closes: CLOSES, stage: { people: null, hours: null } }]) {
    const outbox = new Outbox(new Kept());
    await outbox.part(`study ${panel.study}`, "", { stage: 1, turn: 2 });
    await withCollector(async (url, requests) => {
      assert.equal(await visit(url, visitor({ outbox }), 1), null);
      assert.equal(posted(requests).length, 0);
    }, { document: await stageOf(question, 1, changes) });
  }
});

test("who was away in the drawn period answers later if the panel says so", async () => {
  for (const late of ["skip", "answer"]) {
    const outbox = new Outbox(new Kept());
    await outbox.part(`study ${panel.study}`, "", { stage: 1, turn: 2 });
    await withCollector(async (url, requests) => {
      assert.equal(await visit(url, visitor({ outbox }), 1), null);
      assert.equal(posted(requests).length, Number(late === "answer"));
    }, { document: await periodOf(3, late) });
  }
});

test("whatever the value is, the same is asked and as much is sent", async () => {
  const strange = ["coffee", "", undefined, null, NaN, 10n, Symbol("x"), () => 1, [NaN], new Map(), "\ud800", { toString: 1 }];
  const thrower = new Proxy({}, { get: () => assert.fail("read"), ownKeys: () => assert.fail("listed") });
  const { proxy: gone, revoke } = Proxy.revocable([], {});
  revoke();
  strange.push(thrower, gone, [gone, gone], [thrower, "cat"], new Proxy([1, 2], { get: () => assert.fail("read") }));
  for (const question of questions) {
    const shapes = new Set(), isPanel = question.kind === "period";
    const changes = isPanel ? { closes: CLOSES, stage: { people: null } } : {};
    const last = isPanel ? { ...question, number: question.periods } : question;
    const document = await stageOf(last, 1, changes);
    for (const value of strange)
      await withCollector(async (url, requests) => {
        assert.equal(await visit(url, visitor(), value), null);
        shapes.add(requests.map(({ method, path, body }) => `${method} ${path} ${body.length}`).join());
      }, { document });
    assert.equal(shapes.size, 1, question.kind);
  }
});

test("a stage that is swapped, lowered, of another study or of another key is refused, and nothing leaves", async () => {
  const bad = [
    [{ name: "steps--2" }, /name must be that of its stage/],
    [{ stage: { study: "other" } }, /name must be that of its stage/],
    [{ name: "other--1", stage: { study: "other" } }, /this is the campaign/],
    [{ stage: { number: 0 } }, /number must be/],
    [{ stage: { people: 0 } }, /people must be/],
    [{ stage: { hours: -1 } }, /hours must be/],
    [{ stage: { more: 1 } }, /does not know: more/],
    [{ stage: { question: { ...words, mechanism: undefined, longest: 1000 } } }, /longest must be/],
    [{ stage: { question: null } }, /question must be/],
    [{ stage: { question: { ...words, mechanism: undefined, words: ["tea", "coffee"] } } }, /categories must be/],
  ];
  for (const [changes, pattern] of bad) {
    const { stage = {}, ...rest } = changes;
    const document = await stageOf(words, 1, { ...rest, stage: JSON.parse(JSON.stringify(stage)) });
    await withCollector(async (url, requests) => {
      await failing(visit(url, visitor(), "coffee"), pattern);
      assert.equal(posted(requests).length, 0);
    }, { document });
  }
  const outbox = new Outbox(new Kept()), closed = { status: 410, content: "{}", headers: { "Retry-After": "5" } };
  await outbox.part(`study ${words.study}`, "", { stage: 2 });
  await withCollector((url) => failing(visit(url, visitor({ outbox }), "tea"), /2 was seen before/), { document: await stageOf(words) });
  let document = await stageOf(words);
  await withCollector(async (url) => {
    const client = await Client.open(url, visitor());
    assert.ok(await client.takePart("tea"));
    document = await stageOf(words, 2, { keys: ["ab".repeat(32)] });
    await failing(client.takePart("tea"), /another key/, "signature");
  }, { document: () => document, allowance: closed });
});

test("a study is answered once, whoever signs it and wherever it is, and a link leads to one study", async () => {
  const outbox = new Outbox(new Kept()), other = { ...words, study: "0a".repeat(16) };
  let document = await stageOf(words);
  await withCollector(async (url, requests) => {
    assert.equal(await visit(url, visitor({ outbox }), "coffee"), null);
    await outbox.part(`study ${words.study}`, "https://elsewhere.example/steps");
    document = await stageOf(words, 2);
    assert.equal(await visit(url, visitor({ outbox }), "coffee"), null);
    document = await stageOf(other);
    await failing(visit(url, visitor({ outbox }), "coffee"), /leads to another study now; nothing was sent/, "campaign");
    assert.equal(posted(requests).length, 1);
    const part = await outbox.part(`study ${words.study}`, url);
    assert.deepEqual([part.isAnswered, part.links.length], [true, 2]);
  }, { document: () => document });
});

test("an answer is not sent if its ledger has paid for another one, which another outbox had", async () => {
  const place = join(await mkdtemp(join(tmpdir(), "sstq-")), "me.ledger"), ledger = await Ledger.open(place, { epsilon: 20 });
  const [first, second] = [0, 1].map(() => visitor({ ledger }));
  await withCollector(async (url, requests) => {
    first.outbox.beginPayment = () => Promise.reject(new Error("the page was closed"));
    await failing(visit(url, first, "coffee"), /page was closed/);
    delete first.outbox.beginPayment;
    assert.equal(await visit(url, second, "coffee"), null);
    for (let i = 0; i < 2; i++) assert.equal(await visit(url, first, "coffee"), null);
    assert.equal(posted(requests).length, 1);
    assert.equal((await ledger.entries()).length, 1);
  }, { document: await stageOf(words) });
});

test("an answer that was paid for before the page was closed is sent", async () => {
  const place = join(await mkdtemp(join(tmpdir(), "sstq-")), "me.ledger"), ledger = await Ledger.open(place, { epsilon: 20 });
  const options = visitor({ ledger }), { spend } = ledger;
  await withCollector(async (url, requests) => {
    ledger.spend = async (...charge) => {
      await spend.apply(ledger, charge);
      throw new Error("the page was closed");
    };
    await failing(visit(url, options, "coffee"), /page was closed/);
    delete ledger.spend;
    assert.equal(await visit(url, options, "tea"), null);
    assert.equal(posted(requests).length, 1);
  }, { document: await stageOf(words) });
});

test("a price above the person's is refused, and what the ledger cannot pay is not sent", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sstq-")), document = await stageOf(words), { epsilon } = words.mechanism;
  await withCollector(async (url, requests) => {
    await failing(visit(url, visitor({ mostEpsilon: epsilon - 0.1 }), "coffee"), /asks for epsilon/, "epsilon");
    const ledger = await Ledger.open(join(folder, "small.ledger"), { epsilon: epsilon - 0.1 }), outbox = new Outbox(new Kept());
    await failing(visit(url, visitor({ outbox, ledger }), "coffee"), /more than/, "ledger");
    assert.equal(posted(requests).length, 0);
    const more = await Ledger.open(join(folder, "large.ledger"), { epsilon });
    assert.equal(await visit(url, visitor({ outbox, ledger: more }), "coffee"), null);
    assert.equal(posted(requests).length, 1);
  }, { document });
});

test("what is asked of a study and of a campaign are not mixed up", async () => {
  await withCollector(async (url, requests) => {
    const client = await Client.open(url, visitor()), { mechanism, stage } = client.campaign;
    await failing(client.send(0), /call takePart/);
    await failing(client.sendMessages([mechanism.answer(0)]), /sender's token/);
    await failing(visit(url, { mostEpsilon: 20 }, "coffee"), /ledger must be given/);
    assert.equal(stage.question.kind, "words");
    const batch = await Client.open(url, visitor({ token: "of-a-sender" }));
    assert.equal(await batch.sendMessages([1, 2, 3].map(() => mechanism.answer(stage.question.held("tea")))), 3);
    const [{ path, headers }, ...others] = posted(requests);
    assert.deepEqual([path, headers["sstq-count"], others], ["/v1/campaigns/steps--1/messages", "3", []]);
  }, { document: await stageOf(words) });
  await withCollector((url) => failing(visit(url, visitor(), [1]), /is no study/), {});
});

test("two pages of one person send one answer", async () => {
  await withCollector(async (url, requests) => {
    const outbox = new Outbox(new Kept());
    await Promise.all([1, 2, 3].map(() => visit(url, visitor({ outbox }), "coffee")));
    assert.equal(new Set(posted(requests).map(({ body, headers }) => body + headers["idempotency-key"])).size, 1);
  }, { document: await stageOf(words) });
});

test("a single-use token that was used is said", async () => {
  const document = await stageOf(words, 1, { senders: "single-use" });
  await withCollector(async (url) => {
    await failing(visit(url, visitor({ token: "used" }), "tea"), /you have answered/, "refused");
  }, { document, allowance: { content: '{"messages":0}' } });
});

test("with a token that pays for nobody else nothing is charged", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sstq-"));
  const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 20 });
  await withCollector(async (url, requests) => {
    await failing(visit(url, visitor({ token: "empty", ledger }), "tea"), /pays for nobody else/, "refused");
    assert.deepEqual([await ledger.spent(), posted(requests)], [0, []]);
  }, { document: await stageOf(words), allowance: { content: '{"messages":0}' } });
});

test("a stage behind a shuffler is a crowd: one sealed answer to the shuffler, and nothing to another address", async () => {
  const { messageBits } = new Mechanism(words.mechanism), outbox = new Outbox(new Kept());
  const sealed = { slots: 1, envelope_bytes: 48 + Math.ceil(messageBits / 8), closes: CLOSES };
  const terms = await described(words, 1, sealed);
  await withCollector(async (url, requests) => {
    const options = visitor({ outbox, pinnedKey: publicKey, pinnedShuffler: shufflerKey });
    for (let i = 0; i < 2; i++) assert.equal(await visit(url, options, "coffee"), null);
    const [{ path, headers, body }, ...others] = posted(requests);
    assert.deepEqual([path, headers["sstq-count"], others], ["/people/v1/campaigns/steps--1/messages", "1", []]);
    assert.equal(body.length / 2, 32 + 48 + sealed.envelope_bytes);
    await failing(visit(url, { ...options, pinnedShuffler: publicKey }, "coffee"), /another shuffler/, "signature");
    await failing(visit(url, { ...options, leastThreshold: 10 ** 9 }, "coffee"), /fewer than 1000000000/);
  }, { shuffled: (url) => shuffledDocument(url, terms) });
});

test("of two pages that answer at once one answer is kept", async () => {
  const outbox = new Outbox(new Kept());
  await outbox.part("only", "");
  await Promise.all(["first", "second"].map((key) => outbox.put([{ campaign: "c", answer: "only", key }], true)));
  assert.deepEqual((await outbox.waiting("c")).map(({ key }) => key), ["first"]);
  assert.equal((await outbox.part("only", "")).isAnswered, true);
  // Uploads that are no only answer are all kept.
  await outbox.put([{ campaign: "c", answer: "third", key: "third" }]);
  assert.equal((await outbox.waiting("c")).length, 2);
});
