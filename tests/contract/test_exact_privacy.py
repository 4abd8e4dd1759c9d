"""Every private mechanism, for any pair of inputs: exact enumeration of discrete messages, density ratios of others.

The enumerations drive the encoder itself with scripted words; they are written where the mechanism's own tests are. A
mechanism that is registered without one fails `test_every_private_mechanism_is_enumerated`.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import sstq
from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.inputs.trial_vectors import structured_vectors
from tests.baselines import test_sqkr, test_vqsgd
from tests.contract.cases import CASES, RECORDS, build, build_small, each
from tests.mechanisms import (
    test_frameunit,
    test_frequencies,
    test_groupunit,
    test_survey,
)
from tests.scripted import ScriptedBits, largest_ratio, law_of

WORDS = [0, 1 << 61, 1 << 63, 5 << 61, (1 << 64) - 1]


def unit_vectors(dim):
    """Structured directions with their opposites, short ones and zero."""
    rows = np.concatenate(
        [v[:1] for v in structured_vectors(dim, np.random.default_rng(1)).values()]
    )
    return np.concatenate([rows, -rows, 0.3 * rows[:2], np.zeros((1, dim))])


def sstq_laws(mechanism):
    """Laws of (code) given index and rounding words, from both ends of every step that any token's row has."""
    breaks = sorted(
        {
            0,
            *np.cumsum(np.asarray(mechanism.channel.matrix, dtype=object), axis=1)
            .ravel()
            .tolist(),
        }
    )
    ranges = [(low, high - 1) for low, high in itertools.pairwise(breaks)]
    for x, index, rounding in itertools.product(
        unit_vectors(mechanism.dim), WORDS[::2], WORDS
    ):
        ends = np.array([end for pair in ranges for end in pair], dtype=np.uint64)
        words = np.stack(
            [
                np.full(len(ends), index, np.uint64),
                np.full(len(ends), rounding, np.uint64),
                ends << np.uint64(2),
            ],
            1,
        )
        rows = mechanism.clip * np.tile(x, (len(ends), 1))
        codes = mechanism.encode_rows(rows, ScriptedBits(words), None)[0]
        np.testing.assert_array_equal(codes[::2], codes[1::2])
        law = [Fraction(0)] * mechanism.channel.shape[1]
        for code, (low, high) in zip(codes[::2], ranges, strict=True):
            law[code] += Fraction(high - low + 1, TOTAL)
        yield law


def vqsgd_laws(mechanism):
    for x, which, spread in itertools.product(
        unit_vectors(mechanism.dim), WORDS, WORDS[::2]
    ):
        yield test_vqsgd.output_distribution(mechanism, x, which, spread)


def sqkr_laws(mechanism):
    vectors = unit_vectors(mechanism.dim)
    if mechanism.variant == "dense":
        small = sstq.mechanism(
            "sqkr", dim=2, epsilon=mechanism.epsilon, variant="dense", frame_size=4
        )
        rounding = np.full(2, 1 << 62, dtype=np.uint64)
        for x in unit_vectors(2):
            yield test_sqkr.dense_distribution(small, x, rounding)
        return
    for x, word in itertools.product(vectors, WORDS):
        yield test_sqkr.subsampled_distribution(
            mechanism, x, np.full(2 * mechanism.k, word, dtype=np.uint64)
        )[0]


def frameunit_laws(mechanism):
    data = mechanism.solved.to_dict()
    options = {name: data[name] for name in ("dim", "epsilon", "frames")}
    small = sstq.mechanism("frameunit", frame_size=8, frame_seed=3, **options)
    for x, flip in itertools.product(unit_vectors(mechanism.dim), (0, (1 << 64) - 1)):
        yield test_frameunit.output_distribution(small, x, flip)


def groupunit_laws(mechanism):
    for group, x in itertools.product(
        range(mechanism.groups), unit_vectors(mechanism.dim)
    ):
        yield test_groupunit.output_distribution(mechanism, x, group)


def frequencies_laws(mechanism):
    for label in range(mechanism.categories):
        yield test_frequencies.output_distribution(mechanism, label)


@pytest.mark.parametrize("case", ["survey", "survey/messages"])
def test_answers_to_every_question_are_within_e_to_the_epsilon(case):
    """A message tells its question, and each has laws of its own."""
    survey = build(case)
    for of_question in test_survey.laws(survey):
        assert largest_ratio(of_question) <= exp_lower(survey.epsilon)


def coordinate_sign_laws(mechanism):
    """The coordinate is drawn without looking at the data, so the channel's rows are all laws."""
    for row in mechanism.draw.matrix.tolist():
        yield [Fraction(weight, TOTAL) for weight in row]


def hadamard_response_laws(mechanism):
    """The number that is sent, over both words of the draw."""
    for label in range(mechanism.categories):
        law = law_of(mechanism, mechanism.draw, np.array([label]), 0)
        yield [law.get(number, Fraction(0)) for number in range(mechanism.draw.size)]


LAWS = {
    "sstq": sstq_laws,
    "frameunit": frameunit_laws,
    "groupunit": groupunit_laws,
    "frequencies": frequencies_laws,
    "vqsgd": vqsgd_laws,
    "sqkr": sqkr_laws,
    "coordinate-sign": coordinate_sign_laws,
    "hadamard-response": hadamard_response_laws,
}
CAPS = ("privunit", "privunitg", "projunit")


def test_every_private_mechanism_is_enumerated():
    for case in [*CASES, *RECORDS]:
        mechanism = build(case)
        assert mechanism.name in ({*LAWS, "survey"} if mechanism.exact else CAPS)


@pytest.mark.parametrize(
    "case", each(case for case in [*CASES, *RECORDS] if case.split("/")[0] in LAWS)
)
def test_discrete_messages_are_within_e_to_the_epsilon(case):
    mechanism = build_small(case)
    laws = list(LAWS[mechanism.name](mechanism))
    assert all(sum(law) == 1 for law in laws)
    assert 1 < largest_ratio(laws) <= exp_lower(mechanism.epsilon)


@pytest.mark.parametrize("case", [case for case in CASES if case.split("/")[0] in CAPS])
def test_densities_are_within_e_to_the_epsilon(case):
    """Two levels of density, both positive, whatever the direction; where each holds is tested with the mechanism."""
    cap = build(case).cap
    mass = Fraction(cap.mass, TOTAL)
    inside = Fraction(cap.inside, TOTAL)
    levels = inside / mass, (1 - inside) / (1 - mass)
    assert min(levels) > 0
    assert 1 < levels[0] / levels[1] <= exp_lower(build(case).epsilon)
    assert build(case).privacy_loss() == log_upper(levels[0] / levels[1])


def test_a_modest_overspend_is_found():
    mechanism = build("sstq")
    object.__setattr__(
        mechanism, "channel", sstq.scalar.channels.flat_channel_of_size(4, 2.1)
    )
    assert largest_ratio(list(sstq_laws(mechanism))) > exp_lower(mechanism.epsilon)
