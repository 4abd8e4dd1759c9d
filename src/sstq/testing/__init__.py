"""The contract of mechanisms: what a third party's mechanism must pass, as ours do.

Each check takes a mechanism and a seed, and raises an AssertionError that says what is wrong, or returns why there is
nothing to check. What an error says is up to the mechanism: only its type is checked.

A correct mechanism fails `check_mechanism` with probability below 10^-6: it takes fewer than 100 statistical tests, of
which each fails falsely with probability below 10^-9 (`margin_of`), and nothing else is left to chance. A test compares
4,000 answers of one person with what is stated. At ε = 2 in 6 dimensions it finds a bias of 0.4 standard deviations of
one answer, and an expected squared error that is half or twice the true one. Answers that are rare and long take more:
of a survey with vectors, a bias of 1 and an error of three times. Privacy of exact mechanisms is no matter of samples.

Examples:
    >>> import sstq
    >>> check_mechanism(sstq.FrameUnit(dim=6, epsilon=2.0, frame_size=8), seed=1)
    {}
    >>> check_mechanism(sstq.Frequencies(categories=3, epsilon=2.0), seed=1)
    {}
"""

import secrets
from collections.abc import Callable

from sstq.mechanisms.base import Mechanism
from sstq.testing import accuracy, draws, forms
from sstq.testing.studies import check_study
from sstq.testing.tools import run_check

__all__ = ["CHECKS", "check_mechanism", "check_study"]


def check_mechanism(mechanism: Mechanism, seed: int | None = None) -> dict[str, str]:
    """Run every check on a registered mechanism; AssertionError with the check's name if one fails.

    Small dimensions are best: some checks encode thousands of vectors. If the mechanism is exact, its encoder is
    compared with its law; otherwise ε-LDP is checked on samples, which find gross errors only.

    Args:
        mechanism: the mechanism, with the options that matter.
        seed: that of the random vectors; a fresh one unless given. It is part of the error.

    Returns:
        Why checks were left out, by their names.
    """
    seed = secrets.randbits(32) if seed is None else seed
    reasons = {
        check.__name__: run_check(check, mechanism, seed=seed) for check in CHECKS
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


CHECKS: tuple[Callable[[Mechanism, int], str | None], ...] = (
    forms.check_options,
    forms.check_attributes,
    forms.check_bad_inputs,
    forms.check_immutable,
    forms.check_bits,
    forms.check_json,
    forms.check_tampered_json,
    draws.check_randomness,
    accuracy.check_estimates,
    draws.check_privacy,
    accuracy.check_aggregation,
)
"""What `check_mechanism` runs."""
