"""Fresh random cases for clients in other languages: mechanisms, vectors, secret words, and what the library sends."""

import json

import numpy as np

import sstq
from sstq.inputs.trial_vectors import structured_vectors
from tests.clients.vectors import packed, sent_by_library

# Small and large, one frame and many, blocks of one group and of several, with people who send their group only.
FRAMEUNITS = [
    {"dim": 1, "epsilon": 0.5},
    {"dim": 3, "epsilon": 2.0, "clip": 0.01, "frame_size": 4},
    {"dim": 5, "epsilon": 2.0, "clip": 5**0.5, "frames": 2048, "frame_seed": 2**64 - 1},
    {"dim": 64, "epsilon": 8.0, "frame_size": 64, "frame_seed": 7},
    {"dim": 300, "epsilon": 3.0, "frames": 3},
    {"dim": 1000, "epsilon": 12.0, "clip": 1e-30},
    {"dim": 6, "epsilon": 2.0, "frames": 64, "messages": 3},
    {"dim": 5000, "epsilon": 4.0, "frames": 2},
    {"dim": 5000, "epsilon": 4.0, "frames": 33, "clip": 1e30},
]
GROUPUNITS = [
    {"dim": 2, "epsilon": 1.0, "groups": 2},
    {"dim": 3, "epsilon": 5.0, "groups": 7, "frames": 1},
    {
        "dim": 4,
        "epsilon": 0.3,
        "groups": 10,
        "blocks": 3,
        "frames": 25,
        "share_people": 0.1,
    },
    {"dim": 40, "epsilon": 3.0, "groups": 10, "frames": 64},
    {"dim": 3, "epsilon": 1.0, "groups": 4, "frames": 50, "messages": 2},
    {
        "dim": 5,
        "epsilon": 2.0,
        "groups": 1001,
        "blocks": 500,
        "frames": 100,
        "share_people": 0.5,
    },
    {
        "dim": 1,
        "epsilon": 0.05,
        "groups": 5000,
        "blocks": 1,
        "frames": 7,
        "share_people": 0.3,
    },
]
SSTQS = [
    {"dim": 1, "epsilon": 1.0, "bits": 1},
    {"dim": 5, "epsilon": 3.0, "bits": 2},
    {"dim": 7, "epsilon": 1.0, "bits": 2, "messages": 3},
    {"dim": 6, "epsilon": 3.0, "bits": 3, "frame_size": 8, "clip": 0.1},
    {"dim": 100, "epsilon": 3.0, "bits": 4, "codebook": "uniform", "frame_seed": 3},
    {"dim": 250, "epsilon": 3.0, "bits": 12, "steps": 1},
    # N = 2^10, the least that is fused
    {"dim": 300, "epsilon": 3.0, "bits": 12, "frame_seed": 5},
    {"dim": 1000, "epsilon": 3.0, "bits": 12, "frame_size": 2048},
    {"dim": 1500, "epsilon": 5.0, "bits": 12},
    {"dim": 6000, "epsilon": 5.0, "bits": 12},
]
FREQUENCIES = [
    {"categories": 2, "epsilon": 3.0},
    {"categories": 100, "epsilon": 2.0},
    {"categories": 26, "epsilon": 0.5},
    {"categories": 999_983, "epsilon": 0.1},
]
SURVEYS = [
    {
        "epsilon": 1.0,
        "questions": {"c": sstq.Choice(["a", "b"]), "n": sstq.Number(-3, 7.5, bins=9)},
    },
    {
        "epsilon": 4.0,
        "questions": {
            "c": sstq.Choice(range(-3, 40)),
            "m": sstq.MultiChoice(list("abcde")),
            "all": sstq.MultiChoice(list("abcdefghijklmnopqrstuvwxyz")),
            "n": sstq.Number(1e-3, 1e-2, bins=512),
            "v": sstq.Vector(13, clip=0.5),
            "n by c": sstq.By("c", "n"),
            "v by c": sstq.By("c", "v"),
        },
    },
    {
        "epsilon": 2.0,
        "questions": {
            "c": sstq.Choice(["a", "b", "c"]),
            "k": sstq.Count(7),
            "x": sstq.Number(-2.5, 4, bins=5),
            "k by c": sstq.By("c", "k"),
            "mean k": sstq.Mean("k"),
            "mean x": sstq.Mean("x"),
        },
    },
]


def mechanisms():
    """One of every kind."""
    found = [sstq.FrameUnit(**options) for options in FRAMEUNITS]
    found += [sstq.GroupUnit(**options) for options in GROUPUNITS]
    found += [sstq.SSTQ(**options) for options in SSTQS]
    return (
        found
        + [sstq.Frequencies(**options) for options in FREQUENCIES]
        + [sstq.Survey(**one) for one in SURVEYS]
    )


def vectors(mechanism, count, rng):
    """Vectors of all kinds and lengths, with zeros, −0, ties and subnormal numbers, as float32."""
    kinds = structured_vectors(mechanism.dim, rng)
    rows = np.concatenate([kinds[name] for name in kinds])
    rows = rows[rng.integers(len(rows), size=count)] * mechanism.clip
    rows *= rng.choice(
        [1.0, 1.0, 0.3, 0.9999999, 1.0000001, 5.0, 1e-3, 0.0, -1.0], size=(count, 1)
    )
    rows[rng.random(count) < 0.1] *= rng.integers(2, size=mechanism.dim)
    rows[rng.random(count) < 0.1] = np.float32(2.0**-149) * rng.integers(
        -3, 4, size=mechanism.dim
    )
    rows[rng.random(count) < 0.05] = -0.0
    return np.clip(rows, -3e38, 3e38).astype(np.float32)


def people(mechanism, count, rng):
    """Records of a survey, or categories, as the library holds them and as JSON values."""
    some = mechanism.input.trial(rng, count)["X"]
    if not isinstance(some, dict):
        return some[:, None].astype(np.float64), [
            {"value": int(category)} for category in some
        ]
    # Beyond the bounds as well.
    for name in ("n", "v", "x"):
        stretched = [
            None
            if each is None
            else (np.array(each) * 10.0 ** rng.integers(-3, 3)).tolist()
            for each in some.get(name, [])
        ]
        some |= {name: stretched} if name in some else {}
    records = [
        {"value": dict(zip(some, row, strict=True))}
        for row in zip(*some.values(), strict=True)
    ]
    return mechanism.input.read(some), records


def cases(mechanism, count, rng):
    """JSON values: vectors as float32 in hexadecimal, words as decimal strings, and the messages."""
    if not mechanism.input.has_clip:
        rows, given = people(mechanism, count, rng)
        groups = None
    else:
        x = vectors(mechanism, count, rng)
        given = [{"vector": row.astype("<f4").tobytes().hex()} for row in x]
        groups = (
            rng.integers(mechanism.groups, size=count) if mechanism.groups else None
        )
        rows = mechanism.input.read(x, groups)
    words = rng.integers(
        0, 1 << 64, size=(count, mechanism.words_each), dtype=np.uint64
    )
    # The ends of the range as often as not.
    words[rng.random(words.shape) < 0.05] = 0
    words[rng.random(words.shape) < 0.05] = 2**64 - 1
    sent = sent_by_library(mechanism, rows, words)
    return {
        "mechanism": mechanism.to_json(),
        "digest": mechanism.digest(),
        "message_bits": mechanism.message_bits,
        "packed": packed(mechanism, sent),
        "cases": [
            own
            | {
                "group": None if groups is None else int(groups[number]),
                "words": [str(word) for word in words[number].tolist()],
                "message": sent[number],
            }
            for number, own in enumerate(given)
        ],
    }


def write(path, count, seed):
    """Write `count` cases of every mechanism to a file; returns how many there are in all."""
    rng = np.random.default_rng(seed)
    # Fewer of those that are long: the file would have megabytes.
    found = [
        cases(each, max(10, min(count, 100_000 // each.dim)), rng)
        for each in mechanisms()
    ]
    path.write_text(json.dumps(found))
    return sum(len(each["cases"]) for each in found)
