// Envelopes against RFC 9180 and the test vectors, and shuffled campaigns against a shuffler that fails on purpose.

import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { coverInfo, envelopeInfo, keySchedule, openSealer, seal } from "../sealing.js";
import { Client, Ledger, readCampaign } from "../sstq.js";
import { publicKey, shufflerKey, shuffledDocument, signedDocument, withCollector } from "./collector.js";
import { hexadecimal } from "./numbers.js";

const read = async (name) => JSON.parse(await readFile(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const { subtle } = crypto;
const { rfc9180, cases, crowds, uploads, public_key: sealingKey, cover_public_key: coverKey } = await read("envelope");
const QUICK = { mostEpsilon: 4, pause: 0.001, pinnedKey: publicKey, pinnedShuffler: shufflerKey };
const VECTOR = [0.1, -0.2, 0.3];
const refused = (code, message) => ({ name: "SstqError", code, message });
const posts = (requests) => requests.filter(({ method }) => method === "POST");

/** The pair of keys of 32 secret bytes. */
async function pairOf(secret) {
  const der = Buffer.from(`302e020100300506032b656e04220420${secret}`, "hex"), name = "X25519";
  const jwk = createPublicKey(createPrivateKey({ key: der, format: "der", type: "pkcs8" })).export({ format: "jwk" });
  return {
    privateKey: await subtle.importKey("pkcs8", der, { name }, false, ["deriveBits"]),
    publicKey: await subtle.importKey("jwk", jwk, { name }, true, []),
  };
}

/** Run `use` while `crypto.subtle` has another function. */
async function replaced(name, replacement, use) {
  Object.defineProperty(subtle, name, { value: replacement, configurable: true });
  try {
    return await use();
  } finally {
    delete subtle[name];
  }
}

test("the key schedule is that of RFC 9180, A.1.1", async () => {
  const { public_key, info, ephemeral_key, aad, message } = rfc9180;
  const { enc, key, nonce } = await keySchedule(bytes(public_key), bytes(info), await pairOf(ephemeral_key));
  assert.deepEqual([enc, key, nonce].map(hexadecimal), [rfc9180.enc, rfc9180.key, rfc9180.nonce]);
  const imported = await subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const algorithm = { name: "AES-GCM", iv: nonce, additionalData: bytes(aad) };
  assert.equal(hexadecimal(await subtle.encrypt(algorithm, imported, bytes(message))), rfc9180.ciphertext);
});

test("envelopes are those of the vectors", async () => {
  for (const { crowd, slot, message, ephemeral_key, info, envelope } of cases) {
    assert.equal(hexadecimal(envelopeInfo(bytes(crowd), slot)), info);
    const sealed = await seal(bytes(message), bytes(sealingKey), bytes(info), await pairOf(ephemeral_key));
    assert.equal(hexadecimal(sealed), envelope);
    assert.equal(sealed.length, bytes(message).length + 48);
  }
});

test("the crowd and the body of an upload are those of the vectors", async () => {
  const [{ campaign: name, messages, ephemeral_keys, headers: stated, body }] = uploads, [{ crowd, cover_info }] = crowds;
  const { document, signature, shuffler_signature } = (await read("campaign")).cases.find((own) => own.name === name);
  const content = new TextEncoder().encode(document), campaign = await readCampaign(content, signature);
  assert.deepEqual([campaign.shuffling.sealingKey, campaign.shuffling.coverKey], [sealingKey, coverKey]);
  assert.equal(campaign.shuffling.crowd, crowd);
  assert.equal(hexadecimal(coverInfo(bytes(crowd))), cover_info);
  const headers = new Headers({ "SSTQ-Shuffler-Signature": shuffler_signature });
  const keys = { pinnedKey: publicKey, pinnedShuffler: shufflerKey };
  const wanted = { ...keys, address: "https://shuffle.example/people", fail: assert.fail, isSigned: async () => true };
  const { bodies } = await openSealer(campaign, { content, headers }, wanted);
  const pairs = await Promise.all(ephemeral_keys.map(pairOf));
  const made = async (several) => {
    let place = 0;
    const found = await replaced("generateKey", async () => pairs[place++ % pairs.length], () => bodies(several));
    return found.map(hexadecimal);
  };
  assert.deepEqual([await made(messages), stated["SSTQ-Count"]], [[body], "1"]); // person
  // Messages of several people come slot by slot, and each person's are in a body of their own.
  const [one, two] = messages, other = await made([one, one]);
  assert.notDeepEqual(other, [body]);
  assert.deepEqual(await made([one, one, two, one]), [body, ...other]);
});

test("every envelope has a key of its own", async () => {
  const some = await Promise.all(Array.from({ length: 9 }, () => seal(bytes("2a"), bytes(sealingKey), bytes("00"))));
  assert.equal(new Set(some.map((sealed) => hexadecimal(sealed.subarray(0, 32)))).size, 9);
});

const everybody = (url) => shuffledDocument(url, { senders: "everybody" });

for (const how of ["options", "a link"])
  test(`with the keys of ${how}, each person is sent to the shuffler`, () =>
    withCollector(
      async (url, requests) => {
        const { pinnedKey, pinnedShuffler, ...quick } = QUICK;
        const link = `${url}#collector-key=${pinnedKey}&shuffler-key=${pinnedShuffler}`;
        const opening = how === "options" ? Client.open(url, QUICK) : Client.open(link, quick);
        const client = await opening, { shuffling, mechanism, digest } = client.campaign, { crowd } = shuffling;
        assert.deepEqual(shuffling, {
          ...{ url: new URL("/people", url).href, key: shufflerKey, coverKey, sealingKey, crowd },
          ...{ threshold: 1000, delta: 1e-6, belowThreshold: "drop" },
        });
        assert.equal(await client.send([VECTOR, VECTOR, VECTOR]), 6);
        const tries = posts(requests), [{ path, headers, body }] = tries;
        assert.deepEqual([path, tries.length], ["/people/v1/campaigns/steps/messages", 5]);
        assert.equal(new Set(tries.map((own) => own.headers["idempotency-key"] + own.body)).size, 3);
        assert.deepEqual([headers["sstq-count"], headers["sstq-digest"]], ["1", digest]);
        const each = 48 + Math.ceil(mechanism.messageBits / 8);
        assert.equal(body.length, 2 * (32 + 48 + 2 * each));
        assert.ok(tries.every((own) => own.body.startsWith(crowd)));
        assert.equal(requests.length, 2 + 5); // nobody else is asked
      },
      { shuffled: everybody, answers: [503, "hang up"] },
    ));

test("the ledger is charged for all messages of a person", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sstq-"));
  try {
    const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 5 });
    await withCollector(
      async (url, requests) => {
        const client = await Client.open(url, { ...QUICK, ledger });
        assert.equal(await client.send(Array(5).fill(VECTOR)), 10);
        assert.equal(new Set(posts(requests).map(({ headers }) => headers["idempotency-key"])).size, 5);
        assert.equal(await ledger.spent(), 4); // two messages with ε = 2
        await assert.rejects(client.send(VECTOR), refused("ledger", /epsilon = 4 is more than is left: 1 of 5/));
        const odd = client.sendMessages([[1, 1], [2, 2], [3, 3]]);
        await assert.rejects(odd, refused("argument", /messages must be 2 per person, slot by slot, got 3/));
        assert.equal(posts(requests).length, 5);
      },
      { shuffled: everybody },
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a single-use token stands for one person, who sends all messages", () =>
  withCollector(
    async (url, requests) => {
      const client = await Client.open(url, { ...QUICK, token: "a-token" });
      await assert.rejects(client.send([VECTOR, VECTOR]), refused("argument", /one person, got 4 messages/));
      assert.equal(await client.send(VECTOR), 2);
      assert.equal(posts(requests)[0].headers.authorization, "Bearer a-token");
    },
    { shuffled: shuffledDocument },
  ));

const terms = (shuffling) => (url) => shuffledDocument(url, { shuffling });
const changed = (changes) => (url) => shuffledDocument(url, changes);
const forged = (url) => ({ ...shuffledDocument(url), shufflerSignature: shuffledDocument(url).signature });
const zeros = "0".repeat(64); // a point of small order
for (const [what, shuffled, code, message] of [
  ["a shuffler that has not signed", forged, "signature", /is not the shuffler that the campaign names/],
  ["another address", terms({ url: "https://collect.example" }), "campaign", /is at https:\/\/collect.example, not at/],
  ["several people per upload", changed({ most_messages: 99 }), "campaign", /most_messages must be 1, got 99/],
  ["half a key", changed({ sealing_keys: [sealingKey.slice(32)] }), "campaign", /sealing_keys must be public keys/],
  ["no cover", terms({ sealing_key: undefined }), "campaign", /sealing_key must be 64 hexadecimal digits/],
  ["a cover key that is none", terms({ sealing_key: zeros }), "campaign", /a sealing key is none of X25519/],
  ["no sealing key", changed({ sealing_keys: [] }), "campaign", /sealing_keys must be/],
  ["a sealing key that is none", changed({ sealing_keys: [zeros] }), "campaign", /a sealing key is none of X25519/],
  ["other slots", changed({ slots: 3 }), "campaign", /slots must be 2, got 3/],
  ["longer envelopes", changed({ envelope_bytes: 52 }), "campaign", /envelope_bytes must be \d+, got 52/],
  ["shared tokens", changed({ senders: "token" }), "campaign", /senders must be "everybody" or "single-use"/],
  ["no end", changed({ closes: undefined }), "campaign", /closes must be a time where messages are shuffled/],
  ["a crowd of one", terms({ threshold: 1 }), "campaign", /shuffling: threshold must be an integer in/],
  ["no address", terms({ url: "ftp://x" }), "campaign", /url must be the shuffler's address/],
  ["a query", terms({ url: "http://x/?y" }), "campaign", /url must be the shuffler's address/],
  ["no key", terms({ key: "x" }), "campaign", /key must be 64 hexadecimal digits/],
  ["more terms", terms({ x: 1 }), "campaign", /shuffling has what this module does not know: x/],
])
  test(`refused: ${what}`, () =>
    withCollector(
      async (url, requests) => {
        await assert.rejects(Client.open(url, QUICK), refused(code, message));
        assert.equal(posts(requests).length, 0);
      },
      { shuffled },
    ));

test("refused: keys that are not pinned, another shuffler, small crowds, and more ε than the client allows", async () => {
  await withCollector(
    async (url, requests) => {
      for (const [changes, code, message] of [
        [{ pinnedKey: undefined }, "argument", /needs pinnedKey and pinnedShuffler/],
        [{ pinnedShuffler: undefined }, "argument", /needs pinnedKey and pinnedShuffler/],
        [{ pinnedKey: "1".repeat(64) }, "signature", /another key than the pinned one/],
        [{ pinnedShuffler: "1".repeat(64) }, "signature", /another shuffler than the pinned one: [0-9a-f]{64}/],
        [{ leastThreshold: 1001 }, "campaign", /forwards crowds of 1000 people, fewer than 1001/],
        [{ mostEpsilon: 3.9 }, "epsilon", /epsilon = 4, more than 3.9/],
      ])
        await assert.rejects(Client.open(url, { ...QUICK, ...changes }), refused(code, message));
      assert.equal((await Client.open(url, { ...QUICK, leastThreshold: 1000 })).campaign.shuffling.threshold, 1000);
      assert.equal(posts(requests).length, 0);
    },
    { shuffled: shuffledDocument },
  );
  await withCollector(
    (url) => assert.rejects(Client.open(url, { ...QUICK, leastThreshold: 2 }), refused("campaign", /crowds of 1 people/)),
    { shuffled: terms({ below_threshold: "local" }) },
  );
  for (const option of [{ pinnedShuffler: shufflerKey }, { leastThreshold: 2 }])
    await withCollector(
      (url) => assert.rejects(Client.open(url, { mostEpsilon: 4, ...option }), refused("campaign", /has no shuffler/)),
      { document: signedDocument() },
    );
});

test("a runtime without X25519 is told so before anything is drawn", () =>
  withCollector(
    async (url) => {
      const missing = async () => {
        throw new DOMException("Unrecognized name.", "NotSupportedError");
      };
      const opening = () => assert.rejects(Client.open(url, QUICK), refused("crypto", /X25519 is missing: take Chrome/));
      await replaced("generateKey", missing, opening);
    },
    { shuffled: shuffledDocument },
  ));
