import json
import warnings

import numpy as np
import pandas
import pytest

import sstq
from tests.contract.cases import reread

BOUNDS = {"age": (0, 110), "pressure": (60, 220), "hba1c": (3, 15), "bmi": (10, 60)}
MECHANISMS = {"frameunit": {"frames": 4096}, "sstq": {"bits": 2}}


def people(count, seed):
    return np.array([62, 130, 6.1, 27]) + np.random.default_rng(seed).standard_normal(
        (count, 4)
    ) * [10, 15, 1, 4]


class Table:
    """A table with named columns, as pandas and Polars have them."""

    def __init__(self, columns, values):
        self.columns = columns
        self.values = values

    def __getitem__(self, names):
        return self.values[:, [self.columns.index(name) for name in names]]


@pytest.mark.parametrize("name", MECHANISMS)
def test_means_are_in_the_units_that_went_in(name, seed):
    """4 z-tests at |z| < 6, false with probability 8e-9."""
    mechanism = sstq.mechanism(
        name, dim=4, epsilon=3.0, bounds=BOUNDS, **MECHANISMS[name]
    )
    x = people(40_000, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        messages = mechanism.encode(x, rng=seed)
    aggregator = mechanism.aggregator().update(messages)
    estimate = aggregator.mean()
    assert np.all(np.abs(estimate.value - x.mean(axis=0)) < 6 * estimate.stderr)
    assert np.all(estimate.stderr < [2, 3, 0.3, 1])
    assert estimate.names == tuple(BOUNDS)
    shuffled = Table(
        ["bmi", "id", "hba1c", "pressure", "age"], np.insert(x[:, ::-1], 1, 7.0, axis=1)
    )
    assert mechanism.encode(shuffled, rng=seed).to_bytes() == messages.to_bytes()
    with pytest.raises(ValueError, match="got none called age"):
        mechanism.encode(Table(["bmi", "hba1c", "pressure"], x[:, :3]))


@pytest.mark.parametrize("name", MECHANISMS)
def test_bounds_are_part_of_the_json_only_if_given(name):
    plain = sstq.mechanism(name, dim=4, epsilon=3.0)
    assert "bounds" not in json.loads(plain.to_json())
    bounded = plain.replace(bounds=BOUNDS)
    assert bounded != plain
    again = sstq.from_json(bounded.to_json())
    assert again == bounded == eval(repr(bounded), {type(plain).__name__: type(plain)})  # noqa: S307
    assert again.replace(clip=2.0) == bounded.replace(clip=2.0)
    ends = np.array(list(BOUNDS.values()))
    assert [pair[1:] for pair in plain.replace(bounds=ends).bounds] == [
        tuple(pair) for pair in ends.tolist()
    ]
    for wrong in (
        [],
        [["a", 0, 1]],
        [["a", 1, 0]] * 4,
        [["a", 1, 1]] * 4,
        [[1, 0, 1]] * 4,
        [["a", 0]] * 4,
        "word",
        3,
    ):
        with pytest.raises(ValueError, match="bounds"):
            reread(bounded, bounds=wrong)


@pytest.mark.parametrize(
    "bounds",
    [
        {"age": (0, 1)},
        3,
        [(0, 1)] * 3,
        [(1, 0)] * 4,
        dict.fromkeys("abcd", (0, np.nan)),
        dict.fromkeys("abcd"),
    ],
)
def test_bad_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="bounds must"):
        sstq.FrameUnit(4, 1.0, bounds=bounds)


def test_values_beyond_the_bounds_count_as_their_ends():
    mechanism = sstq.FrameUnit(4, 1.0, bounds=BOUNDS)
    ends = np.array([[110.0, 60.0, 15.0, 10.0]])
    far = np.array([[1e9, -1e9, 1e9, -1e9]])
    assert (
        mechanism.encode(far, rng=1).to_bytes()
        == mechanism.encode(ends, rng=1).to_bytes()
    )


def test_clipping_is_said_where_the_vectors_are():
    mechanism = sstq.FrameUnit(4, 3.0)
    x = people(1000, 1)
    with pytest.warns(
        sstq.ClippedWarning, match="100 % of the vectors are longer than clip = 1"
    ) as told:
        mechanism.encode(x, rng=1)
    assert told[0].filename == __file__
    short = x / np.linalg.norm(x, axis=1, keepdims=True)
    short[:40] *= 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism.encode(short, rng=1)
        mechanism.encode(x[:19], rng=1)


def test_an_estimate_as_long_as_clip_says_so():
    mechanism = sstq.SSTQ(4, 3.0, bits=2)
    for scale, said in ((1.0, True), (0.005, False)):
        aggregator = mechanism.aggregator().update(
            mechanism.encode(scale * people(20_000, 2), rng=2)
        )
        assert ("most vectors are longer than clip" in aggregator.mean().note) is said


def test_estimates_are_arrays_and_tables():
    estimate = sstq.Estimate(
        np.array([1.0, 2.0]), np.array([0.1, 0.2]), 100, names=("a", "b")
    )
    assert np.asarray(estimate).tolist() == [1.0, 2.0]
    assert (np.asarray(estimate, dtype=np.float32) - 1).tolist() == [0.0, 1.0]
    frame = estimate.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc["b", "mean"] == 2.0


def test_bytes_are_not_messages():
    with pytest.raises(TypeError, match="with mechanism"):
        sstq.FrameUnit(4, 1.0).aggregator().update(b"raw")
