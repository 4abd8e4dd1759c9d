// The same bits as the Python library, for random cases that it wrote to the file SSTQ_CASES.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Mechanism } from "../sstq.js";
import { answered } from "./numbers.js";

const path = process.env.SSTQ_CASES;
const cases = path ? JSON.parse(readFileSync(path, "utf8")) : [];

function floats(hexadecimal) {
  const bytes = Buffer.from(hexadecimal, "hex"), values = new Float32Array(bytes.length / 4);
  return values.map((_, i) => bytes.readFloatLE(4 * i));
}

test("the file of cases is there", { skip: path ? false : "SSTQ_CASES is not set; pytest sets it" }, () => {
  assert.ok(cases.length > 20);
});

for (const { mechanism: json, digest, message_bits, packed, cases: each } of cases) {
  test(json.slice(0, 1000), async () => {
    const mechanism = new Mechanism(json);
    assert.equal(mechanism.json, json);
    assert.equal(await mechanism.digest(), digest);
    assert.equal(mechanism.messageBits, message_bits);
    const messages = each.map(({ vector, value, group, words: texts }) => {
      const words = BigUint64Array.from(texts, BigInt);
      if (vector === undefined) return answered(mechanism, value, words);
      return mechanism.encodeWithWords(floats(vector), group ?? undefined, words);
    });
    assert.deepEqual(messages, each.map(({ message }) => message));
    assert.equal(Buffer.from(mechanism.pack(messages)).toString("hex"), packed);
  });
}
