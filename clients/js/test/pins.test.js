// Keys that a user pins: a mistake in them is an error before the first request.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../sstq.js";
import { publicKey, shufflerKey, shuffledDocument, withCollector } from "./collector.js";

const ONE = "01".repeat(32), TWO = "02".repeat(32), PLACE = "https://collect.example/steps";
const refused = (code, message) => ({ name: "SstqError", code, message });

for (const [what, link, options = {}] of [
  ["an empty key", "", { pinnedKey: "" }],
  ["an empty key of the shuffler", "", { pinnedShuffler: "" }],
  ["null", "", { pinnedShuffler: null }],
  ["a short key", "", { pinnedKey: "abc" }],
  ["capitals", "", { pinnedKey: "AB".repeat(32) }],
  ["an option that is misspelled", "", { pinnedShufler: TWO }],
  ["an option of Python", "", { pinned_key: ONE }],
  ["an empty key in the link", "#shuffler-key="],
  ["one of two keys empty", `#collector-key=${ONE}&shuffler-key=`],
  ["a misspelled key", `#collector_key=${ONE}`],
  ["an unknown key", `#collector-key=${ONE}&key=${TWO}`],
  ["a key twice", `#collector-key=${ONE}&collector-key=${ONE}`],
  ["two keys of one name", `#collector-key=${TWO}&collector-key=${ONE}`],
  ["a malformed key", `#collector-key=${ONE.slice(1)}`],
  ["a key and a line", `#collector-key=${ONE}\n`],
  ["an encoded name", `#collector%2Dkey=${ONE}`],
  ["an empty fragment", "#"],
  ["another key than the link's", `#collector-key=${ONE}`, { pinnedKey: TWO }],
  ["a crowd of one", "", { leastThreshold: 1 }],
  ["a crowd that is no number", "", { leastThreshold: NaN }],
  ["a crowd of text", "", { leastThreshold: "500" }],
  ["another address than the shuffler's", "", { pinnedShuffler: TWO, shufflerUrl: "https://shuffle.example" }],
])
  test(`nothing is asked with ${what}`, async () => {
    const ask = globalThis.fetch;
    globalThis.fetch = () => assert.fail("something was asked");
    try {
      await assert.rejects(Client.open(PLACE + link, { mostEpsilon: 2, patience: 0, ...options }), refused("argument", /must (be|end)/));
    } finally {
      globalThis.fetch = ask;
    }
  });

test("the keys of the link may be repeated, and the shuffler's address confirmed", () =>
  withCollector(
    async (url, requests) => {
      const link = `${url}#collector-key=${publicKey}&shuffler-key=${shufflerKey}`, [address] = url.split("/steps");
      const keys = { pinnedKey: publicKey, pinnedShuffler: shufflerKey };
      const client = await Client.open(link, { mostEpsilon: 4, ...keys, shufflerUrl: address });
      assert.equal(client.campaign.shuffling.key, shufflerKey);
      assert.equal(requests.length, 1);
    },
    { shuffled: shuffledDocument },
  ));

test("a crowd that everybody may join is no crowd", () =>
  withCollector(
    async (url) => {
      const options = { mostEpsilon: 4, pinnedKey: publicKey, pinnedShuffler: shufflerKey };
      await assert.rejects(
        Client.open(url, { ...options, leastThreshold: 2 }),
        refused("campaign", /leastThreshold protects nobody where everybody may send.*nothing was sent/),
      );
      assert.ok(await Client.open(url, options));
    },
    { shuffled: (url) => shuffledDocument(url, { senders: "everybody" }) },
  ));
