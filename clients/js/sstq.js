// sstq for JavaScript: encode a vector, a category or the answers to a survey as one ε-locally private message of 10 to
// 30 bits, and send it to a collector.
//
// For browsers and Node ≥ 20. sstq.d.ts describes what is exported, docs/client-specification.md every step.
// What protects a person is the secret draw: integers only. A float32 operation is one in double precision, rounded
// by Math.fround or by the store into a Float32Array.

const { fround, imul } = Math;
const WORD = 1n << 64n;
const TOTAL = 1n << 62n; // the sum of all weights of a draw
const TWO_32 = 2 ** 32;

export class SstqError extends Error {
  constructor(code, message, details) {
    super(message);
    Object.assign(this, { name: "SstqError", code, ...details });
  }
}

const fail = (code, message, details) => {
  throw new SstqError(code, message, details);
};
const isNumber = (value, low, high) => typeof value === "number" && value >= low && value <= high;
const checkNumber = (name, value, low, high) =>
  isNumber(value, low, high) || fail("argument", `${name} must be a number in [${low}, ${high}], got ${shown(value)}`);
const parsedOrNull = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
};
const shown = (value) => {
  const text = typeof value === "bigint" ? String(value) : JSON.stringify(value) ?? String(value);
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
};

// ---- Public randomness: Philox4x64-10 on 32-bit halves

const product = new Uint32Array(4); // of the last `multiply`, the lowest half first

function high32(a, b) {
  const aLow = a & 0xffff, aHigh = a >>> 16, bLow = b & 0xffff, bHigh = b >>> 16;
  const first = aHigh * bLow + ((aLow * bLow) >>> 16);
  const second = aLow * bHigh + (first & 0xffff);
  return aHigh * bHigh + (first >>> 16) + (second >>> 16);
}

function multiply(aHigh, aLow, bHigh, bLow) {
  const one = high32(aLow, bLow) + (imul(aLow, bHigh) >>> 0) + (imul(aHigh, bLow) >>> 0);
  const two = high32(aLow, bHigh) + high32(aHigh, bLow) + (imul(aHigh, bHigh) >>> 0) + Math.floor(one / TWO_32);
  product[0] = imul(aLow, bLow);
  product[1] = one;
  product[2] = two;
  product[3] = high32(aHigh, bHigh) + Math.floor(two / TWO_32);
}

/** The keys of all ten rounds, as halves: those of the seed and of the purpose in turns. */
function roundKeys(seed, purpose) {
  const keys = new BigUint64Array(20), [second] = new BigUint64Array(utf8(purpose.padEnd(8, "\0")).buffer);
  for (let round = 0; round < 10; round++) {
    keys[2 * round] = seed + BigInt(round) * 0x9e3779b97f4a7c15n;
    keys[2 * round + 1] = second + BigInt(round) * 0xbb67ae8584caa73bn;
  }
  return new Uint32Array(keys.buffer);
}

/** Write the block with counter (counter, 0, 0, 0): four words as halves, the lower one first as in the memory. */
function philox(keys, counter, out, offset) {
  let c0 = counter >>> 0, c0High = Math.floor(counter / TWO_32), c1 = 0, c1High = 0;
  let c2 = 0, c2High = 0, c3 = 0, c3High = 0;
  for (let round = 0; round < 40; round += 4) {
    multiply(0xd2e7470e, 0xe14c6c93, c0High, c0);
    const low = product[0], lowHigh = product[1], high = product[2], highHigh = product[3];
    multiply(0xca5a8263, 0x95121157, c2High, c2);
    c0 = (product[2] ^ c1 ^ keys[round]) >>> 0;
    c0High = (product[3] ^ c1High ^ keys[round + 1]) >>> 0;
    c2 = (high ^ c3 ^ keys[round + 2]) >>> 0;
    c2High = (highHigh ^ c3High ^ keys[round + 3]) >>> 0;
    c1 = product[0];
    c1High = product[1];
    c3 = low;
    c3High = lowHigh;
  }
  out.set([c0, c0High, c1, c1High, c2, c2High, c3, c3High], offset);
}

/** The first `count` words of a stream, rounded up to whole blocks, as halves. */
function streamHalves(seed, purpose, count) {
  const blocks = Math.ceil(count / 4), halves = new Uint32Array(8 * blocks), keys = roundKeys(seed, purpose);
  for (let block = 0; block < blocks; block++) philox(keys, block + 1, halves, 8 * block);
  return halves;
}

/** The word of an identifier below 2^53. */
function wordOf(seed, purpose, identifier) {
  const halves = new Uint32Array(8);
  philox(roundKeys(seed, purpose), identifier, halves, 0);
  return new BigUint64Array(halves.buffer)[0];
}

const signBits = (seed, purpose, count) => streamHalves(seed, purpose, Math.ceil(count / 64));

/** Negate those of the first `count` numbers, given as their bits, whose sign's bit is 1. */
function flipSigns(view, bits, count) {
  for (let i = 0; i < count; i++) view[i] ^= (bits[i >>> 5] << (~i & 31)) & 0x80000000;
}

/** `chosen` of `size` places, ascending: those of the smallest words, ties to the smaller place. */
function chosenPlaces(seed, purpose, chosen, size) {
  const keys = new BigUint64Array(streamHalves(seed, purpose, size).buffer, 0, size);
  const last = keys.slice().sort()[chosen - 1], places = [];
  let ties = chosen;
  for (const key of keys) if (key < last) ties--;
  keys.forEach((key, i) => (key < last || (key === last && ties-- > 0)) && places.push(i));
  return Uint32Array.from(places);
}

/** ⌊word·limit/2^bits⌋. */
const scaled = (word, limit, bits = 64n) => Number((word * BigInt(limit)) >> bits);
/** A word as a multiple of 2^−53 in [0, 1). */
const uniform = (word) => Number(word >> 11n) * 2 ** -53;

// ---- Vectors

/**
 * The Euclidean norm: squares in double precision in eight lanes, what is left over in lane 0, added in pairs. The lanes
 * are those of the places from `start` on in a vector of `total` numbers, all others being 0.
 */
function norm(x, start = 0, total = x.length) {
  const s = new Float64Array(8), whole = total - (total % 8);
  for (let i = 0; i < x.length; i++) s[start + i < whole ? (start + i) & 7 : 0] += x[i] * x[i];
  return Math.sqrt(s[0] + s[1] + (s[2] + s[3]) + (s[4] + s[5] + (s[6] + s[7])));
}

/** A vector, its norm and 1/clip, all but the first times a power of two where squares would overflow or underflow. */
function measured(x, clip, start, total) {
  const length = norm(x, start, total);
  if (length > 1e-140 && length < 1e150) return [x, length, 1 / clip];
  const largest = x.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const exponent = (new Uint32Array(new Float64Array([largest]).buffer)[1] >>> 20) - 1022;
  const scaledDown = Float64Array.from(x, (value) => value * 2 ** -exponent);
  return [scaledDown, norm(scaledDown, start, total), 2 * (2 ** (exponent - 1) / clip)];
}

/**
 * Loops over a buffer of float32 numbers; places in it are counted in bytes. Engines that know asm.js compile them to
 * float32 arithmetic, others run them as any JavaScript, with the same bits.
 */
function floatLoops(stdlib, foreign, buffer) {
  "use asm";
  var f = stdlib.Math.fround, tell = foreign.tell;
  var x = new stdlib.Float32Array(buffer), bits = new stdlib.Int32Array(buffer);

  /** Keep x only where its mask is set. */
  function clear(size) {
    size = size | 0;
    var i = 0;
    for (; (i | 0) < (size | 0); i = (i + 4) | 0) bits[i >> 2] = bits[i >> 2] & bits[(i + (size << 1)) >> 2];
  }

  /** The butterflies of one index bit. */
  function two(start, end, r) {
    start = start | 0;
    end = end | 0;
    r = r | 0;
    var k = 0, i = 0, j = 0, a = f(0), b = f(0);
    for (k = start >> 1; (k | 0) < (end >> 1); k = (k + 4) | 0) {
      i = (k + (k & -r)) | 0;
      j = (i + r) | 0;
      a = f(x[i >> 2]);
      b = f(x[j >> 2]);
      x[i >> 2] = f(a + b);
      x[j >> 2] = f(a - b);
    }
  }

  /** Those of three, in this order. i0 counts in all other bits: the carry of i7 + 4 runs over these three. */
  function eight(i0, end, r, s, t) {
    i0 = i0 | 0;
    end = end | 0;
    r = r | 0;
    s = s | 0;
    t = t | 0;
    var i1 = 0, i2 = 0, i3 = 0, i4 = 0, i5 = 0, i6 = 0, i7 = 0;
    var a = f(0), b = f(0), c = f(0), d = f(0), p = f(0), q = f(0), u = f(0), v = f(0);
    var k = f(0), l = f(0), m = f(0), n = f(0);
    for (; (i0 | 0) < (end | 0); i0 = (i7 + 4) & ~(r | s | t)) {
      i1 = (i0 + r) | 0;
      i2 = (i0 + s) | 0;
      i3 = (i1 + s) | 0;
      i4 = (i0 + t) | 0;
      i5 = (i1 + t) | 0;
      i6 = (i2 + t) | 0;
      i7 = (i3 + t) | 0;
      a = f(x[i0 >> 2]); b = f(x[i1 >> 2]); c = f(x[i2 >> 2]); d = f(x[i3 >> 2]);
      p = f(a + b); q = f(a - b); u = f(c + d); v = f(c - d);
      k = f(p + u); l = f(q + v); m = f(p - u); n = f(q - v);
      a = f(x[i4 >> 2]); b = f(x[i5 >> 2]); c = f(x[i6 >> 2]); d = f(x[i7 >> 2]);
      p = f(a + b); q = f(a - b); u = f(c + d); v = f(c - d);
      a = f(p + u); b = f(q + v); c = f(p - u); d = f(q - v);
      x[i0 >> 2] = f(k + a); x[i1 >> 2] = f(l + b); x[i2 >> 2] = f(m + c); x[i3 >> 2] = f(n + d);
      x[i4 >> 2] = f(k - a); x[i5 >> 2] = f(l - b); x[i6 >> 2] = f(m - c); x[i7 >> 2] = f(n - d);
    }
  }

  /** One step s of a representation t; tells the sums of x², x·s and s². */
  function relax(start, end, size, block, stride, rate, scale, box) {
    start = start | 0;
    end = end | 0;
    size = size | 0;
    block = block | 0;
    stride = stride | 0;
    rate = f(rate);
    scale = f(scale);
    box = f(box);
    var spare = 0, next = 0, lane = 0, k = 0, i = 0, j = 0;
    var value = f(0), old = f(0), now = f(0), step = f(0), low = f(0), a = f(0), b = f(0), c = f(0);
    var first = 0.0, second = 0.0, third = 0.0;
    // To clamp without a branch, which nobody could predict, a number is looked up beside the bounds.
    low = f(-box);
    spare = (size + (size << 1)) | 0;
    x[(spare + 4) >> 2] = box;
    x[(spare + 8) >> 2] = low;
    for (; (start | 0) < (end | 0); start = next) {
      next = (start + block) | 0;
      for (lane = start; (lane | 0) < ((start + 64) | 0); lane = (lane + 4) | 0) {
        a = b = c = f(0);
        for (k = lane; (k | 0) < ((start + stride) | 0); k = (k + 64) | 0) {
          for (i = k; (i | 0) < (next | 0); i = (i + stride) | 0) {
            j = (size + i) | 0;
            value = f(x[i >> 2]);
            old = f(x[j >> 2]);
            now = f(old + f(value * rate));
            x[spare >> 2] = now;
            now = f(x[(spare + ((now > box) << 2) + ((now < low) << 3)) >> 2]);
            x[j >> 2] = now;
            step = f(now - old);
            x[i >> 2] = f(f(value * scale) - step);
            a = f(a + f(value * value));
            b = f(b + f(value * step));
            c = f(c + f(step * step));
          }
        }
        first = first + +a;
        second = second + +b;
        third = third + +c;
      }
    }
    tell(first, second, third);
  }

  return { clear: clear, two: two, eight: eight, relax: relax };
}

/** Float32 numbers x and t, masks of x, and the loops over them. */
class Floats {
  constructor(size) {
    const buffer = new ArrayBuffer(Math.max(16 * size, 2 ** 16)); // asm.js wants a power of two from 2^16 on
    this.x = new Float32Array(buffer, 0, size);
    this.bits = new Int32Array(buffer, 0, size);
    this.t = new Float32Array(buffer, 4 * size, size);
    this.mask = new Int32Array(buffer, 8 * size, size);
    this.loops = floatLoops(globalThis, { tell: (...sums) => (this.sums = sums) }, buffer);
  }

  /** The butterflies of these index bits, in their order. */
  butterflies(order, start = 0, end = this.x.byteLength) {
    const steps = order.map((bit) => 4 << bit);
    while (steps.length > 2) this.loops.eight(start, end, ...steps.splice(0, 3));
    for (const step of steps) this.loops.two(start, end, step);
  }
}

const ranges = (...pairs) => pairs.flatMap(([first, end]) => Array.from({ length: end - first }, (_, i) => first + i));

/** The index of the row of that rank among those that fit; all rows are looked at, since the time would tell it. */
function ranked(bits, fits, rank) {
  let index = 0;
  for (let i = 0, seen = 0; i < bits.length; i++) {
    const isOne = Number(fits(bits[i] & 0x7fffffff, i));
    index |= -(isOne & Number(seen === rank)) & i;
    seen += isOne;
  }
  return index;
}

/** The magnitude, as the integer of its bits, and the index of the last of the `inside` largest; ties by index. */
function lastInside(bits, inside) {
  const counts = new Uint32Array(2048);
  let rank = inside - 1, prefix = 0;
  for (const shift of [22, 11, 0]) {
    counts.fill(0);
    for (let i = 0; i < bits.length; i++) {
      const digits = (bits[i] & 0x7fffffff) >>> shift;
      if (digits >>> 11 === prefix) counts[digits & 2047]++;
    }
    let digit = 2047;
    for (; counts[digit] <= rank; digit--) rank -= counts[digit];
    prefix = (prefix << 11) | digit;
  }
  return [prefix, ranked(bits, (key) => key === prefix, rank)];
}

/** The index of the member of that rank, of those inside or of those outside. */
function memberOf(bits, [magnitude, last], wantsInside, rank) {
  return ranked(bits, (key, i) => key >= magnitude + Number(i > last) === wantsInside, rank);
}

// ---- The secret draw

/** A rational number just below e^ε for the exact value of a double, as a multiple of 2^−SCALE. */
const SCALE = 320n;
function expBelow(epsilon) {
  // ε is a multiple of 2^−83. Series of ε/2^32, squared 32 times; every step rounds down.
  const small = exactly(epsilon) << (SCALE - 83n - 32n), one = 1n << SCALE;
  let sum = one, term = one;
  for (let k = 1n; term > 0n; k++) sum += term = (term * small) / (k * one);
  for (let k = 0; k < 32; k++) sum = (sum * sum) >> SCALE;
  return sum;
}

/** A double from 1e-9 to 1e6 times 2^83, which is an integer. */
const exactly = (value) => BigInt(value * 2 ** 83);

/** Refuse a draw whose largest ratio of probabilities is above e^ε. */
function requirePrivate(top, bottom, epsilon) {
  if (top << SCALE > expBelow(epsilon) * bottom)
    fail("mechanism", `the mechanism's draw is not ${epsilon}-LDP as it says; nothing was sent`);
}

/** Draws one of `size` candidates: with probability threshold/2^62 one of the `inside` first, otherwise another. */
class TwoLevelDraw {
  constructor(epsilon, size, inside, threshold) {
    Object.assign(this, { size, inside, threshold });
    const sides = [[BigInt(inside), threshold], [BigInt(size - inside), TOTAL - threshold]];
    for (const [[members, weight], [others, rest]] of [sides, [sides[1], sides[0]]])
      requirePrivate(weight * ((TOTAL + members - 1n) / members), rest * (TOTAL / others), epsilon);
  }

  place(first, second) {
    const isInside = first >> 2n < this.threshold;
    const members = isInside ? this.inside : this.size - this.inside;
    return scaled(second >> 2n, members, 62n) + (isInside ? 0 : this.inside);
  }
}

// ---- What a mechanism states

/** Reads the members of a JSON object one by one, and refuses what is left over. */
class Stated {
  constructor(data, what, code) {
    if (data === null || typeof data !== "object" || Array.isArray(data)) fail(code, `${what} must be a JSON object`);
    Object.assign(this, { data, what, code, left: new Set(Object.keys(data)) });
  }

  must(name, sound, wanted) {
    this.left.delete(name);
    if (!sound) fail(this.code, `${this.what}: ${name} must be ${wanted}, got ${shown(this.data[name])}`);
    return this.data[name];
  }

  number(name, low, high, kind = "a number") {
    return this.must(name, isNumber(this.data[name], low, high), `${kind} in [${low}, ${high}]`);
  }

  integer(name, low, high) {
    this.must(name, Number.isInteger(this.data[name]), "an integer");
    return this.number(name, low, high, "an integer");
  }

  option(name, ...allowed) {
    return this.must(name, allowed.includes(this.data[name]), allowed.map(shown).join(" or "));
  }

  /** An integer that is a decimal string, because it may exceed 2^53. */
  big(name, low, high, value = this.data[name]) {
    const sound = typeof value === "string" && /^(0|[1-9][0-9]{0,19})$/.test(value);
    this.must(name, sound && BigInt(value) >= low && BigInt(value) <= high, `a decimal string in [${low}, ${high}]`);
    return BigInt(value);
  }

  list(name, least, most) {
    const count = this.data[name]?.length, isList = Array.isArray(this.data[name]) && count >= least && count <= most;
    return this.must(name, isList, `a list of ${least} to ${most}`);
  }

  numbers(name, count) {
    return this.must(name, this.list(name, count, count).every(Number.isFinite), `${count} numbers`);
  }

  done() {
    const left = [...this.left].join(", ");
    if (this.left.has("bounds")) fail(this.code, `${this.what} has bounds: scale the vectors before, and leave them out`);
    if (left) fail(this.code, `${this.what} has what this module does not know: ${left}`);
  }
}

const bitsOf = (limit) => (limit > 1 ? (BigInt(limit) - 1n).toString(2).length : 0); // ⌈log₂ limit⌉
/** Eight times the usual frame: a mechanism must not ask for any amount of memory. */
const largestFrame = (dim) => 8 * Math.max(2 ** bitsOf(Math.ceil(2.5 * dim)), 256);

function frameSize(stated, dim, most) {
  const size = stated.integer("frame_size", dim, Math.min(most, 2 ** 26));
  return stated.must("frame_size", (size & (size - 1)) === 0, "a power of two");
}

const roundHalfEven = (value) => {
  const up = Math.round(value);
  return up % 2 && up - value === 0.5 ? up - 1 : up;
};

function primeAtLeast(number) {
  for (; ; number++) {
    let divisor = 2;
    while (divisor * divisor <= number && number % divisor) divisor++;
    if (number > 1 && divisor * divisor > number) return number;
  }
}

// ---- The encoders
//
// Each has the fields of its messages and the number of secret words, and `encode` makes a message of a value, a group
// and words. `checked` refuses a value that cannot be encoded; `mended` puts a harmless one in its place.

const EPSILON = [0.01, 20];

/** Encoders of vectors, rounded to float32. */
class VectorEncoder {
  constructor(stated) {
    this.dim = stated.integer("dim", 1, 2 ** 30);
    this.epsilon = stated.number("epsilon", ...EPSILON);
    this.clip = stated.number("clip", 1e-100, 1e100);
  }

  isOne(vectors) {
    return vectors.length > 0 && (typeof vectors[0] !== "object" || vectors[0] === null);
  }

  isGroup(group) {
    return Number.isInteger(group) && group >= 0 && group < this.groups;
  }

  singles(vector) {
    if (vector?.length !== this.dim) fail("argument", `vector must be ${this.dim} numbers, got ${vector?.length}`);
    if (vector instanceof Float32Array) return vector;
    return Float32Array.from(vector, (value) => (typeof value === "number" ? value : NaN));
  }

  checked(vector, group) {
    const x = this.singles(vector), wrong = x.findIndex((value) => !Number.isFinite(value));
    if (wrong >= 0)
      fail("argument", `vector must be finite float32 numbers, got ${shown(vector[wrong])} at place ${wrong}`);
    if (this.groups ? !this.isGroup(group) : group !== undefined) {
      const wanted = this.groups ? `an integer from 0 to ${this.groups - 1}` : "left out";
      fail("argument", `group must be ${wanted}, got ${shown(group)}`);
    }
    return [x, group ?? 0];
  }

  mended(vector, group, word) {
    const x = this.singles(vector), isKnown = !this.groups || this.isGroup(group);
    const usedGroup = !this.groups ? 0 : isKnown ? group : scaled(word, this.groups);
    return [isKnown && x.every(Number.isFinite) ? x : new Float32Array(this.dim), usedGroup];
  }
}

/** FrameUnit and GroupUnit: one signed row of a mixed Hadamard frame, the well aligned ones likelier. */
class RowEncoder extends VectorEncoder {
  constructor(stated, groupsPerBlock, blocks, size, rounds) {
    super(stated);
    Object.assign(this, { groupsPerBlock, size, rounds });
    const { epsilon } = this;
    stated.option("coin", "private");
    stated.number("alignment", 1e-30, 1e30); // only the server divides by it
    this.seed = stated.big("frame_seed", 0n, WORD - 1n);
    const inside = stated.integer("inside", 1, size);
    this.draw = new TwoLevelDraw(epsilon, 2 * size * blocks, inside, stated.big("threshold", 1n, TOTAL - 1n));
    this.vectorFrames = this.frames = stated.integer("frames", 1, 2 ** 30);
    this.fields = [{ name: "row", bits: bitsOf(this.draw.size), limit: this.draw.size }];
    if (this.frames > 1) this.fields.push({ name: "frame", bits: bitsOf(this.frames), limit: this.frames });
    this.wordsEach = 2 + this.fields.length;
  }

  /** A share of the frames is for people who send their group only. */
  takeShares(stated, groups) {
    this.groups = groups;
    const people = stated.number("share_people", 0, 0.5);
    if (people === 0) return;
    stated.must("share_people", this.groupsPerBlock > 1 && this.frames > 1, "0 with one group per block or one frame");
    const size = primeAtLeast(groups);
    stated.option("share_size", size);
    const inside = stated.integer("share_inside", 1, size - 1);
    this.shares = new TwoLevelDraw(this.epsilon, size, inside, stated.big("share_threshold", 1n, TOTAL - 1n));
    this.vectorFrames = this.frames - Math.max(1, roundHalfEven(this.frames * people));
    this.multipliers = multipliersOf(this.shares);
    this.slots = Math.min(this.multipliers, Math.floor(this.draw.size / size));
  }

  signs(frame) {
    if (this.kept) return this.kept;
    const seed = this.frames === 1 ? this.seed : wordOf(this.seed, "frames", frame), signs = [];
    for (let round = 1; round <= this.rounds; round++) signs.push(signBits(seed, `signs${round}`, this.size));
    if (this.frames === 1) this.kept = signs;
    return signs;
  }

  /** The scores ±U x of a vector at its place in a block, up to a positive factor. */
  scores(vector, start, flip, signs) {
    const [x, length, inverse] = measured(vector, this.clip, start, this.groupsPerBlock * this.dim);
    const share = Math.min(1, inverse * length);
    const sign = flip < (1 - share) / 2 ? -1 : 1, factor = length > 0 ? sign / length : 0;
    const floats = (this.floats ??= new Floats(this.size)), scores = floats.x.fill(0);
    for (let i = 0; i < x.length; i++) scores[start + i] = x[i] * factor;
    if (length === 0) scores[0] = sign; // e₁ stands for the direction of zero
    signs.forEach((bits, round) => {
      flipSigns(floats.bits, bits, round ? this.size : this.groupsPerBlock * this.dim);
      floats.butterflies(ranges([0, bitsOf(this.size)]));
    });
    return floats;
  }

  encode(x, group, words) {
    const frame = this.frames > 1 ? scaled(words[3], this.frames) : 0;
    const row = this.row(x, group, frame, words);
    const sent = frame < this.vectorFrames ? row : this.shareCode(group, frame, words);
    return this.frames > 1 ? [sent, frame] : [sent];
  }

  row(x, group, frame, words) {
    const block = Math.floor(group / this.groupsPerBlock), all = 2 * this.size, { inside } = this.draw;
    const drawn = this.draw.place(words[1], words[2]), place = drawn < all ? drawn : 0;
    const floats = this.scores(x, (group % this.groupsPerBlock) * this.dim, uniform(words[0]), this.signs(frame));
    const { bits, x: scores } = floats, last = lastInside(bits, inside);
    const isInside = place < 2 * inside, rank = isInside ? place % inside : Math.floor((place - 2 * inside) / 2);
    const index = memberOf(bits, last, isInside, rank);
    const negative = isInside ? (scores[index] < 0) !== place >= inside : place % 2 === 1;
    if (drawn < all) return block * all + 2 * index + Number(negative);
    // Another block; its rows are not looked at.
    const other = Math.floor((drawn - all) / all);
    return (other + Number(other >= block)) * all + ((drawn - all) % all);
  }

  shareCode(group, frame, words) {
    const slot = scaled(words[0], this.slots), { size } = this.shares;
    let multiplier = slot + 1;
    if (this.slots < this.multipliers)
      multiplier = scaled(wordOf(this.seed, "shares", frame * this.slots + slot), this.multipliers) + 1;
    return slot * size + affine(multiplier, group, this.shares.place(words[1], words[2]), size);
  }
}

// Subset selection: a message is a set of categories, {h: (a·h − t) mod P < w} of a slot for a and of t, or any of w.

const multipliersOf = ({ inside, size }) => (inside === 1 ? 1 : Math.max(1, Math.floor(size / 2)));
const affine = (a, category, place, size) => (((a * category - place) % size) + size) % size;

/** C(n, r); exact, since all numbers here are below 2^53. */
function binomial(n, r) {
  let ways = 1;
  for (let i = 0; i < r; i++) ways = (ways * (n - i)) / (i + 1);
  return ways;
}

/** The w with C(k, w) = size and C(k − 1, w − 1) = inside, from 1 to k/2; 0 if there is none up to 2^25 sets. */
function wholeWidth(k, size, inside) {
  for (let w = 1, sets = k; w <= k / 2 && sets <= 2 ** 25; w++, sets = binomial(k, w))
    if (sets === size && binomial(k - 1, w - 1) === inside) return w;
  return 0;
}

/**
 * The number of the set at a place, of all sets of w of the k categories, those with the person's category being the first: the
 * sum of C(c, i) over its members c, of which i are up to c. All categories are looked at.
 */
function setNumber(k, w, inside, category, place) {
  const isInside = place < inside;
  let left = w - Number(isInside), rank = isInside ? place : place - inside, number = 0, below = 1;
  for (let other = k - 2; other >= 0; other--) {
    const ways = binomial(other, left), member = other + Number(other >= category);
    if (rank < ways) continue;
    number += binomial(member, left + Number(isInside && member > category));
    below += Number(member < category);
    rank -= ways;
    left--;
  }
  return isInside ? number + binomial(category, below) : number;
}

/** Frequencies: a set of categories that is likelier to have the person's. */
class CategoryEncoder {
  constructor(stated) {
    this.epsilon = stated.number("epsilon", ...EPSILON);
    this.categories = stated.integer("categories", 2, 2 ** 20);
    const inside = stated.integer("inside", 1, 2 ** 25), size = stated.integer("size", 2, 2 ** 25);
    this.width = wholeWidth(this.categories, size, inside);
    if (!this.width) {
      stated.option("size", primeAtLeast(this.categories));
      stated.must("inside", inside > 1 && inside < size, `from 2 to ${size - 1}`);
    }
    const threshold = stated.big("threshold", 1n, TOTAL - 1n);
    stated.must("threshold", threshold * BigInt(size) > BigInt(inside) * TOTAL, "one that favours the person's category");
    this.draw = new TwoLevelDraw(this.epsilon, size, inside, threshold);
    this.multipliers = this.width ? 1 : multipliersOf(this.draw);
    const limit = this.multipliers * size;
    Object.assign(this, { wordsEach: 3, fields: [{ name: "code", bits: bitsOf(limit), limit }] });
  }

  isOne(people) {
    return !Array.isArray(people);
  }

  isCategory(value) {
    return Number.isInteger(value) && value >= 0 && value < this.categories;
  }

  checked(category) {
    if (!this.isCategory(category))
      fail("argument", `category must be an integer from 0 to ${this.categories - 1}, got ${shown(category)}`);
    return [category, 0];
  }

  mended(category, _group, word) {
    return [this.isCategory(category) ? category : scaled(word, this.categories), 0];
  }

  encode(category, _group, words) {
    const { size, inside } = this.draw, place = this.draw.place(words[1], words[2]);
    if (this.width) return [setNumber(this.categories, this.width, inside, category, place)];
    const slot = scaled(words[0], this.multipliers);
    return [slot * size + affine(slot + 1, category, place, size)];
  }
}

function readFrameUnit(stated) {
  const dim = stated.integer("dim", 1, 2 ** 30), size = frameSize(stated, dim, largestFrame(dim));
  stated.option("bits", null);
  const rounds = dim <= 4096 || stated.integer("frames", 1, 2 ** 30) >= 32 ? 3 : 2;
  return new RowEncoder(stated, 1, 1, size, rounds);
}

function readGroupUnit(stated) {
  const dim = stated.integer("dim", 1, 2 ** 30);
  const groups = stated.integer("groups", 2, 2 ** 24), blocks = stated.integer("blocks", 1, groups);
  const groupsPerBlock = Math.ceil(groups / blocks);
  stated.must("blocks", Math.ceil(groups / groupsPerBlock) === blocks, "a number of blocks of equal size");
  stated.must("dim", groupsPerBlock * dim <= 2 ** 22, "at most 2^22 in all groups of a block");
  const most = Math.min(Math.max(largestFrame(groupsPerBlock * dim), 2 ** 16), 2 ** 30 / blocks);
  const encoder = new RowEncoder(stated, groupsPerBlock, blocks, frameSize(stated, groupsPerBlock * dim, most), 3);
  encoder.takeShares(stated, groups);
  return encoder;
}

/** SSTQ with the flat channel: one coordinate of a bounded representation, rounded and flipped at random. */
class CoordinateEncoder extends VectorEncoder {
  constructor(stated) {
    super(stated);
    const { dim, epsilon } = this;
    const size = frameSize(stated, dim, largestFrame(dim)), bits = stated.integer("bits", 1, 12), codes = 2 ** bits;
    const options = { frame: "hadamard", kashin: "certified", channel: "flat", coin: "private" };
    for (const [name, value] of Object.entries(options)) stated.option(name, value);
    this.seed = stated.big("frame_seed", 0n, WORD - 1n);
    this.level = stated.number("level", 1e-3, 1e6);
    this.steps = stated.integer("steps", 1, 128);
    stated.option("codebook", "optimized", "uniform", "panter-dite");
    this.values = stated.numbers("codebook_values", codes);
    const ascends = this.values.every((value, i, all) => (i ? value >= all[i - 1] : value === -1));
    stated.must("codebook_values", ascends && this.values.at(-1) === 1, "ascending from -1 to 1");
    stated.option("decoder", "unbiased", "identity");
    stated.numbers("decoder_values", codes);
    this.ownWeight = stated.big("own", 1n, TOTAL);
    this.otherWeight = stated.big("other", 1n, TOTAL);
    const sum = this.ownWeight + BigInt(codes - 1) * this.otherWeight;
    stated.must("own", sum === TOTAL && this.ownWeight > this.otherWeight, "2^62 - (2^bits - 1)·other, above other");
    requirePrivate(this.ownWeight, this.otherWeight, epsilon);
    Object.assign(this, { size, wordsEach: 3 });
    this.fields = [{ name: "code", bits, limit: codes }, { name: "index", bits: bitsOf(size), limit: size }];
  }

  encode(x, _group, words) {
    const index = scaled(words[0], this.size), token = this.token(this.coordinate(x, index), uniform(words[1]));
    const beyond = (words[2] >> 2n) - this.ownWeight;
    if (beyond < 0n) return [token, index];
    const other = Number(beyond / this.otherWeight);
    return [other + Number(other >= token), index];
  }

  /** One of the two codewords beside the coordinate, at random and without bias. */
  token(coordinate, random) {
    const { values } = this;
    let lower = 0;
    // All codewords are looked at, wherever the coordinate is.
    for (let i = 1; i < values.length - 1; i++) lower += Number(values[i] <= coordinate);
    const gap = values[lower + 1] - values[lower];
    return lower + Number(random < (gap > 0 ? (coordinate - values[lower]) / gap : 1));
  }

  coordinate(x, index) {
    this.frame ??= new KashinFrame(this.seed, this.dim, this.size, this.schedule());
    const length = norm(x), natural = 1 / this.clip, factor = natural * length > 1 ? 1 / length : natural;
    const t = this.frame.represent(x, factor, index), bound = this.frame.schedule.at(-1)[2];
    return Math.min(Math.max(fround(t[index] / bound), -1), 1);
  }

  /** One row (ω, γ, box) per step. */
  schedule() {
    const { steps, size, dim } = this, redundant = size / dim >= 2, rows = [];
    const beta = fround(this.level / Math.sqrt(size / dim)), start = 1 - 0.36 / steps, step = (1 - start) / (steps - 1);
    for (let i = 0; i < steps; i++) {
      const isLong = i >= 2 && (steps - i) % 2 === 0, isLast = i === steps - 1;
      const short = isLast ? 1 : i === 0 ? 1.2 : redundant ? 1.4 : 1;
      const growth = isLast ? 1 : i * step + start;
      rows.push([fround(isLong ? 3 : short), isLong ? 2.5 : 0, fround(beta * growth)]);
    }
    return rows;
  }
}

/** A frame of one mixing, which represents vectors by projections onto a growing box. */
class KashinFrame {
  constructor(seed, dim, size, schedule) {
    this.places = chosenPlaces(seed, "columns", dim, size);
    this.signs = signBits(seed, "signs1", dim);
    this.schedule = schedule;
    this.floats = new Floats(size);
    for (const place of this.places) this.floats.mask[place] = -1;
  }

  /** The numbers t of a vector times a factor; only those in the block of an index are final, if one is given. */
  represent(vector, factor, index) {
    const { places, signs, schedule, floats } = this, { x, t, loops } = floats, size = x.length, bits = bitsOf(size);
    const isSmall = bits < 10, block = isSmall ? bits : Math.min(11, bits - 1), low = isSmall ? bits : 8;
    const row = Math.max(block, bits - 8), top = bits - row > 3 ? bits - 3 : bits, middle = Math.min(top, row + 3);
    // Index bits in the order of the library, because that of float32 sums decides their last digits.
    const toMask = ranges([low, block], [0, low], [block, row], [top, bits], [middle, top], [row, middle]);
    const toBlocks = ranges([row, bits], [block, row]), inBlock = ranges([0, block]), factors = [factor, -factor];
    x.fill(0);
    t.fill(0);
    for (let i = 0; i < places.length; i++) x[places[i]] = vector[i] * factors[(signs[i >>> 5] >>> (i & 31)) & 1];
    let scale = 1, last = [0, 0, 0], before = last, start = 0, end = 4 * size;
    schedule.forEach(([omega, gamma, box], i) => {
      if (i > 0) {
        floats.butterflies(toMask);
        loops.clear(4 * size);
      }
      if (i === schedule.length - 1 && index !== undefined) {
        floats.butterflies(toBlocks);
        start = (index >> block) * (4 << block);
        end = start + (4 << block);
        floats.butterflies(inBlock, start, end);
      } else floats.butterflies([...toBlocks, ...inBlock]);
      const quotient = before[2] / Math.max(2 * before[1] - before[0] + last[0], 1e-30);
      const rate = fround(Math.max(omega, fround(Math.min(gamma * quotient, 16))) * scale);
      loops.relax(start, end, 4 * size, 4 << block, 4 << low, rate, scale, box);
      before = last;
      last = [floats.sums[0] * scale ** 2, floats.sums[1] * scale, floats.sums[2]];
      scale = 1 / size; // from here on x comes from two transforms
    });
    return t;
  }
}

// ---- Surveys

const NO_ANSWER = "no answer", MOST_ITEMS = 2 ** 20;
const isWritable = (label) =>
  typeof label === "string" ? !/\p{Surrogate}/u.test(label) : Number.isSafeInteger(label);

function labelsOf(stated) {
  const labels = stated.list("labels", 1, MOST_ITEMS - 1), kind = typeof labels[0];
  const sound = labels.every((label) => typeof label === kind && isWritable(label) && label !== NO_ANSWER);
  stated.must("labels", sound && new Set(labels).size === labels.length, "distinct texts, or distinct integers");
  const numbers = new Map(labels.map((label, place) => [label, place]));
  return { count: labels.length, kind, numberOf: (label) => numbers.get(label) ?? labels.length };
}

const isList = (value) => Array.isArray(value) || value instanceof Set;
const isNumberOrNone = (value) => value === null || typeof value === "number";

/** A number within bounds, which has one of `count` categories; what is none is NaN. */
function ranged(low, high, count, categoryOf, isOne = () => true) {
  const clamped = (value) => Math.min(Math.max(value, low), high);
  const numberIn = (value) => (typeof value === "number" && isOne(clamped(value)) ? clamped(value) : NaN);
  const read = (value) => [Number.isNaN(numberIn(value)) ? count : categoryOf(numberIn(value))];
  const of = { dim: 1, clip: (high - low) / 2, vector: (value) => [numberIn(value) - (low + high) / 2] };
  const place = (value) => (numberIn(value) - low) / (high - low);
  const fits = (value) => isNumberOrNone(value) && (Number.isNaN(value ?? NaN) || !Number.isNaN(numberIn(value)));
  return { of, place, parts: [["frequencies", 1, { categories: count + 1 }]], fits, read };
}

// What the types of questions do. `fits`: whether the owner of the data meant this value. `parts`: which mechanisms may
// answer it, [name, items, what they state]. `read`: what they encode, for an item; what is no answer has a number of
// its own, and a missing vector is zero.
const QUESTIONS = {
  choice(stated) {
    const { count, kind, numberOf } = labelsOf(stated);
    const parts = [["frequencies", 1, { categories: count + 1 }]];
    return { count, parts, fits: (value) => value === null || typeof value === kind, read: (value) => [numberOf(value)] };
  },

  multichoice(stated) {
    const { count, kind, numberOf } = labelsOf(stated), width = count + 1;
    const parts = [["frequencies", width, { categories: 2 }], ["frameunit", 1, { dim: width, clip: Math.sqrt(width) / 2 }]];
    const fits = (value) => value === null || (isList(value) && [...value].every((label) => typeof label === kind));
    const read = (value, item, items) => {
      const marks = new Float64Array(width), chosen = isList(value) ? [...value] : [null];
      for (const label of chosen) marks[numberOf(label)] = 1;
      // A list with known labels is an answer.
      if (marks.indexOf(1) < count) marks[count] = 0;
      return [items > 1 ? marks[item] : marks.map((mark) => mark - 0.5)];
    };
    return { parts, fits, read };
  },

  number(stated) {
    const low = stated.number("low", -1e100, 1e100), high = stated.number("high", -1e100, 1e100);
    const bins = stated.integer("bins", 2, 512);
    stated.must("low", low < high, "below high");
    return ranged(low, high, bins, (number) => Math.min(Math.floor(((number - low) / (high - low)) * bins), bins - 1));
  },

  count(stated) {
    const most = stated.integer("most", 1, 511);
    return ranged(0, most, most + 1, (number) => number, Number.isInteger);
  },

  vector(stated) {
    const dim = stated.integer("dim", 1, 2 ** 30), clip = stated.number("clip", 1e-100, 1e100);
    const vector = (value) => {
      const x = Array.from({ length: value?.length === dim ? dim : 0 }, (_, i) => value[i]);
      return x.length && x.every(Number.isFinite) ? x : new Array(dim).fill(0);
    };
    const fits = (value) => value === null || (value.length === dim && isNumberOrNone(value[0]));
    return { of: { dim, clip, vector }, parts: [["frameunit", 1, { dim, clip }]], fits, read: (value) => [vector(value)] };
  },

  mean(stated, questions) {
    const { place } = questions.get(stated.data.value) ?? {};
    stated.must("value", place, "the name of a number or a count");
    const read = (_value, _item, _items, record, word) => {
      const chance = place(record[stated.data.value]);
      return [Number.isNaN(chance) ? 2 : Number(uniform(word) >= chance)];
    };
    return { parts: [["frequencies", 1, { categories: 3 }]], read };
  },

  by(stated, questions) {
    const { count, read } = questions.get(stated.data.group) ?? {}, { of } = questions.get(stated.data.value) ?? {};
    stated.must("group", count, "the name of a choice");
    stated.must("value", of, "the name of a number, a count or a vector");
    const { dim, clip, vector } = of;
    const both = (_value, _item, _items, record) => {
      const x = vector(record[stated.data.value]), [group] = read(record[stated.data.group]);
      const isNone = group === count || x.some(Number.isNaN);
      return isNone ? [new Float64Array(dim), count] : [x, group];
    };
    return { parts: [["groupunit", 1, { groups: count + 1, dim, clip }]], read: both };
  },
};

const isDerived = ({ type }) => type === "by" || type === "mean";

/** The questions by name, in their order; those without a value of their own need the others. */
function readQuestions(asked) {
  const questions = new Map(asked.map((entry) => [entry?.name, undefined]));
  for (const wantsDerived of [false, true])
    for (const entry of asked.filter((one) => isDerived(one ?? {}) === wantsDerived)) {
      const stated = new Stated(entry, `question ${shown(entry?.name)}`, "mechanism"), { name } = entry;
      stated.must("name", typeof name === "string" && isWritable(name) && isNumber([...name].length, 1, 200), "a text");
      questions.set(name, QUESTIONS[stated.option("type", ...Object.keys(QUESTIONS))](stated, questions));
      stated.done();
    }
  const derived = asked.filter(isDerived), pairs = new Set(derived.map(({ group, value }) => canonical([group ?? null, value])));
  if (questions.size < asked.length || pairs.size < derived.length)
    fail("mechanism", "the questions of a survey must differ");
  return questions;
}

/** The encoder of a question, one of `items` items being drawn. */
function readPart(entry, epsilon, [name, question]) {
  const stated = new Stated(entry, `the part of question ${shown(name)}`, "mechanism");
  const kind = stated.option("mechanism", ...question.parts.map(([name]) => name));
  const [, items, terms] = question.parts.find(([name]) => name === kind);
  for (const [key, value] of Object.entries({ items, epsilon, ...terms })) stated.option(key, value);
  const encoder = READERS[kind](stated);
  stated.done();
  const size = encoder.fields.reduce((product, { limit }) => product * BigInt(limit), BigInt(items));
  return { name, items, size, encoder, read: question.read };
}

/** One question, drawn before any value is looked at, and its answer with the whole ε. */
class SurveyEncoder {
  constructor(stated) {
    const asked = stated.list("questions", 1, 1000), count = asked.length;
    this.epsilon = stated.number("epsilon", ...EPSILON);
    stated.integer("people", 1, TWO_32);
    this.questions = asked;
    this.kinds = readQuestions(asked);
    const draws = stated.list("draws", count, count).map((draw) => stated.big("draws", 1n, TOTAL, draw));
    let sum = 0n;
    this.ends = draws.map((draw) => (sum += draw));
    stated.must("draws", sum === TOTAL, "integers that sum to 2^62");
    if ("weights" in stated.data) checkWeights(stated, asked, draws);
    const kinds = [...this.kinds];
    this.parts = stated.list("parts", count, count).map((part, i) => readPart(part, this.epsilon, kinds[i]));
    const limit = this.parts.reduce((most, { size }) => (size > most ? size : most), 1n);
    this.isLong = limit > 2n ** 53n;
    this.fields = [{ name: "answer", bits: bitsOf(limit) || 1, limit: this.isLong ? limit : Number(limit) }];
    if (count > 1) this.fields.push({ name: "question", bits: bitsOf(count), limit: count });
    const bits = this.fields.reduce((all, field) => all + field.bits, 0);
    if (bits > 62) fail("mechanism", `a message must have at most 62 bits, and this survey's has ${bits}`);
    this.wordsEach = 6;
  }

  isOne(people) {
    return !Array.isArray(people);
  }

  mended(record) {
    if (record === null || typeof record !== "object") fail("argument", `record must be an object, got ${shown(record)}`);
    return [record, 0];
  }

  checked(record) {
    for (const [name, { fits }] of this.kinds)
      if (fits && !(name in this.mended(record)[0] && fits(record[name] ?? null)))
        fail("argument", `record must have a value for ${shown(name)} of its type, or null`);
    return [record, 0];
  }

  encode(record, _group, words) {
    // All ends are looked at, whichever question it is.
    const question = this.ends.reduce((passed, end) => passed + Number(end <= words[4] >> 2n), 0);
    const { name, items, encoder, read } = this.parts[question], item = scaled(words[5], items);
    const readOf = (held) => read(held[name], item, items, held, words[5]);
    let found;
    try {
      found = readOf(record);
    } catch {
      found = readOf({}); // a value that throws is no answer
    }
    const [value, group = 0] = found, sent = encoder.encode(value, group, words);
    const add = (answer, { limit }, i) => answer * BigInt(limit) + BigInt(sent[i]);
    const answer = encoder.fields.reduce(add, BigInt(item)), code = this.isLong ? answer : Number(answer);
    return this.parts.length > 1 ? [code, question] : [code];
  }
}

/** Two machines compute draws alike, but for rounding. */
function checkWeights(stated, asked, draws) {
  const weights = Object.entries(new Stated(stated.data.weights, "weights", "mechanism").data);
  const weightOf = new Map(weights), total = weights.reduce((sum, [, weight]) => sum + weight, 0);
  const isSound = ({ name }, i) => {
    const wanted = (weightOf.get(name) / total) * 2 ** 62;
    return isNumber(weightOf.get(name), 1e-9, 1e9) && Math.abs(Number(draws[i]) - wanted) <= Math.max(1e-6 * wanted, 1);
  };
  stated.must("weights", weights.length === asked.length && asked.every(isSound), "those of the draws, one per question");
}

// ---- Mechanisms

const READERS = {
  frameunit: readFrameUnit,
  groupunit: readGroupUnit,
  sstq: (stated) => new CoordinateEncoder(stated),
  frequencies: (stated) => new CategoryEncoder(stated),
  survey: (stated) => new SurveyEncoder(stated),
};

export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const utf8 = (text) => new TextEncoder().encode(text);
const decode = (bytes) => new TextDecoder().decode(bytes);

const subtle = () =>
  globalThis.crypto?.subtle ??
  fail("crypto", "crypto.subtle is missing: browsers have it on pages from HTTPS or localhost only");

export class Mechanism {
  #encoder;

  constructor(json) {
    const data = typeof json === "string" ? parsedOrNull(json) : json;
    const stated = new Stated(data, "the mechanism", "mechanism");
    stated.option("format", "sstq-mechanism");
    stated.option("version", 2);
    this.name = stated.option("mechanism", ...Object.keys(READERS));
    this.messages = data.messages === undefined ? 1 : stated.integer("messages", 2, 4096);
    this.#encoder = READERS[this.name](stated);
    stated.done();
    const { epsilon, dim = null, clip = null, groups = null, categories = null, questions = null } = this.#encoder;
    Object.assign(this, { epsilon, dim, clip, groups, categories, questions, fields: this.#encoder.fields });
    this.messageBits = this.fields.reduce((sum, field) => sum + field.bits, 0);
    this.wordsEach = this.#encoder.wordsEach;
    const all = this.epsilon * this.messages; // to be rounded up
    this.bundleEpsilon = exactly(all) < exactly(this.epsilon) * BigInt(this.messages) ? all + 1.2e-16 * all : all;
    this.json = canonical(data);
    Object.freeze(this);
  }

  async digest() {
    return hex(new Uint8Array(await subtle().digest("SHA-256", utf8(this.json))));
  }

  encode(value, group) {
    return this.#drawn(this.#encoder.checked(value, group));
  }

  /** A message whatever the data are: the server sees who refuses. */
  answer(value, group) {
    const [word] = crypto.getRandomValues(new BigUint64Array(1));
    return this.#drawn(this.#encoder.mended(value, group, word));
  }

  #drawn(input) {
    const words = crypto.getRandomValues(new BigUint64Array(this.wordsEach));
    try {
      return this.#encoder.encode(...input, words);
    } finally {
      words.fill(0n);
    }
  }

  encodeWithWords(value, group, words) {
    const input = this.#encoder.checked(value, group);
    if (!(words instanceof BigUint64Array) || words.length !== this.wordsEach)
      fail("argument", `words must be a BigUint64Array of ${this.wordsEach}`);
    return this.#encoder.encode(...input, words);
  }

  /** The values of several people, or of one. */
  people(values) {
    return this.#encoder.isOne(values) ? [values] : Array.from(values);
  }

  pack(messages) {
    const bytes = new Uint8Array(Math.ceil((messages.length * this.messageBits) / 8));
    let place = 0;
    for (const message of messages) {
      this.fields.forEach(({ name, bits, limit }, number) => {
        const value = message[number], isWhole = typeof value === "bigint" || Number.isInteger(value);
        if (!isWhole || value < 0 || value >= limit)
          fail("argument", `${name} must be an integer in [0, ${limit}), got ${shown(value)}`);
        const halves = new Uint32Array(new BigUint64Array([BigInt(value)]).buffer);
        for (let bit = 0; bit < bits; bit++, place++)
          bytes[place >> 3] |= ((halves[bit >> 5] >>> (bit & 31)) & 1) << (place & 7);
      });
    }
    return bytes;
  }
}

// ---- Campaigns

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;

async function isSigned(document, signature, key, prefix = "sstq-campaign-v2\0") {
  const signed = new Uint8Array([...utf8(prefix), ...document]), api = subtle();
  try {
    const raw = Uint8Array.from(atob(signature), (character) => character.charCodeAt(0));
    const imported = await api.importKey("raw", fromHex(key), "Ed25519", false, ["verify"]);
    return await api.verify("Ed25519", imported, raw, signed);
  } catch (error) {
    if (error.name !== "NotSupportedError") return false; // not base64, or not a key
    fail("crypto", "Ed25519 is missing: take Chrome 137, Firefox 129, Safari 17, Node 20 or newer");
  }
}

const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
const isKey = (key) => typeof key === "string" && /^[0-9a-f]{64}$/.test(key);

const beside = (name, loading) =>
  loading.catch((error) => fail("module", `${name} is missing: copy it beside sstq.js (${error.message})`));
const sealing = () => beside("sealing.js", import("./sealing.js"));
const studying = () => beside("studies.js", import("./studies.js"));

export async function readCampaign(document, signature, pinnedKey) {
  if (pinnedKey !== undefined && !isKey(pinnedKey))
    fail("argument", `pinnedKey must be 64 hexadecimal digits, got ${shown(pinnedKey)}`);
  const text = decode(document), data = parsedOrNull(text);
  const stated = new Stated(data, "the campaign", "campaign");
  stated.option("format", "sstq-campaign");
  stated.option("version", 2);
  const keys = stated.must("keys", Array.isArray(data.keys) && data.keys.every(isKey), "a list of public keys");
  if (pinnedKey !== undefined && !keys.includes(pinnedKey))
    fail("signature", `the collector has another key than the pinned one: ${keys.join(" ")}; nothing was sent`);
  let signer;
  for (const key of pinnedKey === undefined ? keys : [pinnedKey])
    if (signer === undefined && (await isSigned(document, signature, key))) signer = key;
  if (signer === undefined)
    fail("signature", "the campaign's signature is wrong: somebody changed it on the way; nothing was sent");

  const mechanism = new Mechanism(stated.must("mechanism", true));
  const digest = await mechanism.digest();
  stated.must("digest", data.digest === digest, `that of its mechanism, ${digest}`);
  stated.must("message_bits", data.message_bits === mechanism.messageBits, `${mechanism.messageBits}`);
  const time = (name) =>
    stated.must(name, data[name] === undefined || (TIME.test(data[name]) && Date.parse(data[name])), "a time in UTC");
  const list = (name) => stated.must(name, data[name] === undefined || Array.isArray(data[name]), "a list") ?? [];
  const campaign = {
    name: stated.must("name", /^[a-z0-9-]{1,64}$/.test(data.name), "1 to 64 of a-z, 0-9 and hyphens"),
    mechanism,
    digest,
    key: signer,
    labels: list("labels"),
    groupLabels: list("group_labels"),
    imageShape: list("image_shape"),
    opens: time("opens") ?? null,
    closes: time("closes") ?? null,
    mostMessages: stated.integer("most_messages", 1, 2 ** 28),
    senders: stated.option("senders", "everybody", "token", "single-use"),
    readers: stated.option("readers", "administrator", "token", "public"),
    shuffling: data.shuffling === undefined ? null : await (await sealing()).readShuffling(stated, mechanism, canonical),
    stage: data.stage === undefined ? null : (await studying()).readStage(stated),
  };
  stated.done();
  if (canonical(data) !== text) fail("campaign", "the campaign is not in its canonical form; nothing was sent");
  return Object.freeze(campaign);
}

// ---- Addresses and pins

const PIN = /^(collector-key|shuffler-key)=([0-9a-f]{64})$/;
const OPTIONS = new Set([
  ...["mostEpsilon", "pinnedKey", "pinnedShuffler", "shufflerUrl", "leastThreshold", "ledger", "outbox", "token"],
  ...["patience", "pause", "timeout", "onRetry"],
]);

/** The address, the campaign's name, and the keys to pin: all that can be checked before the first request. */
function readTarget(url, options) {
  for (const name of Object.keys(options))
    if (!OPTIONS.has(name)) fail("argument", `options must be out of ${[...OPTIONS].join(", ")}, got ${shown(name)}`);
  const [, address, name, , fragment] = /^(https?:\/\/[^?#]+)\/([a-z0-9-]{1,64})\/?(#(.*))?$/s.exec(url) ?? [];
  if (!name) fail("argument", `url must be an address and the campaign's name, got ${shown(url)}`);
  const { shufflerUrl, leastThreshold } = options;
  if (shufflerUrl !== undefined && shufflerUrl !== address)
    fail("argument", `url must be at the shuffler's address ${shown(shufflerUrl)}, got ${shown(url)}; nothing was sent`);
  if (leastThreshold !== undefined && !(Number.isInteger(leastThreshold) && isNumber(leastThreshold, 2, 1e9)))
    fail("argument", `leastThreshold must be an integer in [2, 1000000000], got ${shown(leastThreshold)}`);
  const linked = fragment === undefined ? {} : readPins(fragment);
  return {
    ...{ address, name },
    pinnedKey: oneKey("pinnedKey", options.pinnedKey, linked["collector-key"]),
    pinnedShuffler: oneKey("pinnedShuffler", options.pinnedShuffler, linked["shuffler-key"]),
  };
}

function readPins(fragment) {
  const pins = {};
  for (const part of fragment.split("&")) {
    const [, name, key] = PIN.exec(part) ?? [];
    if (!name || name in pins) {
      const allowed = "#collector-key=KEY, #shuffler-key=KEY or both joined by &, each once";
      fail("argument", `url must end in ${allowed}, KEY being 64 hexadecimal digits, got #${fragment.slice(0, 200)}`);
    }
    pins[name] = key;
  }
  return pins;
}

function oneKey(name, given, linked) {
  if (given === undefined) return linked;
  if (!isKey(given)) fail("argument", `${name} must be 64 hexadecimal digits, got ${shown(given)}`);
  if (linked !== undefined && linked !== given) fail("argument", `${name} must be the key of the link, got ${given}`);
  return given;
}

// ---- Sending

const PASSING_STATUSES = new Set([408, 429, 500, 502, 503, 504]), LONGEST_PAUSE = 30;
// What no retry of the same bytes would change. Whatever is refused with another status waits, because another token or
// another way to the collector could help.
const FINAL_STATUSES = new Set([400, 409, 410, 413, 422]);
const MOST_IN_BATCH = 10000, LARGEST_UPLOAD = 32 << 20;
const MOST_EPSILON = 4096 * 20;

export class Client {
  #options;
  #turn = Promise.resolve();

  constructor(options) {
    this.#options = options;
  }

  static async open(url, options = {}) {
    const settings = { patience: 300, pause: 0.5, timeout: 30, ...options, ...readTarget(url, options) };
    const { mostEpsilon, ledger } = settings;
    checkNumber("mostEpsilon", mostEpsilon, 1e-9, MOST_EPSILON);
    const client = new Client(settings);
    await client.#fetch();
    settings.outbox ??= ledger instanceof Ledger ? await Outbox.open(`${ledger.place}.outbox`) : new Outbox();
    return client;
  }

  /** Fetch the campaign, or the newest stage of the study, and check it. */
  async #fetch() {
    const { address, name, mostEpsilon, leastThreshold, shufflerUrl, pinnedKey, pinnedShuffler } = this.#options;
    const answer = await ask(this.#options, `${address}/v1/campaigns/${name}`, { method: "GET" });
    const known = pinnedKey ?? this.campaign?.key;
    const campaign = await readCampaign(answer.content, answer.headers.get("SSTQ-Signature"), known);
    const { shuffling, stage, mechanism: { bundleEpsilon } } = campaign;
    if ((stage?.study ?? campaign.name) !== name) fail("campaign", `this is the campaign ${shown(campaign.name)}`);
    if (bundleEpsilon > mostEpsilon)
      fail("epsilon", `the campaign asks for epsilon = ${bundleEpsilon}, more than ${mostEpsilon}; nothing was sent`);
    if (!shuffling && (pinnedShuffler ?? shufflerUrl ?? leastThreshold) !== undefined)
      fail("campaign", "the campaign has no shuffler; nothing was sent");
    const wanted = { address, pinnedKey, pinnedShuffler, leastThreshold, fail, isSigned };
    this.#options.sealer = shuffling && (await (await sealing()).openSealer(campaign, answer, wanted));
    this.campaign = campaign;
  }

  async send(vectors, groups = []) {
    this.#checkReady();
    const { mechanism, stage } = this.campaign;
    if (stage) fail("argument", `${stage.study} is a study: call takePart, which answers it once; nothing was sent`);
    const people = mechanism.people(vectors), labels = [groups].flat();
    if (mechanism.groups !== null && labels.length !== people.length)
      fail("argument", `groups must be one integer per vector, got ${labels.length} for ${people.length} vectors`);
    const answers = () => people.map((x, i) => mechanism.answer(x, labels[i]));
    const slots = Array.from({ length: mechanism.messages }, answers);
    return this.sendMessages(slots.flat());
  }

  /** Answer a study once: resolves to null if nothing is left to do, or to when to come again. */
  async takePart(value) {
    return this.#inTurn(async () => {
      await this.#fetch();
      const { stage, mechanism } = this.campaign, { outbox, ledger } = this.#options;
      if (!stage) fail("argument", `${this.campaign.name} is no study: call send; nothing was sent`);
      if (!outbox.lasts)
        fail("argument", "ledger must be given, or an outbox that lasts: it remembers that this person has answered");
      const { address, name } = this.#options, answer = `study ${stage.question.study}`;
      const part = await outbox.part(answer, `${address}/${name}`);
      if (!part.isAnswered) {
        const { nextVisit } = await studying();
        if ((await ledger?.entries())?.some(({ purpose }) => purpose === answer)) return null;
        const remember = (more) => outbox.part(answer, `${address}/${name}`, more), allowance = () => this.#allowance();
        const again = await nextVisit(this.campaign, part, { remember, allowance });
        if (again !== undefined) return again;
        await this.#put(Array.from({ length: mechanism.messages }, () => stage.question.message(value)), answer, true);
      }
      await this.#deliver();
      return null;
    });
  }

  /** What waits is looked at and sent by one call at a time. */
  async sendMessages(messages) {
    return this.#inTurn(async () => {
      this.#checkReady();
      const { name, mechanism, senders, stage } = this.campaign, { outbox, token } = this.#options;
      if (stage && !token) fail("argument", "many people's answers to a study need a sender's token; nothing was sent");
      if (senders === "single-use" && messages.length > mechanism.messages)
        fail("argument", `a single-use token stands for one person, got ${messages.length} messages`);
      const waiting = countOf(await outbox.waiting(this.#place));
      if (waiting)
        fail("waiting", `${waiting} messages to ${name} wait in the outbox: call sendWaiting first; nothing was sent`, {
          waiting,
        });
      const allowance = await this.#allowance();
      if (Number.isInteger(allowance) && allowance < (senders === "single-use" ? 1 : messages.length))
        fail("refused", `the token pays for ${allowance} more messages, not ${messages.length}; nothing was sent`, {
          status: 403,
        });
      await this.#put(messages, `${name} ${randomKey()}`);
      return this.#deliver();
    });
  }

  /** Keep the uploads of messages that were never sent before. */
  async #put(messages, answer, isOnly) {
    const { outbox, ledger, token } = this.#options, { name, digest, mechanism, senders } = this.campaign;
    const target = { name, digest, epsilon: mechanism.bundleEpsilon };
    const shared = { campaign: this.#place, answer, needsLedger: Boolean(ledger), ...target };
    if (senders === "single-use") shared.token = token;
    const bodies = await this.#bodies(messages);
    const uploads = bodies.map(([body, messages]) => ({ ...shared, key: randomKey(), messages, body: hex(body) }));
    await outbox.put(uploads, isOnly);
  }

  async sendWaiting() {
    return this.#inTurn(() => this.#deliver());
  }

  #inTurn(work) {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Campaigns of one name at two collectors are two, and all stages of a study are one. */
  get #place() {
    const { name, key, digest, stage } = this.campaign;
    return stage ? `${stage.study} ${key} ${stage.question.study}` : `${name} ${key} ${digest}`;
  }

  /** Refuse what can be known without data. */
  #checkReady() {
    const { name, senders, opens, closes } = this.campaign;
    if (opens !== null && Date.now() < Date.parse(opens)) fail("time", `the campaign opens at ${opens}`);
    if (closes !== null && Date.now() >= Date.parse(closes)) fail("time", `the campaign closed at ${closes}`);
    if (senders !== "everybody" && !this.#options.token)
      fail("argument", `token must be given: ${name} takes messages with a token only; nothing was sent`);
  }

  /** How many messages the server would take, if it says so; it refuses here what it would refuse later. */
  async #allowance() {
    const { token } = this.#options, headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    try {
      const { content } = await ask(this.#options, this.#messagesOf(this.campaign.name), { method: "GET", headers });
      return parsedOrNull(decode(content))?.messages;
    } catch (error) {
      if (error.status !== 404 && error.status !== 405) throw error;
    }
  }

  #messagesOf(name) {
    return `${this.#options.address}/v1/campaigns/${name}/messages`;
  }

  /** The bodies of uploads, and how many messages each has. */
  async #bodies(messages) {
    const { mechanism, mostMessages, senders } = this.campaign, { sealer, token } = this.#options;
    if (sealer) return (await sealer.bodies(messages)).map((body) => [body, mechanism.messages]);
    // A sender's token allows batches to campaigns that are open to everybody.
    const fitting = Math.min(MOST_IN_BATCH, Math.floor((8 * LARGEST_UPLOAD) / mechanism.messageBits));
    const most = token !== undefined && senders === "everybody" ? Math.max(mostMessages, fitting) : mostMessages;
    const bodies = [];
    for (let start = 0; start < messages.length; start += most) {
      const some = messages.slice(start, start + most);
      bodies.push([mechanism.pack(some), some.length]);
    }
    return bodies;
  }

  /** Pay for and send what waits, the oldest first; how many messages were acknowledged. */
  async #deliver() {
    const { outbox } = this.#options, { bundleEpsilon } = this.campaign.mechanism;
    const uploads = await outbox.waiting(this.#place), total = countOf(uploads), refusals = [];
    let sent = 0, paid;
    for (const [number, upload] of uploads.entries()) {
      if (upload.answer !== paid && !(await this.#pay(upload))) continue;
      paid = upload.answer;
      try {
        await this.#upload(upload);
        sent += upload.messages;
      } catch (error) {
        const isFinal = FINAL_STATUSES.has(error.status) || (error.status === 403 && upload.token !== undefined);
        if (!isFinal) throw this.#stillWaiting(error, sent, total, countOf(uploads.slice(number)));
        refusals.push(error);
      }
      await outbox.finish(upload.key);
    }
    if (refusals.length) {
      refusals[0].message +=
        ` (${sent} of ${total} messages count, the others were refused for good). Whoever refused a message has seen ` +
        `it, so its epsilon = ${bundleEpsilon} stays spent`;
      throw refusals[0];
    }
    return sent;
  }

  #stillWaiting(error, sent, total, waiting) {
    if (error instanceof SstqError) {
      error.message +=
        ` (${sent} of ${total} messages count, ${waiting} wait in the outbox; sendWaiting repeats them and spends ` +
        "nothing more)";
      error.waiting = waiting;
    }
    return error;
  }

  /** Charge the ledger for an answer unless that was done; false if it was for another answer to the same study. */
  async #pay({ answer, needsLedger, epsilon }) {
    const { ledger, outbox } = this.#options;
    if (!needsLedger) return true;
    if (!ledger) fail("argument", "ledger must be given: it pays for what waits in the outbox");
    await outbox.beginPayment(answer);
    try {
      await ledger.spend(epsilon, answer);
    } catch (error) {
      const isShared = (upload) => upload.answer === answer && upload.payers > 1;
      // By a page with the same outbox, which may have been closed since?
      if (error.reason === "spent" && (await outbox.waiting(this.#place)).some(isShared)) return true;
      if (error.reason) await outbox.drop(answer);
      if (error.reason !== "spent") throw error;
      return false;
    }
    return true;
  }

  async #upload({ key, messages, body, name, digest, token = this.#options.token }) {
    const count = this.#options.sealer ? 1 : messages; // people who seal
    const headers = {
      "Content-Type": "application/octet-stream",
      "Idempotency-Key": key,
      "SSTQ-Count": String(count),
      "SSTQ-Digest": digest,
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    };
    const url = this.#messagesOf(name);
    const answer = await ask(this.#options, url, { method: "POST", headers, body: fromHex(body) });
    if (decode(answer.content) !== `{"count":${count}}`)
      fail("unreachable", `${new URL(url).host} sent the receipt of another upload`);
  }
}

const countOf = (uploads) => uploads.reduce((sum, { messages }) => sum + messages, 0);
const randomKey = () => hex(crypto.getRandomValues(new Uint8Array(16)));

/** Ask until there is an answer that another try would not change. */
async function ask({ patience, pause, timeout, onRetry }, url, request) {
  const ends = Date.now() + 1000 * patience;
  for (; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    try {
      return await askOnce(timeout, url, request);
    } catch (error) {
      // Many clients that failed together should not come back together.
      const wait = Math.max(error.retryAfter || 0, pause) * (1 + Math.random() / 2);
      const mayPass = error.code === "unreachable" || PASSING_STATUSES.has(error.status);
      if (!mayPass || Date.now() + 1000 * wait > ends) throw error;
      onRetry?.(error, wait);
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
    }
  }
}

async function askOnce(timeout, url, request) {
  const { host } = new URL(url);
  let answer, content;
  try {
    // A collector redirects nobody; whoever does would get the token.
    const signal = AbortSignal.timeout(1000 * timeout);
    answer = await fetch(url, { ...request, signal, redirect: "error", credentials: "omit", cache: "no-store" });
    content = new Uint8Array(await answer.arrayBuffer());
  } catch (error) {
    const why = error.name === "TimeoutError" ? `${timeout} seconds` : error.cause?.message || error.message;
    fail("unreachable", `there is no answer from ${host}: ${why}`);
  }
  if (answer.ok) return { headers: answer.headers, content };
  const detail = parsedOrNull(decode(content))?.detail ?? answer.statusText;
  const [after] = /^\d{1,6}$/.exec(answer.headers.get("Retry-After")) ?? [0], { status } = answer;
  fail("refused", `${host} refused the request (${status}): ${detail}`, { status, retryAfter: Number(after) });
}

// ---- What lasts: the ledger and the outbox
//
// Each has a storage, with `update(change)`: replace the state by what `change` makes of it, unless that is undefined, and
// resolve when it is durable.

const openStorage = async (kind, place) =>
  globalThis.indexedDB
    ? new DatabaseStorage(kind, place)
    : (await beside("node-files.js", import("./node-files.js"))).fileStorage(kind, place, fail);

const LEDGER_FORMAT = "sstq-js-ledger-1";

export class Ledger {
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  static async open(place, { epsilon, cap = epsilon } = {}) {
    checkNumber("epsilon", epsilon, 1e-9, 1e6);
    checkNumber("cap", cap, 1e-9, 1e6);
    const storage = await openStorage("ledger", place);
    await storage.update((state) => {
      if (state === undefined) return { format: LEDGER_FORMAT, epsilon, cap, entries: [] };
      checkLedger(state, place);
      if (state.epsilon !== epsilon || state.cap !== cap)
        fail("ledger", `${place} has other terms: epsilon = ${state.epsilon}, cap = ${state.cap}`);
      return undefined;
    });
    return new Ledger(storage);
  }

  get place() {
    return this.#storage.place;
  }

  /** When this resolves, the expense is durable; only then may the message leave. */
  async spend(epsilon, purpose) {
    checkNumber("epsilon", epsilon, 1e-9, MOST_EPSILON);
    await this.#storage.update((state) => {
      const { cap, entries } = checkLedger(state, this.place), left = exactly(state.epsilon) - totalOf(entries);
      if (entries.some((entry) => entry.purpose === purpose))
        fail("ledger", `${purpose} was spent already`, { reason: "spent" });
      if (epsilon > cap) fail("ledger", `epsilon = ${epsilon} is more than the cap, ${cap}`, { reason: "exhausted" });
      if (exactly(epsilon) > left) {
        const rest = `${Number(left) / 2 ** 83} of ${state.epsilon}`;
        fail("ledger", `epsilon = ${epsilon} is more than is left: ${rest}`, { reason: "exhausted" });
      }
      return { ...state, entries: [...entries, { purpose, epsilon, time: new Date().toISOString() }] };
    });
  }

  async entries() {
    let entries;
    await this.#storage.update((state) => void ({ entries } = checkLedger(state, this.place)));
    return entries;
  }

  async spent() {
    return Number(totalOf(await this.entries())) / 2 ** 83;
  }
}

const totalOf = (entries) => entries.reduce((sum, entry) => sum + exactly(entry.epsilon), 0n);

function checkLedger(state, place) {
  const isEntry = (entry) => typeof entry?.purpose === "string" && isNumber(entry.epsilon, 1e-9, MOST_EPSILON);
  const hasTerms = isNumber(state?.epsilon, 1e-9, 1e6) && isNumber(state.cap, 1e-9, 1e6);
  if (!hasTerms || state.format !== LEDGER_FORMAT || !Array.isArray(state.entries) || !state.entries.every(isEntry))
    fail("ledger", `the ledger ${place} is damaged, missing or of another kind; it is never replaced by a new budget`);
  return state;
}

const OUTBOX_FORMAT = "sstq-js-outbox-1";

/** Uploads that were paid for and not acknowledged yet. */
export class Outbox {
  #storage;

  constructor(storage = new MemoryStorage()) {
    this.#storage = storage;
  }

  static async open(place) {
    const outbox = new Outbox(await openStorage("outbox", place));
    await outbox.#change(() => undefined);
    return outbox;
  }

  /** Whether it is more than memory. */
  get lasts() {
    return !(this.#storage instanceof MemoryStorage);
  }

  /** Keep uploads: those of an only answer unless there is one already, which this remembers. */
  async put(uploads, isOnly = false) {
    const [{ answer }] = uploads;
    await this.#change(({ uploads: all, studies }) => {
      const part = studies[answer];
      if (isOnly && part?.isAnswered) return undefined;
      const marked = isOnly ? { ...studies, [answer]: { ...part, isAnswered: true } } : studies;
      return { uploads: [...all, ...uploads], studies: marked };
    });
  }

  /**
   * What is remembered of a study, by the name of the answer to it: the links that led to it, none of which leads to
   * another one, the stage that was seen, the turn that was drawn, and whether it is answered.
   */
  async part(answer, link, more) {
    let part;
    await this.#change(({ studies }) => {
      const led = Object.keys(studies).find((other) => studies[other].links.includes(link)), known = studies[answer];
      if (led !== undefined && led !== answer) fail("campaign", `${link} leads to another study now; nothing was sent`);
      const links = led ? known.links : [...(known?.links ?? []), link];
      part = { ...known, links, ...more };
      return { studies: { ...studies, [answer]: part } };
    });
    return part;
  }

  async waiting(campaign) {
    let found;
    await this.#change(({ uploads }) => void (found = uploads.filter((upload) => upload.campaign === campaign)));
    return found;
  }

  async finish(key) {
    await this.#change(({ uploads }) => ({ uploads: uploads.filter((upload) => upload.key !== key) }));
  }

  /** Note that a page is about to charge a ledger for an answer. */
  async beginPayment(answer) {
    const begun = (upload) => (upload.answer === answer ? { ...upload, payers: (upload.payers ?? 0) + 1 } : upload);
    await this.#change(({ uploads }) => ({ uploads: uploads.map(begun) }));
  }

  /** Forget an answer that was not paid for. */
  async drop(answer) {
    await this.#change(({ uploads, studies }) => ({
      uploads: uploads.filter((upload) => upload.answer !== answer),
      studies: answer in studies ? { ...studies, [answer]: { ...studies[answer], isAnswered: false } } : studies,
    }));
  }

  async #change(change) {
    await this.#storage.update((state) => {
      if (state !== undefined && (state?.format !== OUTBOX_FORMAT || !Array.isArray(state.uploads)))
        fail("outbox", `the outbox ${this.#storage.place ?? ""} is damaged or of another kind`);
      const known = { format: OUTBOX_FORMAT, uploads: [], studies: {}, ...state }, changed = change(known);
      return changed && { ...known, ...changed };
    });
  }
}

class MemoryStorage {
  #state;

  async update(change) {
    this.#state = change(this.#state) ?? this.#state;
  }
}

const settled = (event) =>
  new Promise((resolve, reject) => {
    event.onsuccess = event.oncomplete = () => resolve(event.result);
    event.onerror = event.onabort = () => reject(event.error);
  });

/** In IndexedDB, whose transactions exclude each other in all pages of an origin. */
class DatabaseStorage {
  #kind;

  constructor(kind, place) {
    this.#kind = kind;
    this.place = place;
  }

  async update(change) {
    const opening = indexedDB.open(`sstq-${this.#kind}-${this.place}`, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(this.#kind);
    const database = await settled(opening);
    try {
      const transaction = database.transaction(this.#kind, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(this.#kind), committed = settled(transaction);
      const changed = change(await settled(store.get("state")));
      if (changed !== undefined) store.put(changed, "state");
      await committed;
    } finally {
      database.close();
    }
  }
}

export const steps = {
  ...{ streamHalves, wordOf, signBits, flipSigns, chosenPlaces, scaled, uniform, norm, Floats, ranges, lastInside },
  ...{ memberOf, KashinFrame, expBelow, TwoLevelDraw, RowEncoder, CoordinateEncoder },
};
