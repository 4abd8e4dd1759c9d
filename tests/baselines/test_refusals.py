"""What baselines refuse: changed JSON, arguments out of range, and messages that no client sends."""

import json
import math

import numpy as np
import pytest

import sstq
from paper.baselines import CSGM, L2CSGM, Clean, TurboQuant
from sstq.exactness import TOTAL
from tests.contract.cases import build, reread

CAPS = ("privunit", "privunit/hemisphere", "privunitg", "projunit")
CENTRAL = ("csgm", "l2-csgm")


def more(name, steps):
    """Change an integer by so many steps, whether JSON has it as text or not."""
    return lambda data: {name: type(data[name])(int(data[name]) + steps)}


def times(name, factor):
    return lambda data: {name: data[name] * factor}


TAMPERED = [
    (CAPS, times("epsilon", 0.96), "spends"),
    (CAPS, more("inside", 1), "spends"),
    (CAPS, more("mass", -(10**7)), "spends"),
    (CAPS, times("gain", 1.001), "gain must be"),
    (["projunit"], times("alignment", 1.01), "alignment must be"),
    (["projunit"], more("projected", -1), "must be"),
    (
        ["projunit"],
        lambda data: {"projection": "fast"},
        "projection must be 'gaussian'",
    ),
    (CENTRAL, times("sigma", 0.9), "spends"),
    (CENTRAL, times("delta", 0.01), "spends"),
    (CENTRAL, times("epsilon", 0.96), "spends"),
    (["sqkr", "vqsgd"], times("epsilon", 0.9), "not 1.8-LDP"),
    (["sqkr"], more("k", 1), "a row sum to"),
    (["vqsgd"], more("dim", 1), "a row sum to"),
    # Exactly private, but there would be nothing to decode.
    (
        ["sqkr/dense"],
        lambda data: {"own": str(TOTAL // 2), "other": str(TOTAL // 2)},
        "own must be above other",
    ),
    # One step beyond: 12 vertices, and 4 tokens of two bits.
    (
        ["vqsgd"],
        lambda data: more("own", 11)(data) | more("other", -1)(data),
        "not 2.0-LDP",
    ),
    (
        ["sqkr/two"],
        lambda data: more("own", 3)(data) | more("other", -1)(data),
        "not 2.0-LDP",
    ),
]


@pytest.mark.parametrize(
    ("case", "change", "says"),
    [(case, *rest) for cases, *rest in TAMPERED for case in cases],
)
def test_tampered_json_is_refused(case, change, says):
    mechanism = build(case)
    with pytest.raises(ValueError, match=says):
        reread(mechanism, **change(json.loads(mechanism.to_json())))


@pytest.mark.parametrize("kind", [CSGM, L2CSGM])
def test_a_sampled_release_and_its_sums_are_not_changed_either(kind):
    mechanism = kind(16, 2.0, clients=50, coordinates=20)
    for change in ({"coordinates": 25}, {"most": 24}):
        with pytest.raises(ValueError, match="spends"):
            reread(mechanism, **change)
    with pytest.raises(ValueError, match="too large for sums of 62 bits"):
        reread(mechanism, sigma=1e12, bits=12)


@pytest.mark.parametrize(
    ("names", "arguments", "says"),
    [
        (
            ("privunit", "privunitg", "projunit"),
            {"dim": 1},
            r"dim must be an integer in \[2, .*got 1",
        ),
        (["privunit"], {"split": "best"}, "split must be"),
        (["privunit"], {"split": None}, "split must be"),
        (
            ["projunit"],
            {"projected": 1},
            r"projected must be an integer in \[2, 12\], got 1",
        ),
        (
            ["projunit"],
            {"projected": 13},
            r"projected must be an integer in \[2, 12\], got 13",
        ),
        (["turboquant"], {"bits": 9}, r"bits must be an integer in \[1, 8\], got 9"),
        (["sqkr"], {"k": 0}, r"k must be an integer in \[1, 32\], got 0"),
        (
            ["sqkr"],
            {"variant": "sparse"},
            "variant must be 'subsampled' or 'dense', got 'sparse'",
        ),
        (
            ["sqkr"],
            {"variant": "dense", "k": 2},
            "k must be left out with variant='dense'",
        ),
        (
            CENTRAL,
            {"coordinates": 65},
            r"coordinates must be an integer in \[1, 32\], got 65",
        ),
        (CENTRAL, {"frame_size": 48}, "power of two"),
    ],
)
def test_bad_arguments_are_refused(names, arguments, says):
    for name in names:
        usual = {} if name == "turboquant" else {"epsilon": 2.0}
        usual |= {"clients": 50} if name in CENTRAL else {}
        with pytest.raises(ValueError, match=says):
            sstq.mechanism(name, **{"dim": 12} | usual | arguments)


def vector(length, dim=12):
    """Two rows of single-precision numbers: one of norm 1 and one of another norm."""
    return np.full((2, dim), dim**-0.5) * np.array([[1.0], [length]])


@pytest.mark.parametrize(
    ("mechanism", "vectors", "says"),
    [
        *(
            (
                sstq.PrivUnit(12, 3.0),
                vector(length),
                r"message 1: vector must have a norm in \[0.999, 1.001\], got",
            )
            for length in (0.0, 0.998, 1.002, -3.0, 1e38)
        ),
        # 1 + 18/√d, which no word can make.
        (
            sstq.PrivUnitG(400, 3.0),
            vector(1.91, 400),
            r"message 1: vector must have a norm in \[0, 1.9\], got 1.91",
        ),
        (
            sstq.PrivUnitG(400, 3.0),
            vector(math.nan, 400),
            "message 1: vector must be finite, got nan",
        ),
        (
            Clean(12),
            vector(1.06),
            r"message 1: its norm must be at most clip, got 1\.06 times clip",
        ),
        (Clean(12), vector(math.nan), "must be finite"),
        (Clean(2), vector(4e38, 2), "must be at most clip"),
    ],
)
def test_vectors_that_no_client_sends_are_refused(mechanism, vectors, says):
    single = vectors.astype(np.float32)
    assert len(mechanism.messages_from_bytes(single[:1].tobytes(), 1)) == 1
    with pytest.raises(ValueError, match=says):
        mechanism.messages_from_bytes(single.tobytes(), 2)


def test_norms_that_no_client_sends_are_refused():
    mechanism = TurboQuant(dim=4, bits=8)
    codes, _ = mechanism.encode(np.ones(4)).columns
    for norm in (-0.5, 1.5, math.nan):
        with pytest.raises(
            ValueError, match=r"message 0: norm must be (in \[0, 1\]|finite)"
        ):
            mechanism.messages_from_columns(
                (codes, np.array([norm], np.float32)), False
            )


def test_codes_of_coordinates_that_were_not_kept_are_refused():
    mechanism = CSGM(16, 2.0, clients=50, coordinates=20, bits=8)
    codes, kept, seeds = mechanism.encode(np.zeros((3, 16)), rng=1).columns
    codes = codes.copy()
    codes[2, -1] = 1
    with pytest.raises(ValueError, match="message 2: the codes beyond its"):
        mechanism.messages_from_columns((codes, kept, seeds), False)


def test_indices_beyond_the_frame_are_refused():
    mechanism = sstq.SQKR(16, 2.0, k=2, frame="fourier", frame_size=37)
    with pytest.raises(ValueError, match=r"index must be in \[0, 37\), got 63"):
        mechanism.messages_from_bytes(b"\xfc\x3f", 1)
