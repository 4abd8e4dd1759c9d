"""Every mechanism of the registry, in the variants that differ in what they promise."""

import copy
import json
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import paper.baselines  # noqa: F401 (registers those that are not locally private)
import sstq
from sstq.mechanisms import mechanism_class

# A third party's, as if the package were installed.
sys.path.append(str(Path(__file__).parents[2] / "examples" / "own-mechanism" / "src"))
for _own in (
    import_module("own_mechanisms").CoordinateSign,
    import_module("own_mechanisms").HadamardResponse,
):
    if _own.name not in sstq.list_mechanisms():
        sstq.register(_own)

EPSILON = 2.0


def encode(mechanism, x, rng=None):
    """Messages of the rows, in one group if there are groups."""
    groups = None if mechanism.groups is None else np.ones(len(x), dtype=np.int64)
    return mechanism.encode(x, rng=rng, groups=groups)


def read_in_turn(mechanism, x):
    """Vectors as the mechanism reads them, in all groups in turn if there are any."""
    held = mechanism.input.trial(np.random.default_rng(0), len(x))
    return mechanism.input.read(**(held | {"X": x}))


DIM = 6
_BOUNDS = {
    "a": (-3.0, 3.0),
    "b": (-3.0, 3.0),
    "c": (-3.0, 3.0),
    "d": (0.0, 1.0),
    "e": (0.0, 1.0),
    "f": (0.0, 1.0),
}

# Options beyond dim and clip; the key is what the test is called.
CASES = {
    "sstq": {"epsilon": EPSILON, "bits": 2},
    "sstq/metric-aware": {"epsilon": EPSILON, "bits": 3, "channel": "metric-aware"},
    "sstq/metric-aware-unbiased": {
        "epsilon": EPSILON,
        "bits": 2,
        "channel": "metric-aware",
        "decoder": "unbiased",
    },
    "sstq/metric-aware-rescaled": {
        "epsilon": EPSILON,
        "bits": 3,
        "channel": "metric-aware",
        "decoder": "rescaled",
    },
    "sstq/discrete-laplace": {
        "epsilon": EPSILON,
        "bits": 3,
        "channel": "discrete-laplace",
    },
    "sstq/own-codebook": {
        "epsilon": EPSILON,
        "bits": 2,
        "codebook": [-1.0, -0.25, 0.5, 1.0],
    },
    "sstq/optimal": {"epsilon": EPSILON, "bits": 3, "channel": "optimal"},
    "sstq/paper": {"epsilon": EPSILON, "bits": 4, "kashin": "paper"},
    "sstq/messages": {"epsilon": EPSILON, "bits": 2, "messages": 3},
    "frameunit": {"epsilon": EPSILON},
    "frameunit/small": {"epsilon": EPSILON, "frame_size": 8},
    "frameunit/frames": {"epsilon": EPSILON, "frames": 4},
    "frameunit/many": {"epsilon": EPSILON, "frames": 33, "frame_size": 8},
    "frameunit/messages": {
        "epsilon": EPSILON,
        "frames": 4,
        "messages": 3,
        "inside": 90,
    },
    "groupunit": {"epsilon": 4.0, "groups": 4},
    "groupunit/shares": {
        "epsilon": EPSILON,
        "groups": 5,
        "blocks": 2,
        "frames": 20,
        "frame_size": 32,
    },
    "groupunit/one-block": {
        "epsilon": 1.0,
        "groups": 4,
        "blocks": 1,
        "frames": 40,
        "frame_size": 32,
    },
    "groupunit/messages": {
        "epsilon": 3.0,
        "groups": 4,
        "frames": 3,
        "messages": 2,
        "inside": 40,
    },
    "vqsgd": {"epsilon": EPSILON},
    "vqsgd/messages": {"epsilon": EPSILON, "messages": 2},
    "sqkr": {"epsilon": EPSILON},
    "sqkr/two": {"epsilon": EPSILON, "k": 2},
    "sqkr/messages": {"epsilon": EPSILON, "k": 2, "messages": 3},
    "sqkr/paper": {"epsilon": EPSILON, "k": 3, "kashin": "paper"},
    "sqkr/dense": {"epsilon": EPSILON, "variant": "dense"},
    "sqkr/dense-messages": {"epsilon": EPSILON, "variant": "dense", "messages": 2},
    "privunit": {"epsilon": EPSILON},
    "privunit/hemisphere": {"epsilon": EPSILON, "split": "hemisphere"},
    "privunitg": {"epsilon": EPSILON},
    "projunit": {"epsilon": EPSILON, "projected": 4},
    # A third party's, from examples/own-mechanism.
    "coordinate-sign": {"epsilon": EPSILON},
}
_CLASSES = {case: mechanism_class(case.split("/")[0]) for case in CASES}
# Whose output law is private integer by integer.
EXACT = [case for case, chosen in _CLASSES.items() if chosen.exact]

# The paper's baselines that are not locally private.
NOT_LOCAL = {
    "turboquant": {"bits": 3},
    "csgm": {"epsilon": EPSILON, "clients": 50, "delta": 1e-5},
    "l2-csgm": {"epsilon": EPSILON, "clients": 50, "delta": 1e-5},
    "clean": {},
}

# These have as many columns as DIM.
BOUNDED = {
    "sstq/bounds": {"epsilon": EPSILON, "bits": 2, "bounds": _BOUNDS},
    "frameunit/bounds": {"epsilon": EPSILON, "bounds": _BOUNDS},
}

# Mechanisms without vectors; all of their options.
RECORDS = {
    "frequencies": {"categories": 9, "epsilon": 1.0},
    "frequencies/affine": {"categories": 23, "epsilon": 1.0},
    "frequencies/response": {"categories": 6, "epsilon": 4.0},
    "frequencies/messages": {"categories": 5, "epsilon": 1.0, "messages": 3},
    # A third party's, from examples/own-mechanism.
    "hadamard-response": {"categories": 9, "epsilon": 1.0},
    "survey": {
        "epsilon": EPSILON,
        "questions": {
            "country": sstq.Choice(["AT", "CH", "DE"]),
            "used": sstq.MultiChoice(["search", "export"]),
            "age": sstq.Number(0, 110, bins=6),
            "taste": sstq.Vector(3, clip=2.0),
            "age by country": sstq.By("country", "age"),
        },
        "people": 20,
    },
    "survey/messages": {
        "epsilon": 0.75,
        "questions": {"used": sstq.MultiChoice([1, 2]), "vote": sstq.Choice([0, 1])},
        "weights": {"used": 2.0, "vote": 1.0},
        "messages": 2,
    },
    "survey/numbers": {
        "epsilon": 1.0,
        "questions": {
            "visits": sstq.Count(4),
            "age": sstq.Number(-3, 7.5, bins=3),
            "team": sstq.Choice(["a", "b"]),
            "mean visits": sstq.Mean("visits"),
            "mean age": sstq.Mean("age"),
            "visits by team": sstq.By("team", "visits"),
        },
        "people": 20,
    },
}


# Of these the laws are enumerated in smaller frames: the number of steps grows with the square of the rows.
_SMALL = {
    "frameunit": {"frame_size": 32},
    "frameunit/frames": {"frame_size": 32},
    "frameunit/messages": {"frame_size": 32, "inside": 11},
    "groupunit": {"frame_size": 32},
    "groupunit/messages": {"frame_size": 32, "inside": 5},
}


def each(cases):
    """The cases as parameters; the quick lane has the first of each mechanism only, without its variants."""
    return [
        pytest.param(case, marks=pytest.mark.slow if "/" in case else ())
        for case in cases
    ]


def build(case, dim=DIM, clip=0.5, **changes):
    """The mechanism of a case, a copy of what is solved once."""
    return copy.copy(_solved(case, dim, clip, **changes))


@cache
def _solved(case, dim, clip, **changes):
    if case in RECORDS:
        return sstq.mechanism(case.split("/")[0], **RECORDS[case] | changes)
    return sstq.mechanism(
        case.split("/")[0],
        dim=dim,
        clip=clip,
        **(CASES | NOT_LOCAL | BOUNDED)[case] | changes,
    )


def build_small(case):
    """The mechanism of a case, with few rows if it has a frame of rows."""
    return build(case, **_SMALL.get(case, {}))


def reread(mechanism, /, **changes):
    """The mechanism that is read from its JSON form with other values."""
    return sstq.from_json(json.dumps(json.loads(mechanism.to_json()) | changes))
