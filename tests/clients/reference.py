"""A third client, written from `docs/client-specification.md` alone: slow, plain, and without the library.

Sections have the numbers of the specification. Arrays of NumPy stand for loops over single-precision numbers; each of
their operations is rounded once, as the specification asks.
"""

import hashlib
import json
import math
from fractions import Fraction

import numpy as np

WORD, TOTAL = 1 << 64, 1 << 62


# 3 Public randomness


def philox(counter, key):
    """Four output words of a block."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(p1 >> 64) ^ c[1] ^ k0, p1 % WORD, (p0 >> 64) ^ c[3] ^ k1, p0 % WORD]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % WORD, (k1 + 0xBB67AE8584CAA73B) % WORD
    return c


def key_of(seed, purpose):
    return seed, int.from_bytes(purpose.encode("ascii"), "little")


def stream(seed, purpose, count):
    """The first words of a stream."""
    blocks = (philox((block + 1, 0, 0, 0), key_of(seed, purpose)) for block in range(-(-count // 4)))
    return [word for block in blocks for word in block][:count]


def word_of(seed, purpose, identifier):
    return philox((identifier, 0, 0, 0), key_of(seed, purpose))[0]


def signs(seed, purpose, count):
    words = stream(seed, purpose, -(-count // 64))
    return np.array([-1 if words[k // 64] >> (k % 64) & 1 else 1 for k in range(count)], dtype=np.float32)


def columns(seed, dim, size):
    words = stream(seed, "columns", size)
    return sorted(sorted(range(size), key=lambda place: (words[place], place))[:dim])


def index_below(word, limit):
    return word * limit >> 64


# 4 What a word is read as


def unit(word):
    return (word >> 11) * 2.0**-53


def integer(word):
    return word >> 2


def place_below(word, limit):
    return integer(word) * limit >> 62


# 5 Length


def length(x):
    """‖x‖ in double precision, in eight lanes."""
    x = [float(number) for number in x]
    lanes, whole = [0.0] * 8, len(x) // 8 * 8
    for i in range(whole):
        lanes[i % 8] += x[i] * x[i]
    for i in range(whole, len(x)):
        lanes[0] += x[i] * x[i]
    s = lanes
    return math.sqrt(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])))


def share_of_clip(x, clip):
    """The share ‖x‖/clip, at most 1, and whether x is longer than clip."""
    relative = (1 / clip) * length(x)
    return (1.0, True) if relative > 1 else (relative, False)


def rescued(x, clip):
    """A vector of doubles, and what stands for 1/clip, where squares would overflow or underflow."""
    if 1e-140 < length(x) < 1e150:
        return x, 1 / clip
    largest = max(int(bits) & (1 << 63) - 1 for bits in x.view(np.uint64))
    exponent = (largest >> 52) - 1022
    return x * math.ldexp(1.0, -exponent), 2 * (math.ldexp(1.0, exponent - 1) / clip)


# 6 The transform


def butterflies(y, bits):
    """Butterflies for those bits of the index, in that order."""
    for bit in bits:
        pairs = y.reshape(-1, 2, 1 << bit)
        upper, lower = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0], pairs[:, 1] = upper + lower, upper - lower


def transform(y):
    butterflies(y, range(len(y).bit_length() - 1))


# 7 FrameUnit


def is_negative(share, word):
    return unit(word) < (1 - share) / 2


def scores(x, negative, seed, size, rounds):
    """U x up to a positive factor."""
    norm, sign = length(x), -1.0 if negative else 1.0
    y, first = np.zeros(size, dtype=np.float32), signs(seed, "signs1", len(x))
    if norm > 0:
        factor = sign / norm
        y[: len(x)] = (x.astype(np.float64) * factor).astype(np.float32) * first
    else:
        y[: len(x)] = (x * np.float32(0)) * first
        y[0] = np.float32(sign) * first[0]
    transform(y)
    for number in range(2, rounds + 1):
        y *= signs(seed, f"signs{number}", size)
        transform(y)
    return y


def signed_row(c, inside, place):
    """The signed row at a place: those inside, their opposites, then all others with both signs."""
    keys = (c.view(np.uint32) & np.uint32(0x7FFFFFFF)).tolist()
    best = sorted(range(len(c)), key=lambda j: (-keys[j], j))
    within = sorted(best[:inside])
    if place >= 2 * inside:
        return 2 * sorted(best[inside:])[(place - 2 * inside) // 2] + place % 2
    row = within[place % inside]
    return 2 * row + ((float(c[row]) < 0) != (place >= inside))


def two_level(size, inside, threshold, first, second):
    if integer(first) < threshold:
        return place_below(second, inside)
    return inside + place_below(second, size - inside)


def frame_seed(seed, frames, number):
    return seed if frames == 1 else word_of(seed, "frames", number)


def frameunit_rounds(dim, frames):
    return 3 if dim <= 4096 or frames >= 32 else 2


# 8 GroupUnit


def vector_frames(frames, share_people):
    return frames - max(1, round(frames * share_people)) if share_people else frames


def share_row(spec, group, frame, words):
    """What people send who send their group only."""
    size, inside = spec["share_size"], spec["share_inside"]
    multipliers = 1 if inside == 1 else max(1, size // 2)
    slots = min(multipliers, 2 * spec["frame_size"] * spec["blocks"] // size)
    slot = index_below(words[0], slots)
    multiplier = slot + 1
    if slots < multipliers:
        drawn = word_of(int(spec["frame_seed"]), "shares", frame * slots + slot)
        multiplier = index_below(drawn, multipliers) + 1
    place = two_level(size, inside, int(spec["share_threshold"]), words[1], words[2])
    return slot * size + (multiplier * group - place) % size


def in_block(spec, x, group):
    """The block of a group, and the vector at its place there."""
    own = -(-spec["groups"] // spec["blocks"])
    padded = np.zeros(own * spec["dim"], dtype=x.dtype)
    padded[group % own * spec["dim"] :][: spec["dim"]] = x
    return group // own, padded


# 9 SSTQ


def schedule(dim, size, level, steps):
    """(ω, γ, box) of each step, single precision."""
    redundancy = size / dim
    beta = float(np.float32(level / math.sqrt(redundancy)))
    usual = 1.4 if redundancy >= 2 else 1.0
    rows = []
    for step in range(steps):
        long = step >= 2 and (steps - step) % 2 == 0
        omega, gamma = (3.0, 2.5) if long else (usual, 0.0)
        if step == 0:
            omega = 1.2
        if step == steps - 1:
            omega = 1.0
        start = 1 - 0.36 / steps
        growth = 1.0 if step == steps - 1 else step * ((1 - start) / (steps - 1)) + start
        rows.append((omega, gamma, beta * growth))
    return np.array(rows, dtype=np.float32)


def orders(bits):
    """The bits of the index in the order of butterflies: from the mask up to a step, and down from it to the mask."""
    if bits < 10:
        return [*range(bits)], [*range(bits)]
    block = min(11, bits - 1)
    row = max(block, bits - 8)
    top = bits - 3 if bits - row > 3 else bits
    middle = min(top, row + 3)
    up = [*range(row, bits), *range(block, row), *range(block)]
    inner = [*range(8, block), *range(8), *range(block, row)]
    return up, [*inner, *range(top, bits), *range(middle, top), *range(row, middle)]


def lane_sums(left, right, bits):
    """Σ left·right in 16 lanes of single precision per block, the lanes added in double precision."""
    block = 1 << (min(11, bits - 1) if bits >= 10 else bits)
    total = 0.0
    for start in range(0, len(left), block):
        products = left[start : start + block] * right[start : start + block]
        if bits >= 10:
            # Within a block: column by column of 256 numbers, and in a column by rows.
            products = products.reshape(-1, 256).T.reshape(-1)
            places = np.arange(block) // (block // 256) % 16
        else:
            places = np.arange(block) % 16
        for lane in range(16):
            own = products[places == lane]
            total += float(np.cumsum(own, dtype=np.float32)[-1]) if len(own) else 0.0
    return total


def representation(x, dim, size, seed, level, steps):
    """t/β of a vector of the unit ball."""
    bits, one = size.bit_length() - 1, np.float32(1)
    up, down = orders(bits)
    chosen = columns(seed, dim, size)
    mask = np.zeros(size, dtype=bool)
    mask[chosen] = True
    a, t = np.zeros(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    a[chosen] = signs(seed, "signs1", dim) * x
    plan, scale, sums = schedule(dim, size, level, steps), one, [(0.0, 0.0, 0.0)] * 2
    for step, (omega, gamma, box) in enumerate(plan):
        if step > 0:
            butterflies(a, down)
            a[~mask] = 0
            scale = np.float32(1 / size)
        butterflies(a, up)
        before, last = sums
        quotient = before[2] / max(2 * before[1] - before[0] + last[0], 1e-30)
        rate = max(omega, np.float32(min(float(gamma) * quotient, 16.0))) * scale
        new = np.minimum(np.maximum(t + a * rate, -box), box)
        taken = new - t
        power, product, moved = lane_sums(a, a, bits), lane_sums(a, taken, bits), lane_sums(taken, taken, bits)
        sums = [last, (power * (float(scale) * float(scale)), product * float(scale), moved)]
        a, t = a * scale - taken, new
    return np.clip(t / plan[-1, 2], -one, one)


def clipped(x, clip):
    """The vector clipped to norm clip, over clip."""
    norm = length(x)
    factor = 1 / norm if share_of_clip(x, clip)[1] else 1 / clip
    return (x.astype(np.float64) * factor).astype(np.float32)


def rounded(codebook, y, word):
    """The token of a coordinate."""
    y = min(max(float(y), -1.0), 1.0)
    lower = min(sum(value <= y for value in codebook) - 1, len(codebook) - 2)
    gap = codebook[lower + 1] - codebook[lower]
    weight = (y - codebook[lower]) / gap if gap > 0 else 1.0
    return lower + (unit(word) < weight)


def flat(own, other, token, word):
    beyond = integer(word) - own
    if beyond < 0:
        return token
    code = beyond // other
    return code + (code >= token)


# 10 Messages


def limits_of(spec):
    """How many values each field can have."""
    if spec["mechanism"] == "frequencies":
        return [multipliers_of(spec) * spec["size"]]
    row = 2 * spec["frame_size"] * spec.get("blocks", 1)
    return [row, spec["frames"]] if spec["frames"] > 1 else [row]


def fields_of(spec):
    """Names and bits, from the lowest bits on."""
    if spec["mechanism"] == "survey":
        largest, count = max(part["items"] * math.prod(limits_of(part)) for part in spec["parts"]), len(spec["parts"])
        question = [("question", (count - 1).bit_length())] if count > 1 else []
        return [("answer", max(1, (largest - 1).bit_length())), *question]
    if spec["mechanism"] == "frequencies":
        return [("code", (limits_of(spec)[0] - 1).bit_length())]
    if spec["mechanism"] == "sstq":
        return [("code", spec["bits"]), ("index", (spec["frame_size"] - 1).bit_length())]
    candidates = 2 * spec["frame_size"] * spec.get("blocks", 1)
    frame = [("frame", (spec["frames"] - 1).bit_length())] if spec["frames"] > 1 else []
    return [("row", (candidates - 1).bit_length()), *frame]


def pack(fields, messages):
    whole, place = 0, 0
    for message in messages:
        for (_, bits), value in zip(fields, message, strict=True):
            whole |= value << place
            place += bits
    return whole.to_bytes(-(-place // 8), "little")


def encode(text, x, words, group=None, client=None):
    """The fields of a message, from the JSON of its mechanism; `client` is the number of one with a public coin."""
    spec = json.loads(text)
    if spec["mechanism"] == "frequencies":
        return [category_code(spec, x, words)]
    if spec["mechanism"] == "survey":
        return survey_message(spec, x, words)
    return encode_vector(spec, x, words, group, client)


def encode_vector(spec, x, words, group, client=None):
    seed, clip, size = int(spec["frame_seed"]), float(spec["clip"]), spec["frame_size"]
    if spec["mechanism"] == "sstq":
        index = index_below(words[0] if client is None else word_of(seed, "assign", client), size)
        values = representation(clipped(x, clip), spec["dim"], size, seed, float(spec["level"]), spec["steps"])
        token = rounded(spec["codebook_values"], values[index], words[1])
        code = int(flat(int(spec["own"]), int(spec["other"]), token, words[2]))
        return [code, index] if client is None else [code]
    frames, blocks = spec["frames"], spec.get("blocks", 1)
    drawn = 0 if frames == 1 else words[3] if client is None else word_of(seed, "group", client)
    frame = index_below(drawn, frames)
    block, rounds = 0, frameunit_rounds(spec["dim"], frames)
    if spec["mechanism"] == "groupunit":
        if frame >= vector_frames(frames, spec["share_people"]):
            only = share_row(spec, group, frame, words)
            return [only, frame] if client is None else [only]
        (block, x), rounds = in_block(spec, x, group), 3
    own = 2 * size if client is None or spec.get("bits") is None else 1 << spec["bits"]
    place = two_level(own * blocks, spec["inside"], int(spec["threshold"]), words[1], words[2])
    if place < own:
        x, inverse = rescued(x.astype(np.float64), clip)
        negative = is_negative(min(inverse * length(x), 1.0), words[0])
        c = scores(x, negative, frame_seed(seed, frames, frame), size, rounds)
        if own < 2 * size:
            c = c[permuted(word_of(seed, "rows", client), np.arange(own // 2), size.bit_length() - 1)]
        row = block * own + signed_row(c, spec["inside"], place)
    else:
        other, rest = divmod(place - own, own)
        row = (other + (other >= block)) * own + rest
    return [int(row), frame] if frames > 1 and client is None else [int(row)]


# 16 Frequencies


def width_of(spec):
    """The w of whole sets, None for affine ones."""
    k, sizes = spec["categories"], (spec["size"], spec["inside"])
    found = [w for w in range(1, min(k // 2, 16) + 1) if (math.comb(k, w), math.comb(k - 1, w - 1)) == sizes]
    return found[0] if found else None


def multipliers_of(spec):
    return max(1, spec["size"] // 2) if width_of(spec) is None else 1


def category_code(spec, category, words):
    size, inside, width = spec["size"], spec["inside"], width_of(spec)
    place = two_level(size, inside, int(spec["threshold"]), words[1], words[2])
    if width is None:
        slot = index_below(words[0], multipliers_of(spec))
        return slot * size + ((slot + 1) * category - place) % size
    others = (
        set_at(spec["categories"] - 1, width - 1, place)
        if place < inside
        else set_at(spec["categories"] - 1, width, place - inside)
    )
    members = {other + (other >= category) for other in others} | ({category} if place < inside else set())
    return sum(math.comb(member, number) for number, member in enumerate(sorted(members), start=1))


def set_at(points, width, place):
    """The set at a place among all sets of `width` of some points."""
    members = []
    for point in reversed(range(points)):
        left = width - len(members)
        if place >= math.comb(point, left):
            place -= math.comb(point, left)
            members.append(point)
    return members


# 17 Surveys


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def label_number(question, value):
    """The number of a label; that of no answer is the last one."""
    same = [place for place, label in enumerate(question["labels"]) if label == value and type(value) is not bool]
    return same[0] if same else len(question["labels"])


def clamped(question, value):
    return float(min(max(value, question["low"]), question["high"])) if is_number(value) else math.nan


def marks_of(question, value):
    none = len(question["labels"])
    found = [label_number(question, label) for label in value] if isinstance(value, list) else [none]
    known = [place for place in found if place < none]
    return [float(place in (known or found)) for place in range(none + 1)]


def bin_of(question, value):
    number, low, high, bins = clamped(question, value), question["low"], question["high"], question["bins"]
    return bins if math.isnan(number) else min(math.floor((number - low) / (high - low) * bins), bins - 1)


def vector_or_zero(question, value):
    """A vector, or one of one number: that of a number, from the middle of its range."""
    if question["type"] == "number":
        return np.array([clamped(question, value) - (question["low"] + question["high"]) / 2])
    is_vector = isinstance(value, list) and len(value) == question["dim"] and all(map(is_number, value))
    return np.array(value, dtype=np.float64) if is_vector else np.zeros(question["dim"])


def encoded_value(questions, question, record, item, items):
    """What the part encodes, and the group."""
    value, kind = record.get(question["name"]), question["type"]
    if kind == "by":
        group, of = questions[question["group"]], questions[question["value"]]
        number, x = label_number(group, record.get(group["name"])), vector_or_zero(of, record.get(of["name"]))
        none = len(group["labels"])
        return (np.zeros(len(x)), none) if number == none or np.isnan(x).any() else (x, number)
    if kind == "multichoice":
        marks = marks_of(question, value)
        return (int(marks[item]) if items > 1 else np.array(marks) - 0.5), None
    readers = {"choice": label_number, "number": bin_of, "vector": vector_or_zero}
    return readers[kind](question, value), None


def survey_message(spec, record, words):
    ends = np.cumsum([int(draw) for draw in spec["draws"]], dtype=object)
    place = sum(int(end) <= integer(words[4]) for end in ends)
    part, items = spec["parts"][place], spec["parts"][place]["items"]
    item = index_below(words[5], items)
    questions = {question["name"]: question for question in spec["questions"]}
    value, group = encoded_value(questions, spec["questions"][place], record, item, items)
    if part["mechanism"] == "frequencies":
        sent = [category_code(part, value, words)]
    else:
        sent = encode_vector(part, value, words, group)
    answer = item
    for limit, field in zip(limits_of(part), sent, strict=True):
        answer = answer * limit + field
    return [answer, place] if len(spec["parts"]) > 1 else [answer]


# 14 Public coins


def permuted(word, places, bits):
    """The images of places under the permutation of a client's word."""
    return [_permuted(word, int(place), bits) for place in places]


def _permuted(word, place, bits):
    low_bits, high_bits = bits // 2, bits - bits // 2
    high, low = place >> low_bits, place % (1 << low_bits)
    for step in range(8 if bits >= 6 else 32):
        other, width = (low, high_bits) if step % 2 == 0 else (high, low_bits)
        z = (word + ((step + 1 << 32) + other) * 0x9E3779B97F4A7C15) % WORD
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
        leading = (z ^ z >> 31) >> (64 - width)
        high, low = (high ^ leading, low) if step % 2 == 0 else (high, low ^ leading)
    return high << low_bits | low


# 11 What a client checks


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def spends_at_most(spec):
    """Whether the integers of a mechanism spend no more than its ε, in rational arithmetic."""
    epsilon, term, bound = Fraction(spec["epsilon"]), Fraction(1), Fraction(0)
    for number in range(1, 200):
        bound, term = bound + term, term * epsilon / number
    if spec["mechanism"] == "survey":
        return all(part["epsilon"] == spec["epsilon"] and spends_at_most(part) for part in spec["parts"])
    if spec["mechanism"] == "sstq":
        return Fraction(int(spec["own"]), int(spec["other"])) <= bound
    size = spec["size"] if spec["mechanism"] == "frequencies" else 2 * spec["frame_size"] * spec.get("blocks", 1)
    draws = [(size, spec["inside"], int(spec["threshold"]))]
    if "share_size" in spec:
        draws.append((spec["share_size"], spec["share_inside"], int(spec["share_threshold"])))
    return all(Fraction(t * -(-TOTAL // k), (TOTAL - t) * (TOTAL // (size - k))) <= bound for size, k, t in draws)
