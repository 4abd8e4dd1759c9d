"""What malicious clients can do, by attack: crafted messages go through the real checks and the real aggregators.

Bounds are inequalities that hold for every message, so random attacks never fail by chance. The two z-tests use
|z| < 6 (false-failure rate 2e-9 each).
"""

import numpy as np
import pytest

import sstq
from sstq.inputs.trial_vectors import structured_vectors
from sstq.planning.poisoning import poisoning_bound
from tests.contract.cases import CASES, NOT_LOCAL, RECORDS, build, read_in_turn

Z = 6.0
CLIP = 0.5


def mean_of(mechanism, columns):
    """What the mechanism's own aggregator makes of crafted messages, after its own checks."""
    columns = tuple(
        np.asarray(c).astype(f.dtype)
        for f, c in zip(mechanism.layout.fields, columns, strict=True)
    )
    raw = mechanism.layout.pack(columns)
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.messages_from_bytes(raw, len(columns[0])))
    if mechanism.delta > 0:  # a trusted aggregator's, which adds noise once
        aggregator.close(rng=0)
    return aggregator.mean().value


def random_messages(mechanism, count, rng):
    """Valid messages of no client: uniform integers, and floats as long as they may be."""
    columns = []
    for field in mechanism.layout.fields:
        shape = (count, field.count) if field.count > 1 else (count,)
        if field.dtype.kind == "f":
            values = rng.standard_normal(shape)
            if field.name == "norm":
                values = np.ones(shape)
            elif mechanism.name == "privunitg":
                values *= (
                    mechanism.largest_norm
                    * (1 - 1e-6)
                    / np.linalg.norm(values, axis=1, keepdims=True)
                )
            else:
                values /= np.linalg.norm(values, axis=1, keepdims=True)
        else:
            values = rng.integers(0, field.limit, size=shape, dtype=np.uint64)
        columns.append(values.astype(field.dtype))
    if mechanism.name == "sstq":
        columns[0] = rng.choice(
            np.flatnonzero(mechanism.channel.used), size=count
        ).astype(columns[0].dtype)
    if mechanism.name == "groupunit" and mechanism.share_sets is not None:
        columns[0] %= mechanism.share_sets.codes
    return mechanism.messages_from_columns(tuple(columns), simulated=True)


@pytest.mark.parametrize("case", CASES)
def test_no_valid_message_is_larger_than_the_bound(case, seed):
    mechanism = build(case, clip=CLIP)
    messages = random_messages(mechanism, 2000, np.random.default_rng(seed))
    norms = np.linalg.norm(mechanism.decode(messages), axis=1)
    assert norms.max() <= mechanism.largest_message() * (1 + 1e-6)


@pytest.mark.parametrize("case", CASES)
def test_no_honest_expectation_is_larger_than_the_bound(case, seed):
    mechanism = build(case, clip=CLIP)
    x = np.concatenate(
        list(structured_vectors(mechanism.dim, np.random.default_rng(seed)).values())
    )
    rows = CLIP * np.concatenate([x, 5 * x])
    means, _ = mechanism.row_error(read_in_turn(mechanism, rows))
    # A certified representation is exact to 1e-3 of clip.
    assert (
        np.linalg.norm(means, axis=1).max()
        <= mechanism.largest_honest_mean() + 1e-3 * CLIP
    )


def longest_row(mechanism):
    norms = mechanism.frame.squared_row_norms()
    return int(np.argmax(norms))


def worst_sstq(mechanism, count):
    values = np.where(mechanism.channel.used, np.abs(mechanism.decoding_values), 0)
    return np.full(count, np.argmax(values)), np.full(count, longest_row(mechanism))


def worst_frameunit(mechanism, count):
    return (np.full(count, 2 * longest_row(mechanism)),)


def worst_sqkr(mechanism, count):
    index = np.full((count, mechanism.k), longest_row(mechanism))
    return np.full(count, (1 << mechanism.k) - 1), index if mechanism.k > 1 else index[
        :, 0
    ]


def hadamard_signs(frame):
    """A column of the frame is a vector of ±1/√d: signs that add up to √d·N/d times a basis vector."""
    return (frame.analyze(np.eye(frame.dim)[:1])[0] > 0).astype(np.int64)


def worst_dense(mechanism, count):
    return (np.tile(hadamard_signs(mechanism.frame), (count, 1)),)


def unit_vectors(mechanism, count):
    length = 1 + 0.999e-3
    return (np.tile(length * np.eye(mechanism.dim)[0], (count, 1)),)


WORST = {
    "sstq": worst_sstq,
    "sstq/metric-aware-unbiased": worst_sstq,
    "sstq/paper": worst_sstq,
    "frameunit": worst_frameunit,
    "vqsgd": lambda mechanism, count: (np.zeros(count),),
    "sqkr": worst_sqkr,
    "sqkr/two": worst_sqkr,
    "sqkr/dense": worst_dense,
    "privunit": unit_vectors,
    "privunitg": lambda mechanism, count: (
        np.full(
            (count, mechanism.dim),
            (1 - 1e-6) * mechanism.largest_norm / mechanism.dim**0.5,
        ),
    ),
    "clean": lambda mechanism, count: (np.tile(np.eye(mechanism.dim)[0], (count, 1)),),
}


@pytest.mark.parametrize("case", WORST)
def test_the_worst_message_attains_the_bound(case):
    mechanism = build(case, clip=CLIP)
    mean = mean_of(mechanism, WORST[case](mechanism, 10))
    assert np.linalg.norm(mean) == pytest.approx(mechanism.largest_message(), rel=1e-4)


@pytest.mark.parametrize("case", ["sstq", "vqsgd", "sqkr", "privunit", "clean"])
def test_attackers_opposite_to_honest_clients_attain_the_shift(case):
    """Honest clients all hold −clip times the direction of the attack; their expectation is exact."""
    mechanism = build(case, clip=CLIP)
    attack = mean_of(mechanism, WORST[case](mechanism, 10))
    honest, _ = mechanism.row_error(-CLIP * attack[None] / np.linalg.norm(attack))
    for fraction in (0.01, 0.3):
        shift = np.linalg.norm(
            (1 - fraction) * honest[0] + fraction * attack - honest[0]
        )
        bound = poisoning_bound(mechanism, fraction)
        assert shift == pytest.approx(bound.shift, rel=2e-3)
        assert shift <= bound.shift * (1 + 1e-4)


def test_bad_fractions_are_refused():
    with pytest.raises(
        ValueError, match=r"fraction must be a number in \[0, 1\], got 1.5"
    ):
        poisoning_bound(build("sstq"), 1.5)


def test_every_mechanism_of_the_registry_has_a_bound():
    assert {case.split("/")[0] for case in [*CASES, *RECORDS, *NOT_LOCAL]} == set(
        sstq.list_mechanisms()
    )
    for case in CASES:
        bound = poisoning_bound(build(case), 0.01)
        assert 0 < bound.input_shift <= bound.shift <= bound.message
        assert poisoning_bound(build(case), 0.0).shift == 0
