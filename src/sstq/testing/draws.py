"""Checks of where randomness comes from, and of privacy."""

import os
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from sstq.audit import check_encoder, empirical_audit
from sstq.exactness import log_upper
from sstq.mechanisms.base import Mechanism
from sstq.messages.batch import Messages
from sstq.randomness.secret import SecureBits
from sstq.testing.tools import require, require_alike, some_messages


def check_randomness(mechanism: Mechanism, seed: int) -> None:
    """Seeds are reproducible and marked; otherwise all randomness is words of the operating system."""
    require_alike(mechanism, mechanism, seed)
    require(
        some_messages(mechanism, 64, seed).simulated,
        "messages from a seed must be marked as simulated",
    )
    drawn: list[Any] = []

    def drawing(count: int) -> Any:
        drawn.append(np.frombuffer(os.urandom(8 * count), dtype=np.uint64))
        return drawn[-1]

    fresh = _from_words(mechanism, drawing)
    require(
        not fresh.simulated, "messages from entropy must not be marked as simulated"
    )
    again = _from_words(mechanism, lambda _: drawn.pop(0))
    require(
        fresh.to_bytes() == again.to_bytes(),
        "the same words of the operating system must give the same messages",
    )
    # No law has one outcome only for both ends of every draw and some words between them.
    low = _from_words(mechanism, lambda count: np.zeros(count, dtype=np.uint64))
    high = _from_words(
        mechanism, lambda count: np.full(count, 2**64 - 1, dtype=np.uint64)
    )
    different = {messages.to_bytes() for messages in (low, fresh, high)}
    require(
        len(different) > 1, "messages must be drawn from words of the operating system"
    )


def _from_words(mechanism: Mechanism, words: Callable[[int], Any]) -> Messages:
    """Messages of 64 people while this is what the operating system's generator returns."""
    with patch.object(SecureBits, "words", lambda _, count: words(count).copy()):
        return some_messages(mechanism, 64)


def check_privacy(mechanism: Mechanism, seed: int) -> None:
    """The encoder of an exact mechanism follows its law, whose ratios are within e^ε.

    Of others no pair of inputs can be told apart better than ε allows, as far as samples can tell.
    """
    if mechanism.exact:
        report = check_encoder(mechanism, rng=seed)
        require(not report.problem, report.problem)
        bound = log_upper(max(report.ratio, mechanism.law().ratio()))
    else:
        bound = empirical_audit(
            mechanism, samples=16_000, alpha=1e-9, rng=seed
        ).lower_bound
    require(
        bound <= mechanism.epsilon,
        f"ε is at least {bound:.3f}, not {mechanism.epsilon}",
    )
