// Answers to studies and classifiers: a document of a cohort and any value become one private message, whatever it is.
//
// A document is refused as a whole if anything in it is out of bounds; a value never is. studies.d.ts describes what is
// exported, docs/client-specification.md every step.

import { Mechanism, SstqError, canonical } from "./sstq.js";

const LARGEST = 1e100, BINS = 240, MOST_LETTERS = 100, FINE = 64, DOUBLINGS = 60;

const fail = (message, code = "document") => {
  throw new SstqError(code, message);
};
const must = (isFine, message) => isFine || fail(message);
const isInteger = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;
const isReal = (value) => typeof value === "number" && Math.abs(value) <= LARGEST;
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const areDistinct = (list) => new Set(list).size === list.length;

/** What `read` returns; `otherwise` for an object of which reading it throws, as getters may. */
function attempt(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** A vector of numbers; zero for anything else. */
function readVector(value, dim) {
  const isList = Array.isArray(value) || ArrayBuffer.isView(value);
  // of a list whose iterator is its own as well
  const numbers = isList && value.length === dim ? Array.from(value) : [];
  return numbers.length === dim && numbers.every(isReal) ? numbers : new Array(dim).fill(0);
}

/** These values of a record, read before anything is drawn; those that cannot be read are missing. */
function copied(record, names) {
  const copy = (value) => (Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value) : value);
  const read = (name) => attempt(() => copy(record[name]), undefined);
  return Object.fromEntries(names.map((name) => [name, isRecord(record) ? read(name) : undefined]));
}

const normOf = (vector) => Math.sqrt(vector.reduce((sum, number) => sum + number * number, 0));

/** The vector, scaled down to clip if it is longer. */
function intoBall(vector, clip) {
  const share = Math.min(1, (clip * (1 - 1e-12)) / Math.max(normOf(vector), 1e-200));
  return vector.map((number) => number * share);
}

// ---- Strings as rows of symbols

class Spelling {
  constructor(alphabet, letterCase) {
    must(letterCase === "lower" || letterCase === "keep", "case must be lower or keep");
    this.isLower = letterCase === "lower";
    const letters = typeof alphabet === "string" ? [...alphabet] : fail("alphabet must be letters");
    must(areDistinct(letters) && letters.length <= MOST_LETTERS, "alphabet must be different letters");
    must(letters.every((letter) => this.normalised(letter) === letter), "alphabet must be normalised letters");
    this.numbers = new Map(letters.map((letter, i) => [letter, i + 1]));
    this.size = letters.length + 2;
    while ((this.size - 1 - letters.length) * (this.size - 1) < 256) this.size++;
  }

  /** The string as it is counted; null for what is none, or has half of a surrogate pair. */
  normalised(value) {
    if (typeof value !== "string" || /\p{Surrogate}/u.test(value)) return null;
    return (this.isLower ? value.toLowerCase() : value).normalize("NFC");
  }

  symbols(text) {
    const spelled = [];
    for (const letter of text) {
      const number = this.numbers.get(letter);
      if (number !== undefined) spelled.push(number);
      else
        for (const byte of new TextEncoder().encode(letter))
          spelled.push(1 + this.numbers.size + Math.floor(byte / (this.size - 1)), 1 + (byte % (this.size - 1)));
    }
    return spelled;
  }
}

// ---- The kinds of questions: each has the fields that a document may have, and what a value becomes

class WordsQuestion {
  static fields = ["alphabet", "case", "words", "prefixes", "step", "longest"];

  constructor(data, mechanism) {
    const { words, prefixes, step, longest } = data;
    this.spelling = new Spelling(data.alphabet, data.case);
    const { size } = this.spelling;
    const isWord = (word) => [...String(word)].length <= 1000 && word !== null && this.spelling.normalised(word) === word;
    must(Array.isArray(words) && words.every(isWord) && areDistinct(words), "words must be short normalised strings");
    must(Array.isArray(prefixes) && prefixes.every(Array.isArray), "prefixes must be lists");
    must(new Set(prefixes.map((row) => row.length)).size <= 1, "prefixes must be of one length");
    must(prefixes.flat().every((symbol) => isInteger(symbol, 1, size - 1)), "prefixes must be of symbols");
    must(areDistinct(prefixes.map(String)), "prefixes must be different");
    must(isInteger(step, 1, 3) && isInteger(longest, 3, 64), "step and longest must be integers in their range");
    this.following = 2 * size ** step;
    const categories = Math.max(2, words.length + prefixes.length * this.following + 1);
    must(mechanism.name === "frequencies" && mechanism.categories === categories, `categories must be ${categories}`);
    this.words = new Map(words.map((word, i) => [word, i]));
    this.prefixes = new Map(prefixes.map((row, i) => [String(row), i]));
    this.length = prefixes.length ? prefixes[0].length : 0;
    // No longer string has its own category: normalisation makes one letter of four, in quadratic time.
    const mostLetters = 8 * words.reduce((most, word) => Math.max(most, word.length), longest);
    Object.assign(this, { step, longest, mostLetters, other: categories - 1 });
  }

  held(value) {
    if (value?.length > this.mostLetters) return this.other;
    const text = this.spelling.normalised(value);
    if (text === null) return this.other;
    if (this.words.has(text)) return this.words.get(text);
    const symbols = this.spelling.symbols(text), place = this.prefixes.get(String(symbols.slice(0, this.length)));
    if (place === undefined || symbols.length > this.longest) return this.other;
    let number = symbols.length > this.length + this.step ? 0 : 1;
    for (let i = 0; i < this.step; i++) number = number * this.spelling.size + (symbols[this.length + i] ?? 0);
    return this.words.size + place * this.following + number;
  }
}

class AroundQuestion {
  static fields = ["dim", "centre"];

  constructor({ dim, centre }, mechanism) {
    must(isInteger(dim, 1, 2 ** 30), "dim must be an integer in [1, 2^30]");
    const isCentre = Array.isArray(centre) && [0, dim].includes(centre.length) && centre.every(isReal);
    must(isCentre, `centre must be ${dim} numbers, or empty`);
    Object.assign(this, { dim, centre, clip: mechanism.clip });
    this.checkMechanism(mechanism);
  }

  moved(value) {
    return readVector(value, this.dim).map((number, i) => number - (this.centre[i] ?? 0));
  }
}

class NormQuestion extends AroundQuestion {
  checkMechanism({ name, categories }) {
    must(name === "frequencies" && categories === BINS, `mechanism must be frequencies of ${BINS} categories`);
  }

  held(value) {
    const place = Math.floor((Math.log(normOf(this.moved(value)) / 1e-9) / Math.log(1e18)) * BINS);
    return Math.min(Math.max(Number.isNaN(place) ? 0 : place, 0), BINS - 1);
  }
}

class VectorQuestion extends AroundQuestion {
  checkMechanism({ name, dim }) {
    must(name === "frameunit" && dim === this.dim, `mechanism must be frameunit of dim = ${this.dim}`);
  }

  held(value) {
    return intoBall(this.moved(value), this.clip);
  }
}

class ColumnsQuestion {
  static fields = ["columns", "ends"];

  constructor({ columns, ends }, mechanism) {
    const areLists = Array.isArray(columns) && Array.isArray(ends) && columns.length === ends.length;
    must(areLists && columns.every((name) => typeof name === "string"), "columns and ends must be lists of one length");
    const isPair = (pair) => Array.isArray(pair) && (!pair.length || (pair.length === 2 && pair.every(isReal) && pair[0] < pair[1]));
    must(ends.every(isPair), "ends must be pairs of numbers, or empty");
    const asked = columns.map((name, i) => {
      const bins = ends[i].length ? FINE : 2 * DOUBLINGS + 1;
      return { name, type: "number", low: 0, high: bins, bins };
    });
    const isSame = mechanism.name === "survey" && canonical(mechanism.questions) === canonical(asked);
    must(isSame, "mechanism must be a survey of the bins of these columns");
    const sizes = Array.from({ length: DOUBLINGS + 1 }, (_, i) => 1e-9 * 2 ** i);
    const orders = [...sizes.map((size) => -size).reverse(), ...sizes];
    const spaced = ([low, high]) => Array.from({ length: FINE + 1 }, (_, i) => (i < FINE ? low + i * ((high - low) / FINE) : high));
    this.edges = columns.map((name, i) => [name, ends[i].length ? spaced(ends[i]) : orders]);
  }

  held(value) {
    const place = (number, edges) => {
      if (!isReal(number)) return null;
      const passed = edges.filter((edge) => edge <= number).length - 1;
      return Math.min(Math.max(passed, 0), edges.length - 2) + 0.5;
    };
    const record = copied(value, this.edges.map(([name]) => name));
    return Object.fromEntries(this.edges.map(([name, edges]) => [name, place(record[name], edges)]));
  }
}

class PeriodQuestion {
  static fields = ["period", "number", "periods", "late"];

  constructor({ period, number, periods, late }, mechanism) {
    must(isInteger(periods, 2, 1000) && isInteger(number, 1, periods), "number must be one of up to 1,000 periods");
    must(late === "skip" || late === "answer", "late must be skip or answer");
    must(typeof period === "string" && isInteger([...period].length, 1, 40), "period must be a name");
    const isKnown = ["survey", "frequencies", "frameunit"].includes(mechanism.name) && mechanism.messages === 1;
    must(isKnown, "mechanism must be a survey, frequencies or frameunit with one message");
    Object.assign(this, { number, periods, late, mechanism });
  }

  held(value) {
    const { name, dim, clip, questions } = this.mechanism;
    if (name === "survey") return copied(value, questions.map((question) => question.name));
    return name === "frequencies" ? value : intoBall(readVector(value, dim), clip);
  }
}

// ---- Classifiers: features of length 1, moved, along directions and of length 1 again; a label, or who is right about it

const LARGEST_COEFFICIENT = 1e30, MOST_SPREADS = 3;
// The mechanism of each kind of question, and how many classifiers it judges, from and to.
const EXAMPLES = { centre: ["frameunit", 0, 0], classes: ["groupunit", 0, 0], check: ["frequencies", 1, 8], recall: ["frequencies", 1, 1] };

const areNumbers = (list, size) =>
  Array.isArray(list) && list.length === size && list.every((x) => isReal(x) && Math.abs(x) <= LARGEST_COEFFICIENT);
const areRows = (rows, count, width) => Array.isArray(rows) && rows.length === count && rows.every((row) => areNumbers(row, width));
const product = (one, other) => one.reduce((sum, number, i) => sum + number * other[i], 0);

function unitOf(vector) {
  const length = normOf(vector);
  return vector.map((number) => number / (length > 0 || Number.isNaN(length) ? length : 1));
}

/** What a device computes of its example, by a public map; null for an example of another shape. */
function readFeatures(features) {
  if (features === null) return (row) => row;
  const { name, centre, spread, constant, ...more } = isRecord(features) ? features : {};
  if (name === "pixels" && Object.keys(features).length === 1) return (row) => row;
  must(name === "columns", "features must be columns, pixels or null: this module has no other maps");
  const size = centre?.length;
  must(size > 0 && areNumbers(centre, size) && areNumbers(spread, size), "centre and spread must be numbers per column");
  must(spread.every((each) => each >= 1 / LARGEST_COEFFICIENT), "spread must be positive");
  must(isInteger(constant, 0, 1) && !Object.keys(more).length, "columns must have a constant, 0 or 1, and nothing else");
  const scaled = (number, i) => {
    const spreads = (number - centre[i]) / spread[i];
    return Number.isNaN(spreads) ? 0 : Math.min(Math.max(spreads, -MOST_SPREADS), MOST_SPREADS);
  };
  return (row) => (row.length === size ? [...row.map(scaled), ...Array(constant).fill(Math.sqrt(size))] : null);
}

class ExampleQuestion {
  static fields = ["directions", "centre", "features", "classes", "bounds", "scores"];

  constructor({ kind, directions, centre, features, classes, bounds, scores }, mechanism) {
    const [name, least, most] = EXAMPLES[kind], { dim, categories } = mechanism;
    must(mechanism.name === name, `mechanism must be ${name} for ${kind}`);
    must(bounds === null, `bounds must be null for ${kind}`);
    must(Array.isArray(scores) && isInteger(scores.length, least, most) && scores.every(Array.isArray), `scores must be those of ${least} to ${most} classifiers`);
    const coefficients = scores[0]?.[0] ?? [], judged = scores.length;
    const groups = judged ? coefficients.length : (mechanism.groups ?? 0), width = judged ? coefficients[0]?.length : dim;
    const columns = directions === null ? width : directions[0]?.length, wide = "numbers up to 1e30, as many as there are features";
    must(scores.every((pair) => pair.length === 2 && areRows(pair[0], groups, width) && areNumbers(pair[1], groups)), `scores must be ${wide}`);
    must(isInteger(columns, 1, 2 ** 30) && (directions === null || areRows(directions, width, columns)), `directions must be ${wide}`);
    must(centre === null || areNumbers(centre, columns), `centre must be ${wide}`);
    const outcomes = kind === "check" ? 2 ** judged : 2 * groups;
    must(!judged || categories === outcomes, `categories must be ${outcomes}`);
    const areLabels = Array.isArray(classes) && classes.every((label) => typeof label === "string" || isReal(label));
    must(areLabels && areDistinct(classes) && classes.length === groups, `classes must be ${groups} different labels`);
    const places = new Map(classes.map((label, i) => [label, i]));
    Object.assign(this, { kind, dim, columns, directions, centre, scores, places, mapped: readFeatures(features) });
  }

  /** The features of an example as they are sent or judged; null for what is none. */
  row(example) {
    const isList = Array.isArray(example) || ArrayBuffer.isView(example);
    const numbers = isList ? Array.from(example, (x) => (typeof x === "number" ? x : NaN)) : [];
    const mapped = this.mapped(numbers), { columns, centre, directions } = this;
    if (mapped?.length !== columns) return null;
    const moved = unitOf(mapped).map((x, i) => x - (centre ? centre[i] : 0));
    return unitOf(directions ? directions.map((direction) => product(direction, moved)) : moved);
  }

  /** Of a pair of features and label: the features, with the number of the label, or the number of an outcome. */
  held(value) {
    const [example, label] = Array.isArray(value) && value.length === 2 ? value : [];
    const row = this.row(example), place = this.places.get(typeof label === "boolean" ? Number(label) : label) ?? -1;
    const { kind, scores, dim } = this;
    if (kind === "centre") return row ?? Array(dim).fill(NaN);
    if (kind === "classes") return row ? [row, place] : [Array(dim).fill(NaN), -1];
    if (!row) return null;
    const right = scores.map(([rows, intercept]) => {
      const all = rows.map((own, i) => product(own, row) + intercept[i]);
      return Number(place === all.reduce((best, score, i) => (score > all[best] ? i : best), 0));
    });
    if (kind === "check") return right.reduce((sum, one, i) => sum + one * 2 ** i, 0);
    return place < 0 ? null : 2 * place + right[0];
  }
}

const STUDIES = { words: WordsQuestion, norm: NormQuestion, vector: VectorQuestion, columns: ColumnsQuestion, period: PeriodQuestion };
const LEARNING = Object.fromEntries(Object.keys(EXAMPLES).map((kind) => [kind, ExampleQuestion]));
// By format: its version, its kinds, and whether a document must name its study.
const FORMATS = { "sstq-study-question": [1, STUDIES, true], "sstq-question": [2, LEARNING, false] };
const byName = (table, name) => (typeof name === "string" && Object.hasOwn(table, name) ? table[name] : undefined);

/** A question of a study, read from its document. */
export class Question {
  constructor(json) {
    let data = json;
    if (typeof json === "string")
      try {
        data = JSON.parse(json);
      } catch {
        fail("the document must be JSON");
      }
    must(isRecord(data), "the document must be an object");
    const [version, kinds, isNamed] = byName(FORMATS, data.format) ?? [];
    must(kinds && data.version === version, "the document must be of format sstq-study-question, version 1, or sstq-question, version 2");
    const Kind = byName(kinds, data.kind) ?? fail("kind must be one that this module knows");
    const known = ["format", "version", "kind", "mechanism", ...Kind.fields, ...(isNamed || "study" in data ? ["study"] : [])];
    must(canonical(Object.keys(data).sort()) === canonical(known.sort()), `the document must have ${known.join(", ")}`);
    const isStudy = typeof data.study === "string" && /^[0-9a-f]{32}$/.test(data.study);
    must(isStudy || !("study" in data), "study must be 32 hexadecimal digits");
    this.study = data.study ?? null;
    this.kind = data.kind;
    this.mechanism = new Mechanism(data.mechanism);
    this.json = canonical(data);
    this.own = new Kind(data, this.mechanism);
    Object.freeze(this);
  }

  /** What the mechanism encodes, for any value; of one that throws what it encodes for null. */
  held(value) {
    return attempt(() => this.own.held(value), null) ?? this.own.held(null);
  }

  /** One private message, whatever the value is. */
  message(value) {
    const held = this.held(value);
    return this.kind === "classes" ? this.mechanism.answer(...held) : this.mechanism.answer(held);
  }

  /** What a person's ledger pays for, once: one question per study. */
  async purpose() {
    if (this.study !== null) return `study ${this.study}`;
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(this.json));
    return `question ${Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }
}

/** One private message, as bytes, whatever the value is. */
export async function answer(document, value, { mostEpsilon, ledger } = {}) {
  if (!(typeof mostEpsilon === "number" && mostEpsilon > 0))
    throw new SstqError("argument", "mostEpsilon must be a positive number: the most that the person allows");
  const question = new Question(document), { mechanism } = question;
  if (mechanism.bundleEpsilon > mostEpsilon)
    fail(`the study asks for epsilon = ${mechanism.bundleEpsilon} per person, more than mostEpsilon = ${mostEpsilon}`);
  // One entry per study: nobody answers two of its questions.
  await ledger?.spend(mechanism.bundleEpsilon, await question.purpose());
  const slots = Array.from({ length: mechanism.messages }, () => question.message(value));
  return mechanism.pack(slots);
}

const periodOf = (document) => {
  const question = new Question(document);
  must(question.kind === "period", "the document must be that of a panel");
  return question.own;
};

/** The period in which a device answers, of this one and those that are left; drawn before any data are looked at. */
export const drawTurn = (document) => drawn(periodOf(document));

function drawn({ number, periods }) {
  const [word] = crypto.getRandomValues(new BigUint64Array(1));
  return number + Number((word * BigInt(periods - number + 1)) >> 64n);
}

/** Whether a device that drew this period, and has not answered, answers the document. */
export const isTurn = (document, turn) => mayAnswer(periodOf(document), turn);

const mayAnswer = ({ number, late }, turn) => turn === number || (late === "answer" && turn < number);

// ---- Stages on a collector

/** The stage of a study that a campaign's document has. */
export function readStage(stated) {
  const { data } = stated, { stage: own } = data, stage = new stated.constructor(own, "stage", "campaign");
  const { study, number, name, people, hours } = own;
  stated.must("stage", true);
  stage.must("study", typeof study === "string" && /^[a-z0-9-]{1,56}$/.test(study), "a name");
  stage.integer("number", 1, 99999);
  stage.must("name", typeof name === "string" && name !== "", "a name");
  stage.must("people", people === null || isInteger(people, 1, 1e9), "an integer or null");
  stage.must("hours", hours === null || (isReal(hours) && hours >= 0), "a number or null");
  const asked = stage.must("question", isRecord(own.question), "a question");
  const question = new Question({ ...asked, mechanism: data.mechanism });
  stage.must("question", question.study !== null, "one that names its study");
  stage.done();
  stated.must("name", data.name === `${study}--${number}`, "that of its stage");
  return Object.freeze({ study, number, name, people, hours, question });
}

/**
 * When a device that has not answered comes again, null for never; undefined if it answers now.
 *
 * Nothing here knows the value. The period of a panel is drawn at the first stage that is open, and lasts.
 */
export async function nextVisit({ stage, closes, opens, senders }, part, { remember, allowance }) {
  const { number, hours, question } = stage;
  if (number < part.stage)
    fail(`the stage ${number} of ${stage.study} is over: ${part.stage} was seen before; nothing was sent`);
  if (opens !== null && Date.now() < Date.parse(opens)) return new Date(opens);
  try {
    if ((await allowance()) === 0)
      fail(senders === "single-use" ? "the token was used before: you have answered" : "the token pays for nobody else", "refused");
  } catch (error) {
    if (error.status !== 410) throw error;
    return error.retryAfter ? new Date(Date.now() + 1000 * error.retryAfter) : null;
  }
  const isPanel = question.kind === "period", turn = isPanel ? (part.turn ?? drawn(question.own)) : undefined;
  await remember(isPanel ? { stage: number, turn } : { stage: number });
  if (!isPanel || mayAnswer(question.own, turn)) return undefined;
  const begins = closes === null || hours === null ? NaN : Date.parse(closes) + 3.6e6 * hours * (turn - number - 1);
  return turn < number || !isReal(begins) ? null : new Date(begins);
}
