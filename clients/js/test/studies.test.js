// Studies: the test vectors, and answers whatever the value is.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { answer, drawTurn, isTurn, Question } from "../studies.js";

const { cases, examples, refused } = JSON.parse(readFileSync(new URL("../../vectors/studies.json", import.meta.url), "utf8"));

const isClose = (found, expected) => Math.abs(found - expected) <= 1e-12 * Math.max(1, Math.abs(expected));

test("every value becomes what the library makes of it", () => {
  for (const { document, values, held } of cases) {
    const question = new Question(document);
    values.forEach((value, i) => {
      const found = question.held(value);
      if (question.kind === "period" && question.mechanism.name === "survey")
        for (const [name, expected] of Object.entries(held[i])) assert.deepEqual(found[name] ?? null, expected);
      else if (Array.isArray(held[i])) assert.ok(found.every((number, j) => isClose(number, held[i][j])), `${document} ${value}`);
      else assert.deepEqual(found, held[i], `${question.kind} ${JSON.stringify(value)}`);
    });
  }
});

test("an example becomes what the library makes of it, whatever the question of a classifier is", () => {
  for (const { document, values, held } of examples) {
    const question = new Question(document);
    values.forEach((value, i) => {
      const found = [question.held(value)].flat(2), expected = [held[i]].flat(2);
      assert.equal(found.length, expected.length);
      const isSame = found.every((number, j) => number === expected[j] || (number !== null && isClose(number, expected[j])));
      assert.ok(isSame, `${question.kind} ${JSON.stringify(value)}: ${found} ${expected}`);
    });
  }
});

test("every value is answered", async () => {
  const strange = [undefined, NaN, Infinity, 10n, Symbol("x"), () => 1, new Map(), [NaN], new Date(), "\ud800"];
  for (const { document, values } of [...cases, ...examples]) {
    const { mechanism } = new Question(document);
    const odd = strange.flatMap((value) => [value, [value, "cat"], [[0, 1, 2], value]]);
    for (const value of [...odd, ...values]) {
      const sent = await answer(document, value, { mostEpsilon: mechanism.epsilon });
      assert.equal(sent.length, Math.ceil(mechanism.messageBits / 8));
    }
  }
});

test("lists with iterators of their own are answered", async () => {
  const shorter = Object.assign([1, 1, 1], { [Symbol.iterator]: () => [0].values() });
  for (const { document } of cases) {
    const { mechanism } = new Question(document);
    const sent = await answer(document, shorter, { mostEpsilon: mechanism.epsilon });
    assert.equal(sent.length, Math.ceil(mechanism.messageBits / 8));
  }
});

test("documents are refused as a whole, and so is a price above the person's", async () => {
  for (const document of refused)
    await assert.rejects(answer(document, "a", { mostEpsilon: 20 }), ({ name }) => name === "SstqError", document);
  const example = JSON.parse(examples[0].document), odd = { ...example, features: { name: "pixels", shape: [2, 2] } };
  await assert.rejects(answer(JSON.stringify(odd), "a", { mostEpsilon: 20 }), /features must be columns, pixels or null/);
  const [{ document }] = cases;
  await assert.rejects(answer(document, "a", { mostEpsilon: 1.9 }), /more than mostEpsilon/);
  await assert.rejects(answer(document, "a"), /mostEpsilon must be/);
});

test("nobody can publish a word of which normalisation takes long", () => {
  const document = JSON.parse(cases.find((one) => JSON.parse(one.document).words?.length).document);
  const named = (word) => new Question({ ...document, words: [word, ...document.words.slice(1)] });
  assert.equal(named("a".repeat(1000)).held("a".repeat(1000)), 0);
  for (const word of ["a".repeat(1001), "\u0301\u0323".repeat(1000)])
    assert.throws(() => named(word), /words must be short normalised strings/);
});

test("a ledger is charged once per study, before anything is drawn", async () => {
  const spent = [];
  const ledger = { spend: async (epsilon, purpose) => void spent.push([epsilon, purpose]) };
  const [{ document }] = cases;
  await answer(document, "a", { mostEpsilon: 2, ledger });
  assert.deepEqual(spent, [[2, `study ${new Question(document).study}`]]);
  for (const { document: own, purpose } of examples) assert.equal(await new Question(own).purpose(), purpose);
  const empty = { spend: async () => Promise.reject(new Error("nothing left")) };
  await assert.rejects(answer(document, "a", { mostEpsilon: 2, ledger: empty }), /nothing left/);
});

test("a device draws its period among those left", () => {
  const panel = JSON.parse(cases.find(({ document }) => document.includes('"period":"month"')).document);
  const late = { ...panel, number: 11 };
  const turns = Array.from({ length: 200 }, () => drawTurn(late));
  assert.deepEqual([...new Set(turns)].sort(), [11, 12]);
  assert.deepEqual([10, 11, 12].map((turn) => isTurn(late, turn)), [true, true, false]);
  assert.deepEqual([10, 11, 12].map((turn) => isTurn({ ...late, late: "skip" }, turn)), [false, true, false]);
  assert.throws(() => drawTurn(cases[0].document), /that of a panel/);
});

test("a string that is too long is something else, before it is normalised", () => {
  const data = JSON.parse(cases.find(({ document }) => JSON.parse(document).kind === "words").document);
  const question = new Question(data), begun = performance.now();
  assert.equal(question.held(`a${"\u0315\u0300".repeat(2e6)}`), question.mechanism.categories - 1);
  assert.ok(performance.now() - begun < 1000);
  for (const word of data.words) assert.equal(question.held(word.normalize("NFD")), question.held(word));
});
