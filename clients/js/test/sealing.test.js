// Envelopes against RFC 9180 and the test vectors, and shuffled campaigns against a shuffler that fails on purpose.

import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { envelopeInfo, keySchedule, openSealer, seal } from "../sealing.js";
import { Client, Ledger, readCampaign } from "../sstq.js";
import { publicKey, shuffledDocument, signedDocument, withCollector } from "./collector.js";
import { hexadecimal } from "./numbers.js";

const read = async (name) => JSON.parse(await readFile(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const { subtle } = crypto;
const { rfc9180, cases, uploads, public_key: sealingKey, key_name: keyName } = await read("envelope");
const QUICK = { mostEpsilon: 4, pause: 0.001 };
const VECTOR = [0.1, -0.2, 0.3];
const refused = (code, message) => ({ name: "SstqError", code, message });
const posts = (requests) => requests.filter(({ method }) => method === "POST");
const honest = (url) => [shuffledDocument(url), shuffledDocument(url)];

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
  for (const { campaign, digest, slot, message, ephemeral_key, info, envelope } of cases) {
    assert.equal(hexadecimal(envelopeInfo(campaign, digest, slot)), info);
    const sealed = await seal(bytes(message), bytes(sealingKey), bytes(info), await pairOf(ephemeral_key));
    assert.equal(hexadecimal(sealed), envelope);
    assert.equal(sealed.length, bytes(message).length + 48);
  }
});

test("the body of an upload is that of the vectors", async () => {
  const [{ campaign: name, messages, ephemeral_keys, headers: stated, body }] = uploads;
  const { document, signature, shuffler_signature } = (await read("campaign")).cases.find((own) => own.name === name);
  const content = new TextEncoder().encode(document), campaign = await readCampaign(content, signature);
  assert.deepEqual(campaign.shuffling.sealingKey, sealingKey);
  const headers = new Headers({ "SSTQ-Shuffler-Signature": shuffler_signature });
  const tools = { fail: assert.fail, get: assert.fail, isSigned: async () => true };
  const { address, bodies } = await openSealer(campaign, { content, headers }, tools);
  assert.equal(address, "https://shuffle.example/people/v1/campaigns/shuffled-2026");
  const pairs = await Promise.all(ephemeral_keys.map(pairOf));
  const [[made, people]] = await replaced("generateKey", async () => pairs.shift(), () => bodies(messages));
  assert.deepEqual([hexadecimal(made), String(people)], [body, stated["SSTQ-Count"]]);
});

test("every envelope has a key of its own", async () => {
  const some = await Promise.all(Array.from({ length: 9 }, () => seal(bytes("2a"), bytes(sealingKey), bytes("00"))));
  assert.equal(new Set(some.map((sealed) => hexadecimal(sealed.subarray(0, 32)))).size, 9);
});

for (const from of ["the collector", "the shuffler"])
  test(`opened at ${from}, people send to the shuffler`, () =>
    withCollector(
      async (url, requests) => {
        const place = from === "the collector" ? url : url.replace("/steps", "/people/steps");
        const { key } = JSON.parse(shuffledDocument("http://x").document).shuffling;
        const client = await Client.open(place, { ...QUICK, pinnedKey: publicKey, pinnedShuffler: key });
        const { shuffling, mechanism, digest } = client.campaign;
        assert.deepEqual(shuffling, {
          ...{ url: new URL("/people", url).href, key, threshold: 1000, delta: 1e-6, belowThreshold: "drop" },
          sealingKey,
        });
        assert.equal(await client.send([VECTOR, VECTOR, VECTOR]), 6);
        const tries = posts(requests), [{ path, headers, body }] = tries;
        assert.deepEqual([path, tries.length], ["/people/v1/campaigns/steps/messages", 3]);
        assert.equal(new Set(tries.map((own) => own.headers["idempotency-key"] + own.body)).size, 1);
        assert.deepEqual([headers["sstq-count"], headers["sstq-digest"]], ["3", digest]);
        const each = 48 + Math.ceil(mechanism.messageBits / 8);
        assert.equal(body.length, 2 * (8 + 3 * 2 * each));
        assert.ok(body.startsWith(keyName));
      },
      { shuffled: honest, answers: [503, "hang up"] },
    ));

test("many people are sent in parts, and the ledger is charged for all messages of one", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sstq-"));
  try {
    const ledger = await Ledger.open(join(folder, "ledger"), { epsilon: 5 });
    await withCollector(
      async (url, requests) => {
        const client = await Client.open(url, { ...QUICK, ledger });
        assert.equal(await client.send(Array(5).fill(VECTOR)), 10);
        assert.deepEqual(posts(requests).map(({ headers }) => headers["sstq-count"]), ["2", "2", "1"]);
        assert.equal(new Set(posts(requests).map(({ headers }) => headers["idempotency-key"])).size, 3);
        assert.equal(await ledger.spent(), 4); // two messages with ε = 2
        await assert.rejects(client.send(VECTOR), refused("ledger", /epsilon = 4 is more than is left: 1 of 5/));
        const odd = client.sendMessages([[1, 1], [2, 2], [3, 3]]);
        await assert.rejects(odd, refused("argument", /messages must be 2 per person, slot by slot, got 3/));
        assert.equal(posts(requests).length, 3);
      },
      { shuffled: (url) => Array(2).fill(shuffledDocument(url, { most_messages: 2 })) },
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
    { shuffled: (url) => Array(2).fill(shuffledDocument(url, { senders: "single-use", most_messages: 1 })) },
  ));

const both = (changes) => (url) => Array(2).fill(shuffledDocument(url, changes));
const forged = (url) => [honest(url)[0], { ...honest(url)[0], shufflerSignature: honest(url)[0].signature }];
const other = { id: "0".repeat(16), key: sealingKey };
const zeros = { id: "66687aadf862bd77", key: "0".repeat(64) }; // a point of small order, and its right name
for (const [what, shuffled, code, message] of [
  ["a shuffler that has not signed", forged, "signature", /is not the shuffler that the campaign names/],
  ["two documents", (url) => [honest(url)[0], both({ most_messages: 7 })(url)[0]], "campaign", /another document/],
  ["a key under another name", both({ sealing_keys: [other] }), "campaign", /sealing_keys must be public keys with/],
  ["no sealing key", both({ sealing_keys: [] }), "campaign", /sealing_keys must be/],
  ["a sealing key that is none", both({ sealing_keys: [zeros] }), "campaign", /sealing key is none of X25519/],
  ["other slots", both({ slots: 3 }), "campaign", /slots must be 2, got 3/],
  ["longer envelopes", both({ envelope_bytes: 52 }), "campaign", /envelope_bytes must be \d+, got 52/],
  ["shared tokens", both({ senders: "token" }), "campaign", /senders must be "everybody" or "single-use"/],
  ["no end", both({ closes: undefined }), "campaign", /closes must be a time where messages are shuffled/],
  ["a crowd of one", both({ shuffling: { threshold: 1 } }), "campaign", /shuffling: threshold must be an integer in/],
  ["no address", both({ shuffling: { url: "ftp://x" } }), "campaign", /url must be the shuffler's address/],
  ["a query", both({ shuffling: { url: "http://x/?y" } }), "campaign", /url must be the shuffler's address/],
  ["no key", both({ shuffling: { key: "x" } }), "campaign", /key must be 64 hexadecimal digits/],
  ["more terms", both({ shuffling: { x: 1 } }), "campaign", /shuffling has what this module does not know: x/],
])
  test(`refused: ${what}`, () =>
    withCollector(
      async (url, requests) => {
        await assert.rejects(Client.open(url, QUICK), refused(code, message));
        assert.equal(posts(requests).length, 0);
      },
      { shuffled },
    ));

test("refused: another shuffler than the pinned one, none, and more ε than the client allows", async () => {
  await withCollector(
    async (url) => {
      const pinned = Client.open(url, { ...QUICK, pinnedShuffler: "1".repeat(64) });
      await assert.rejects(pinned, refused("signature", /another shuffler than the pinned one: [0-9a-f]{64}/));
      const less = Client.open(url, { ...QUICK, mostEpsilon: 3.9 });
      await assert.rejects(less, refused("epsilon", /epsilon = 4, more than 3.9/));
    },
    { shuffled: honest },
  );
  await withCollector(
    async (url) => {
      const pinned = Client.open(url, { ...QUICK, pinnedShuffler: "1".repeat(64) });
      await assert.rejects(pinned, refused("signature", /another shuffler than the pinned one/));
    },
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
    { shuffled: honest },
  ));
