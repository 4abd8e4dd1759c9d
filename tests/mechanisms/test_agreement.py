"""What client and server agree on: fields are read as they are written, and objects never change."""

import json
import pickle
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

import sstq
from sstq.mechanisms.agreement import (
    Ranges,
    Solved,
    Values,
    Word,
    WordList,
    WordTable,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Everything(Solved):
    """A field of each kind."""

    count: int
    size: float
    word: Word
    words: WordList
    table: WordTable
    values: Values
    kind: Literal["flat", "steep"]
    level: float | None
    ranges: Ranges | None = None
    times: int = 1


WRITTEN = {
    "count": 3,
    "size": 0.5,
    "word": "18446744073709551615",
    "words": ["1", "2"],
    "table": [["1", "2"], ["3", "4611686018427387904"]],
    "values": [0.25, -1.0],
    "kind": "flat",
    "level": None,
}


def test_what_is_written_is_read():
    solved = Everything.from_dict(WRITTEN)
    assert (solved.word, solved.words, solved.ranges) == (2**64 - 1, (1, 2), None)
    assert solved.table.tolist() == [[1, 2], [3, 2**62]]
    assert solved.to_dict() == WRITTEN
    more = WRITTEN | {"ranges": [["age", 0.0, 110.0]], "times": 2, "level": 1.5}
    assert Everything.from_dict(more).to_dict() == more


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"count": True}, "count must be an integer, got True"),
        ({"count": 3.0}, "count must be an integer, got 3.0"),
        ({"count": "3"}, "count must be an integer, got '3'"),
        ({"count": None}, "count must be an integer, got None"),
        ({"count": 10**301}, "count must be an integer, got 1000"),
        ({"size": False}, "size must be a number, got False"),
        ({"size": float("inf")}, "size must be a number, got inf"),
        ({"size": float("nan")}, "size must be a number, got nan"),
        ({"size": 1.1e300}, "size must be a number, got 1.1e"),
        ({"word": 5}, "word must be as JSON has it: 5 is no decimal string"),
        ({"word": "05"}, "'05' is no decimal string"),
        ({"word": "-1"}, "'-1' is no decimal string"),
        ({"word": "18446744073709551616"}, "is no decimal string"),
        ({"words": ["1", " 2"]}, "' 2' is no decimal string"),
        ({"words": None}, "words must be as JSON has it"),
        ({"table": [["9223372036854775808"]]}, "table must be as JSON has it"),
        ({"table": [["1"], ["1", "2"]]}, "table must be as JSON has it"),
        ({"values": [0.25, "1"]}, "values must be as JSON has it: '1' is not a number"),
        ({"values": [None]}, "values must be as JSON has it"),
        ({"kind": "round"}, "kind must be 'flat' or 'steep'"),
        ({"level": "1"}, "level must be a number, got '1'"),
        ({"ranges": [["age", 0.0]]}, "ranges must be as JSON has it"),
        ({"ranges": [["age", 0.0, True]]}, "True is not a number"),
        # Written in another way than `to_dict` does.
        ({"times": 1}, r"unknown or inconsistent fields: \['times'\]"),
        ({"ranges": None}, r"unknown or inconsistent fields: \['ranges'\]"),
        ({"note": 1}, r"unknown or inconsistent fields: \['note'\]"),
        ({"ranges": [[5, 0.0, "1"]]}, "ranges must be as JSON has it"),
    ],
)
def test_what_is_written_otherwise_is_refused(changes, problem):
    with pytest.raises(ValueError, match=problem):
        Everything.from_dict(WRITTEN | changes)


def test_what_is_missing_is_named():
    rest = {name: value for name, value in WRITTEN.items() if name != "word"}
    with pytest.raises(ValueError, match=r"fields \['word'\] are missing"):
        Everything.from_dict(rest)


def test_mechanisms_never_change():
    mechanism = sstq.FrameUnit(8, 2.0)
    before = mechanism.to_json()
    with pytest.raises(AttributeError, match=r"use replace\(clip=…\)"):
        mechanism.clip = 2.0
    with pytest.raises(AttributeError, match="clip cannot be deleted"):
        del mechanism.clip
    with pytest.raises(TypeError):
        mechanism.options["clip"] = 2.0
    with pytest.raises(TypeError):
        sstq.from_json(before).options["clip"] = 2.0
    assert mechanism.clip == 1.0
    assert mechanism.to_json() == before


@pytest.mark.parametrize(
    "changes", [{"clip": 0.5}, {"frame_seed": 7}, {"clip": 0.5, "frame_seed": 7}, {}]
)
def test_a_variant_is_the_mechanism_that_would_have_been_made(changes):
    made = sstq.SSTQ(8, 2.0, bits=2, **changes)
    varied = sstq.SSTQ(8, 2.0, bits=2).replace(**changes)
    assert (
        varied.to_json() == made.to_json() == sstq.from_json(made.to_json()).to_json()
    )
    assert list(json.loads(made.to_json())) == sorted(json.loads(made.to_json()))
    assert (varied.digest(), repr(varied)) == (made.digest(), repr(made))
    assert varied == made
    assert hash(varied) == hash(made)
    back = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert (back, dict(back.options)) == (made, dict(made.options))
    again = varied.replace(clip=1.0, frame_seed=0)
    assert again.to_json() == sstq.SSTQ(8, 2.0, bits=2).to_json()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"clip": 0.0}, "clip must be"),
        ({"clip": "long"}, "clip must be"),
        ({"frame_seed": -1}, "frame_seed must be"),
    ],
)
def test_a_variant_is_checked(changes, problem):
    with pytest.raises(ValueError, match=problem):
        sstq.SSTQ(8, 2.0, bits=2).replace(**changes)


def test_another_epsilon_is_solved_anew():
    varied = sstq.SSTQ(8, 2.0, bits=2).replace(epsilon=3.0)
    assert varied == sstq.SSTQ(8, 3.0, bits=2)
    assert varied != sstq.SSTQ(8, 2.0, bits=2)
    assert sstq.SSTQ(8, 2.0, bits=2) != "SSTQ(8, 2.0, bits=2)"
    # Two mechanisms with the same options.
    assert sstq.FrameUnit(8, 2.0) != sstq.VqSGD(8, 2.0)


def test_options_are_those_that_differ_from_their_defaults():
    given = sstq.SSTQ(np.int64(8), np.float64(2.0), bits=2, clip=1.0, frame_seed=0)
    assert dict(given.options) == {"dim": 8, "epsilon": 2.0, "bits": 2}
    assert [type(value) for value in given.options.values()] == [int, float, int]
    assert eval(repr(given), {"SSTQ": sstq.SSTQ}) == given  # noqa: S307


def test_what_a_constructor_solved_is_checked():
    class Wrong(sstq.FrameUnit):
        def check_solved(self):
            raise ValueError("decoding values that do not fit")

    class Unknown(sstq.FrameUnit):
        def privacy_loss(self):
            return float("nan")

    with pytest.raises(ValueError, match="decoding values that do not fit"):
        Wrong(8, 2.0)
    with pytest.raises(ValueError, match="spends nan, above epsilon"):
        Unknown(8, 2.0)


def test_what_json_says_is_checked_like_what_a_constructor_solved():
    data = json.loads(sstq.FrameUnit(8, 2.0).to_json())
    with pytest.raises(ValueError, match=r"above epsilon = 1\.5"):
        sstq.from_json(json.dumps(data | {"epsilon": 1.5}))
