"""Tests of the tests: mechanisms that are broken on purpose must fail the suite."""

import numpy as np
import pytest

import sstq
from sstq.baselines.privunit import PrivUnit
from sstq.randomness.secret import bit_source
from sstq.scalar.channels import flat_channel_of_size
from sstq.testing import accuracy, draws
from tests.contract.cases import build


class DropsTheBand(PrivUnit):
    """Never answers within a band around the equator, as a published PrivUnit does: infinite ε."""

    def encode_rows(self, rows, source, report):
        (vectors,) = super().encode_rows(rows, source, report)
        while True:
            cosine = np.sum(vectors * rows, axis=1) / np.linalg.norm(rows, axis=1).clip(
                1e-9
            )
            inside = np.flatnonzero((np.abs(cosine) < 0.3) & np.any(rows, axis=1))
            if not len(inside):
                return (vectors,)
            vectors[inside] = super().encode_rows(rows[inside], source, report)[0]


class AsksForMoreOnZero(sstq.SSTQ):
    """Draws more random words for the zero vector, which shows from outside."""

    def encode_rows(self, rows, source, report):
        source.words(0 if np.any(rows) else 5)
        return super().encode_rows(rows, source, report)


class PromisesTooMuch(sstq.SSTQ):
    """States four fifths of its variance."""

    def row_error(self, rows):
        mean, variance = super().row_error(rows)
        return mean, 0.8 * variance


@pytest.mark.slow
def test_a_dropped_band_is_found(seed):
    mutant = DropsTheBand(dim=6, epsilon=2.0, clip=0.5)
    with pytest.raises(AssertionError, match="ε is at least"):
        draws.check_privacy(mutant, seed)


@pytest.mark.slow
def test_an_overspent_channel_is_found(seed):
    mutant = build("sstq")
    object.__setattr__(mutant, "channel", flat_channel_of_size(4, 2.001))
    with pytest.raises(AssertionError, match="ε is at least"):
        draws.check_privacy(mutant, seed)


@pytest.mark.slow
def test_an_encoder_that_leaves_its_law_is_found(seed):
    class SendsItsToken(sstq.SSTQ):
        """Sends a sign of the data in every other coordinate, whatever the channel draws."""

        def encode_rows(self, rows, source, report):
            code, index = super().encode_rows(rows, source, report)
            truth = (rows[:, 0] > 0).astype(code.dtype)
            return np.where(index % 2, truth, code), index

    mutant = SendsItsToken(dim=6, epsilon=2.0, bits=1)
    with pytest.raises(AssertionError, match="does not follow the law"):
        draws.check_privacy(mutant, seed)


@pytest.mark.parametrize("own", [3, None])
def test_randomness_of_its_own_is_found(own, seed):
    class DrawsItself(sstq.SSTQ):
        """Without a seed it draws from a generator that is not the operating system's: a fixed one, or another."""

        def encode_rows(self, rows, source, report):
            if not source.simulated:
                source.words(5)
                source = bit_source(np.random.default_rng(own))
            return super().encode_rows(rows, source, report)

    with pytest.raises(AssertionError, match="words of the operating system"):
        draws.check_randomness(DrawsItself(dim=6, epsilon=2.0), seed)


def test_a_bias_is_found(seed):
    class Biased(sstq.SSTQ):
        """Says that it is unbiased, and decodes too much."""

        def _decode(self, messages):
            return 1.3 * super()._decode(messages)

        def row_error(self, rows):
            mean, variance = super().row_error(rows)
            return 1.3 * mean, 1.69 * variance

    with pytest.raises(AssertionError, match="it says that it is unbiased"):
        accuracy.check_estimates(
            Biased(dim=6, epsilon=6.0, bits=2), seed, ("gaussian",)
        )


def test_a_wrong_expectation_is_found(seed):
    class SendsTheOpposite(sstq.SSTQ):
        def encode_rows(self, rows, source, report):
            return super().encode_rows(-rows, source, report)

    mutant = SendsTheOpposite(dim=6, epsilon=8.0, bits=4, clip=0.5)
    with pytest.raises(AssertionError, match="not the stated one"):
        accuracy.check_estimates(mutant, seed, ("gaussian",))


def test_data_dependent_randomness_is_found(seed):
    with pytest.raises(
        AssertionError, match="the number of random words depends on the vector"
    ):
        draws.check_privacy(AsksForMoreOnZero(dim=6, epsilon=2.0), seed)


def test_an_understated_error_is_found(seed):
    with pytest.raises(AssertionError, match="not the expected one"):
        accuracy.check_estimates(
            PromisesTooMuch(dim=6, epsilon=2.0, bits=2), seed, ("gaussian",), 20_000
        )
