// Privacy on its own, whatever the library does: the draw is driven through its words, and its integers are bounded.
//
// For a vector and fixed other words, all words of a cell must give one outcome, and different cells different ones.
// Then each outcome has exactly its cell's probability, and the largest ratio is that of the integers.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Mechanism, steps } from "../sstq.js";
import { answered } from "./numbers.js";

const TOTAL = 1n << 62n;
const written = (file) => {
  const { mechanisms } = JSON.parse(readFileSync(new URL(`../../vectors/${file}.json`, import.meta.url), "utf8"));
  return Object.entries(mechanisms).map(([name, json]) => [name, JSON.parse(json)]);
};
const stated = written("messages"), surveys = [...written("surveys"), ...written("numbers")].filter(
  ([name]) => !/2\^20|one question|long|25 bits|pairs|most/.test(name),
);
const random = (count) => crypto.getRandomValues(new BigUint64Array(count));

/** The cells of a two-level draw: both ends of the two words of each, inside first. */
function twoLevelCells(size, inside, threshold) {
  const start = (members, place) => (TOTAL * place + members - 1n) / members;
  const ends = (members, place) => [start(members, place), start(members, place + 1n) - 1n];
  return Array.from({ length: size }, (_, place) => {
    const isInside = place < inside, members = BigInt(isInside ? inside : size - inside);
    const first = isInside ? [0n, threshold - 1n] : [threshold, TOTAL - 1n];
    return [first, ends(members, BigInt(isInside ? place : place - inside))];
  });
}

/** The cells of randomized response: both ends of its word, the token itself first. */
const flatCells = (codes, own, other) =>
  Array.from({ length: codes }, (_, code) => [
    code ? [own + BigInt(code - 1) * other, own + BigInt(code) * other - 1n] : [0n, own - 1n],
  ]);

const corners = (box) => box.reduce((found, ends) => found.flatMap((some) => ends.map((end) => [...some, end])), [[]]);

/** The outcome of each cell, once it is the same at all of its corners. */
function outcomes(mechanism, vector, group, others, places, cells) {
  return cells.map((box) => {
    const sent = corners(box).map((draw) => {
      const words = others.slice();
      draw.forEach((word, i) => (words[places[i]] = word << 2n));
      return (typeof vector === "object" && !Array.isArray(vector)
        ? answered(mechanism, vector, words)
        : mechanism.encodeWithWords(vector, group, words))[0];
    });
    assert.equal(new Set(sent).size, 1);
    return sent[0];
  });
}

for (const [name, json] of stated.filter(([, { dim, groups = 1 }]) => dim * groups <= 100))
  test(`each outcome has its cell's probability: ${name}`, () => {
    const mechanism = new Mechanism(json), { dim, groups, frames = 1 } = json;
    const isFlat = json.mechanism === "sstq";
    const all = isFlat
      ? [flatCells(2 ** json.bits, BigInt(json.own), BigInt(json.other))]
      : [twoLevelCells(json.frame_size * 2 * (json.blocks ?? 1), json.inside, BigInt(json.threshold))];
    if (json.share_people) all.push(twoLevelCells(json.share_size, json.share_inside, BigInt(json.share_threshold)));
    for (const cells of all) {
      const isShares = cells !== all[0];
      for (const scale of [0, -1, 0.3, 1e30]) {
        const vector = Array.from({ length: dim }, () => scale * (Math.random() - 0.5));
        const group = groups ? Math.floor(Math.random() * groups) : undefined, others = random(mechanism.wordsEach);
        // The last frames are for people who send their group only.
        if (frames > 1) others[3] = isShares ? 2n ** 64n - 1n : 0n;
        const most = scale === 0.3 ? 600 : 100; // all cells once, and some of them for other vectors
        const tried = cells.length <= most ? cells : cells.filter(() => Math.random() < most / 2 / cells.length);
        const found = outcomes(mechanism, vector, group, others, isFlat ? [2] : [1, 2], tried);
        assert.equal(new Set(found).size, tried.length);
      }
    }
  });

/** The cells of a part of a survey, or of Frequencies, and how many frames of its are for vectors. */
const cellsOf = (part) =>
  "frame_size" in part
    ? twoLevelCells(part.frame_size * 2 * (part.blocks ?? 1), part.inside, BigInt(part.threshold))
    : twoLevelCells(part.size, part.inside, BigInt(part.threshold));

const records = [
  { country: "AT", used: ["search"], age: 30, stars: 1, v: [1, 2, 3], team: "a", visits: 3 },
  { country: NaN, used: [], age: Infinity, stars: undefined, v: [NaN, 0, 0] },
  { country: {}, used: { length: 3 }, age: new Date(0), stars: 2n, v: "abc" },
  {},
];

for (const [name, json] of surveys)
  test(`each answer has its cell's probability: ${name}`, () => {
    const mechanism = new Mechanism(json), { draws = [TOTAL], parts = [json] } = json;
    let end = 0n;
    draws.forEach((draw, question) => {
      const start = end;
      end += BigInt(draw);
      const cells = cellsOf(parts[question]);
      const tried = cells.length <= 100 ? cells : cells.filter(() => Math.random() < 50 / cells.length);
      for (const record of draws.length > 1 ? records : [0, 1]) {
        const others = random(mechanism.wordsEach);
        if (parts[question].frames > 1) others[3] = 0n;
        const at = (word) => ((others[4] = word << 2n), outcomes(mechanism, record, undefined, others, [1, 2], tried));
        const found = draws.length > 1 ? at(start) : outcomes(mechanism, record, undefined, others, [1, 2], tried);
        assert.equal(new Set(found).size, tried.length);
        // Both ends of the question's own cell give the same answers to it, whoever is asked.
        if (draws.length > 1) assert.deepEqual(at(end - 1n), found);
        if (draws.length > 1)
          for (const word of [start, end - 1n]) {
            others[4] = (word << 2n) | 3n;
            assert.equal(answered(mechanism, record, others)[1], question);
          }
      }
    });
    assert.equal(end, TOTAL);
  });

test("e^ε is bounded from below, to 80 digits", () => {
  const digits = "2718281828459045235360287471352662497757247093699959574966967627724076630353547594571382178525166427";
  const found = (steps.expBelow(1) * 10n ** 99n) >> 320n;
  assert.ok(found <= BigInt(digits) && BigInt(digits) - found < 10n ** 19n);
});

test("no draw with a larger budget than it says is accepted", () => {
  for (const [name, json] of stated) {
    new Mechanism(json);
    // The library's integers are the largest that are private: one more is too much.
    for (const step of [1n, 2n ** 20n]) {
      for (const member of ["threshold", "share_threshold"].filter((each) => each in json)) {
        const more = { ...json, [member]: String(BigInt(json[member]) + step) };
        assert.throws(() => new Mechanism(more), { code: "mechanism", message: /is not .*-LDP/ }, name);
      }
      if (json.mechanism !== "sstq") continue;
      const codes = BigInt(2 ** json.bits - 1);
      const more = { ...json, own: String(BigInt(json.own) + codes * step), other: String(BigInt(json.other) - step) };
      assert.throws(() => new Mechanism(more), { code: "mechanism", message: /is not .*-LDP/ }, name);
    }
    if (json.mechanism !== "sstq") continue;
    const unbalanced = { ...json, own: String(BigInt(json.own) - 1n) };
    assert.throws(() => new Mechanism(unbalanced), { code: "mechanism", message: /own must be/ }, name);
  }
});

test("the draws of a survey sum to all words", () => {
  for (const [name, json] of surveys.filter(([, { draws }]) => draws))
    for (const step of [1n, -1n]) {
      const draws = [...json.draws.slice(0, -1), String(BigInt(json.draws.at(-1)) + step)];
      assert.throws(() => new Mechanism({ ...json, draws }), { code: "mechanism", message: /sum to 2\^62/ }, name);
    }
});

test("what is no group or category is a uniform one, by a word of its own", () => {
  const grouped = stated.find(([, { groups, blocks }]) => groups > 1 && blocks === groups)[1];
  const categories = surveys.find(([, { mechanism }]) => mechanism === "frequencies")[1];
  const original = crypto.getRandomValues, words = random(4);
  words[1] = 0n; // inside, so that the message is of the own block or set
  for (const [json, none, encoded, count] of [
    [grouped, [Array(grouped.dim).fill(1), grouped.groups], (own) => [Array(grouped.dim).fill(0), own], grouped.groups],
    [categories, [categories.categories], (own) => [own, undefined], categories.categories],
  ])
    for (let own = 0; own < Math.min(count, 50); own++) {
      const mechanism = new Mechanism(json), drawn = words.slice(0, mechanism.wordsEach);
      const chooser = (2n ** 64n * BigInt(own)) / BigInt(count) + 1n; // the first words of this one
      const given = [[chooser], drawn];
      crypto.getRandomValues = (array) => (array.set(given.shift()), array);
      try {
        assert.deepEqual(mechanism.answer(...none), mechanism.encodeWithWords(...encoded(own), drawn));
      } finally {
        crypto.getRandomValues = original;
      }
    }
});

test("every message takes the same number of fresh words, from the system", () => {
  const mechanism = new Mechanism(stated[0][1]), original = crypto.getRandomValues, asked = [];
  const survey = new Mechanism(Object.fromEntries(surveys)["survey, everything"]);
  crypto.getRandomValues = function (array) {
    asked.push(array);
    return original.call(crypto, array);
  };
  try {
    for (const vector of [[0, 0, 0], [1, 2, 3], [-1e30, 0, 0]]) mechanism.encode(vector);
    for (const record of records) survey.answer(record);
  } finally {
    crypto.getRandomValues = original;
  }
  const each = [...Array(3).fill([mechanism.wordsEach]), ...Array(4).fill([1, survey.wordsEach])];
  assert.deepEqual(asked.map(({ length }) => length), each.flat());
  assert.ok(asked.filter(({ length }) => length > 1).every((words) => words.every((word) => word === 0n))); // forgotten after use
});

test("values that throw when they are read are no answers, in every question of a survey", () => {
  const survey = new Mechanism(Object.fromEntries(surveys)["survey, everything"]), { questions } = survey;
  const throws = () => {
    throw new Error();
  };
  const proxy = new Proxy({}, { get: throws, getPrototypeOf: throws });
  const record = Object.fromEntries(questions.map(({ name }) => [name, proxy])), asked = new Set();
  // Each question is drawn with its share, which may be small.
  while (asked.size < questions.length) asked.add(survey.answer(record)[1]);
});
