// The test vectors of clients/vectors, file by file.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { canonical, Mechanism, readCampaign, steps } from "../sstq.js";
import { answered, bitsOf, float32, float32s, float64, hexadecimal, words } from "./numbers.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));
const word = (text) => words(text)[0];
const streamWords = (seed, purpose, count) => {
  const halves = steps.streamHalves(BigInt(seed), purpose, count);
  return Array.from({ length: count }, (_, i) => (BigInt(halves[2 * i + 1]) << 32n) | BigInt(halves[2 * i]));
};

function vectorOf({ x, x_stream: stream }) {
  if (x !== undefined) return float32s(x);
  const found = streamWords(stream.seed, stream.purpose, stream.count);
  return Float32Array.from(found, (each) => (Number(each >> 40n) - 2 ** 23) * 2 ** stream.exponent);
}

/** Compare floats with what a case says of them under a name: all of them, the first ones, and a checksum. */
function assertFloats(found, data, name) {
  if (data[name] !== undefined) assert.deepEqual(bitsOf(found), data[name].split(" "));
  const first = data[`${name}_first`]?.split(" ");
  if (first) assert.deepEqual(bitsOf(found.subarray(0, first.length)), first);
  const bytes = Buffer.alloc(4 * found.length);
  found.forEach((value, i) => bytes.writeFloatLE(value, 4 * i));
  assert.equal(createHash("sha256").update(bytes).digest("hex"), data[`${name}_sha256`]);
}

/** An encoder with some of its parts, to test one of its steps. */
const partOf = (kind, parts) => Object.assign(Object.create(kind.prototype), parts);

test("philox", () => {
  const { streams, identifiers } = read("philox");
  for (const { seed, purpose, words: stated } of streams) {
    const expected = Array.from(words(stated));
    assert.deepEqual(streamWords(seed, purpose, expected.length), expected);
  }
  for (const { seed, purpose, identifiers: given, words: stated } of identifiers)
    words(given).forEach((identifier, i) => {
      if (identifier < 2n ** 53n) // frames and slots are fewer
        assert.equal(steps.wordOf(BigInt(seed), purpose, Number(identifier)), words(stated)[i]);
    });
});

test("signs", () => {
  for (const { seed, purpose, count, signs } of read("signs").cases) {
    const ones = new Float32Array(count).fill(1);
    steps.flipSigns(new Int32Array(ones.buffer), steps.signBits(BigInt(seed), purpose, count), count);
    assert.equal(Array.from(ones, (sign) => (sign < 0 ? "-" : "+")).join(""), signs);
  }
});

test("columns", () => {
  for (const { seed, dim, size, columns } of read("columns").cases)
    assert.deepEqual(Array.from(steps.chosenPlaces(BigInt(seed), "columns", dim, size)), columns);
});

test("frames", () => {
  for (const { seed, frames, numbers, seeds } of read("frames").cases)
    if (frames > 1)
      assert.deepEqual(numbers.map((number) => String(steps.wordOf(BigInt(seed), "frames", number))), seeds);
});

test("words", () => {
  for (const { word: text, unit, index_below, place_below } of read("words").cases) {
    assert.equal(steps.uniform(word(text)), float64(unit));
    for (const [limit, index] of Object.entries(index_below))
      assert.equal(steps.scaled(word(text), Number(limit)), index);
    for (const [limit, place] of Object.entries(place_below))
      assert.equal(steps.scaled(word(text) >> 2n, Number(limit), 62n), place);
  }
});

test("norm", () => {
  for (const data of read("norm").cases) assert.equal(steps.norm(vectorOf(data)), float64(data.length));
});

test("the places in a block decide on the sums of a norm", () => {
  const encoder = partOf(steps.RowEncoder, { clip: 1, groupsPerBlock: 3, dim: 5, size: 16, rounds: 1, frames: 1, seed: 0n });
  for (let trial = 0; trial < 1000; trial++) {
    const x = Float32Array.from({ length: 5 }, () => Math.random() / 5 / 2 ** (8 * Math.random())), start = 5 * (trial % 3);
    const padded = new Float32Array(15);
    padded.set(x, start);
    // The largest number that turns the vector, and the least that does not: they follow from the whole block's norm.
    const bound = (1 - Math.min(1, steps.norm(padded))) / 2, flips = [bound, bound - 2 ** -54];
    const [kept, turned] = flips.map((flip) => encoder.scores(x, start, flip, encoder.signs(0)).x.slice());
    assert.deepEqual(Array.from(kept), Array.from(turned, (score) => -score));
  }
});

test("transform", () => {
  for (const data of read("transform").cases) {
    const x = vectorOf(data), floats = new steps.Floats(x.length);
    floats.x.set(x);
    floats.butterflies(steps.ranges([0, Math.log2(x.length)]));
    assertFloats(floats.x, data, "y");
  }
});

test("mixing", () => {
  for (const data of read("mixing").cases) {
    const { dim, size, rounds, seed, negative } = data;
    // With a share of 0 numbers on either side of one half give either sign.
    const parts = { clip: Infinity, groupsPerBlock: 1, dim, size, rounds, frames: 1, seed: BigInt(seed) };
    const encoder = partOf(steps.RowEncoder, parts);
    assertFloats(encoder.scores(vectorOf(data), 0, negative ? 0 : 0.5, encoder.signs(0)).x, data, "scores");
  }
});

test("selection", () => {
  for (const { scores: text, inside, rows } of read("selection").cases) {
    const scores = float32s(text), bits = new Int32Array(scores.buffer), last = steps.lastInside(bits, inside);
    const found = rows.map((_, place) => {
      if (place >= 2 * inside) return 2 * steps.memberOf(bits, last, false, (place - 2 * inside) >> 1) + (place & 1);
      const index = steps.memberOf(bits, last, true, place % inside);
      return 2 * index + Number((scores[index] < 0) !== place >= inside);
    });
    assert.deepEqual(found, rows);
  }
});

test("two-level draws", () => {
  for (const { size, inside, threshold, words: text, place } of read("two-level").cases) {
    const draw = new steps.TwoLevelDraw(20, size, inside, BigInt(threshold));
    assert.equal(draw.place(...words(text)), place);
  }
});

test("groups", () => {
  const { shares } = read("groups");
  for (const { seed, share_size, share_inside, share_threshold, multipliers, slots, cases } of shares) {
    const draw = new steps.TwoLevelDraw(20, share_size, share_inside, BigInt(share_threshold));
    const encoder = partOf(steps.RowEncoder, { shares: draw, seed: BigInt(seed), multipliers, slots });
    for (const { group, frame, words: text, row } of cases)
      assert.equal(encoder.shareCode(group, frame, words(text)), row);
  }
});

test("rounding", () => {
  const { codebooks, cases } = read("rounding");
  for (const { codebook, y, word: text, token } of cases) {
    const encoder = partOf(steps.CoordinateEncoder, { values: codebooks[codebook].split(" ").map(float64) });
    assert.equal(encoder.token(float32(y), steps.uniform(word(text))), token);
  }
});

test("flat", () => {
  for (const { own, other, token, word: text, code } of read("flat").cases) {
    const encoder = partOf(steps.CoordinateEncoder, { ownWeight: BigInt(own), otherWeight: BigInt(other), size: 4 });
    Object.assign(encoder, { coordinate: () => 0, token: () => token });
    assert.deepEqual(encoder.encode([], 0, [0n, 0n, word(text)]), [code, 0]);
  }
});

test("representation", () => {
  for (const data of read("representation").cases) {
    const { dim, size, seed, level, steps: count } = data, x = vectorOf(data);
    const encoder = partOf(steps.CoordinateEncoder, { dim, size, clip: 1, level: float64(level), steps: count });
    const schedule = encoder.schedule();
    assert.deepEqual(bitsOf(schedule.flat()), data.schedule.split(" "));
    const t = new steps.KashinFrame(BigInt(seed), dim, size, schedule).represent(x, 1);
    assertFloats(t.map((value) => Math.min(Math.max(value / schedule.at(-1)[2], -1), 1)), data, "values");
  }
});

test("mechanisms", async () => {
  const { cases, numbers } = read("mechanisms");
  for (const { json, digest, fields, message_bits, words: count, messages = 1, epsilon_of_all } of cases) {
    const mechanism = new Mechanism(json);
    assert.equal(await mechanism.digest(), digest);
    assert.deepEqual(mechanism.fields.map(({ name, bits }) => [name, bits]), fields);
    assert.deepEqual([mechanism.messageBits, mechanism.wordsEach], [message_bits, count]);
    assert.equal(mechanism.messages, messages);
    assert.equal(mechanism.bundleEpsilon, epsilon_of_all === undefined ? mechanism.epsilon : float64(epsilon_of_all));
  }
  for (const { double, text } of numbers) assert.equal(canonical(float64(double)), text);
});

test("packing", () => {
  for (const { fields, messages, packed } of read("packing").cases) {
    const parts = { fields: fields.map(([name, bits]) => ({ name, bits, limit: 2 ** bits })) };
    parts.messageBits = parts.fields.reduce((sum, { bits }) => sum + bits, 0);
    assert.equal(hexadecimal(partOf(Mechanism, parts).pack(messages)), packed);
  }
});

test("messages", () => {
  const { mechanisms, cases, batches, slots } = read("messages");
  const made = Object.fromEntries(Object.entries(mechanisms).map(([name, json]) => [name, new Mechanism(json)]));
  for (const data of cases) {
    const mechanism = made[data.mechanism];
    const message = mechanism.encodeWithWords(vectorOf(data), data.group ?? undefined, words(data.words));
    assert.deepEqual(Object.fromEntries(mechanism.fields.map(({ name }, i) => [name, message[i]])), data.fields);
    assert.equal(hexadecimal(mechanism.pack([message])), data.packed);
  }
  for (const { mechanism, messages, packed } of batches)
    assert.equal(hexadecimal(made[mechanism].pack(messages)), packed);
  for (const { mechanism: name, x, groups = [], words: text, messages } of slots) {
    const mechanism = made[name], people = x.map(float32s), drawn = words(text), count = mechanism.wordsEach;
    assert.equal(messages.length, people.length * mechanism.messages);
    messages.forEach((message, i) => {
      const person = i % people.length, own = drawn.slice(i * count, (i + 1) * count);
      assert.deepEqual(mechanism.encodeWithWords(people[person], groups[person], own), message);
    });
  }
});

test("no coin but a private one is read", () => {
  for (const json of Object.values(read("messages").mechanisms)) {
    const other = json.replace('"coin":"private"', '"coin":"public"');
    assert.notEqual(other, json);
    assert.throws(() => new Mechanism(other), { name: "SstqError", code: "mechanism" });
  }
});

for (const file of ["surveys", "numbers"]) test(`messages of ${file}`, async () => {
  const { mechanisms, agreements, cases, slots, refused } = read(file);
  const made = Object.fromEntries(Object.entries(mechanisms).map(([name, json]) => [name, new Mechanism(json)]));
  for (const { mechanism: name, digest, fields } of agreements) {
    assert.equal(await made[name].digest(), digest);
    assert.deepEqual(made[name].fields.map(({ name, bits }) => [name, bits]), fields);
  }
  for (const data of cases) {
    const mechanism = made[data.mechanism], message = answered(mechanism, data.value, words(data.words));
    const found = Object.fromEntries(mechanism.fields.map(({ name }, i) => [name, String(message[i])]));
    assert.deepEqual(found, data.fields, `${data.mechanism}: ${data.about}`);
    assert.equal(hexadecimal(mechanism.pack([message])), data.packed);
  }
  for (const { mechanism: name, values, words: text, messages } of slots) {
    const mechanism = made[name], count = mechanism.wordsEach, drawn = words(text);
    assert.equal(messages.length, values.length * mechanism.messages);
    messages.forEach((message, i) =>
      assert.deepEqual(answered(mechanism, values[i % 2], drawn.slice(i * count, (i + 1) * count)), message),
    );
  }
  for (const { about, json } of refused)
    assert.throws(() => new Mechanism(json), { name: "SstqError", code: "mechanism" }, about);
});

test("campaigns", async () => {
  const { cases, refused, public_key } = read("campaign");
  const encode = (text) => new TextEncoder().encode(text);
  for (const { name, document, signature, digest, epsilon } of cases)
    for (const pinned of [undefined, public_key]) {
      const campaign = await readCampaign(encode(document), signature, pinned);
      assert.deepEqual([campaign.name, campaign.digest, campaign.key], [name, digest, public_key]);
      assert.equal(campaign.mechanism.epsilon, epsilon);
    }
  for (const { about, document, signature, name, pinned_key } of refused) {
    const reading = readCampaign(encode(document), signature, pinned_key).then((campaign) =>
      assert.equal(campaign.name, name, "another campaign"),
    );
    await assert.rejects(reading, undefined, about);
  }
});
