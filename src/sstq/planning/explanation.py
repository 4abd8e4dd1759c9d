"""Why this mechanism, and what to mind: two sentences."""

from __future__ import annotations

import math

from sstq.mechanisms.frameunit.bias import BIAS_SHARE
from sstq.planning.families import most_rrsc_bits, rrsc
from sstq.planning.offers import Offer, Terms
from sstq.planning.sstqs import Strata

__all__ = ["explain"]

# RRSC is mentioned up to so many bits; beyond them it is hardly better than FrameUnit.
_RRSC_BITS = 8
# From a frame for every so many clients on, the transforms are most of the server's work.
_MANY_FRAMES = 10
_FRESH = "take a fresh frame_seed every round, so that what is left averages out"


def explain(terms: Terms, epsilon: float, clients: int, offers: list[Offer], *, shortest: bool) -> str:
    """Two sentences on the first of the offers: what it has over the others, and its price.

    Args:
        terms: what was given.
        epsilon: ε that is allowed.
        clients: n.
        offers: the choice first.
        shortest: whether the shortest message was asked for.
    """
    return f"{_reason(terms, offers, shortest)} {_price(terms, epsilon, clients, offers[0], shortest)}"


def _reason(terms: Terms, offers: list[Offer], shortest: bool) -> str:
    best = offers[0]
    coin = {"private": " with a private coin", "public": " with a public coin", "any": ""}[terms.coin]
    if shortest:
        return f"{best.label} is the shortest message{coin} that has the target error: {_of_clip(best.mse)}."
    within = "" if terms.bits is None else f" within {terms.bits} bits"
    reason = f"{best.label} has the least predicted error{within}{coin}: {_of_clip(best.mse)}"
    others = [offer for offer in offers[1:] if offer.name != best.name] or offers[1:]
    return f"{reason}; {others[0].label} would have {_of_clip(others[0].mse)}." if others else f"{reason}."


def _price(terms: Terms, epsilon: float, clients: int, best: Offer, shortest: bool) -> str:
    if best.name == "frameunit":
        return _price_of_frames(terms, epsilon, clients, best, shortest)
    if best.name == "rrsc":
        return (
            f"Its server rebuilds {2**best.bits} vectors for each message, which is Θ(d·4^{best.bits}) work; FrameUnit "
            "with as many bits has a few per cent more error and O(1)."
        )
    if best.coin == "public" and best.name == "sstq":
        unlike = Strata.of(terms.dim, epsilon, best.arguments["bits"], 0.0).offer(clients)
        rest = "" if unlike is None else f": clients with nothing in common would have {_of_clip(unlike.mse)}"
        return f"It counts on vectors with a cosine of {terms.alike:g} to their common direction{rest}."
    if best.name == "sstq":
        return (
            "It is unbiased in every frame, so that its error falls with every client, but encoding takes "
            f"{best.arguments['steps']} steps over {best.arguments['frame_size']} coefficients."
        )
    return "It is unbiased for every vector, and its server works O(1) a message."


def _price_of_frames(terms: Terms, epsilon: float, clients: int, best: Offer, shortest: bool) -> str:
    frames = best.arguments.get("frames", 1)
    bias = _of_clip(best.bias2)
    if best.coin == "private" and frames < best.wanted_frames:
        more = best.bits + (best.wanted_frames // frames).bit_length() - 1
        room = "no more frames are needed for that" if shortest else "the bits have no room for more frames"
        less = "" if best.epsilon == epsilon else f" and only {best.epsilon:g} of ε is spent, as more would add to it"
        return (
            f"Its bias, {bias}, exceeds {100 * BIAS_SHARE:.0f} % of the error, since {room}{less}; "
            f"frames={best.wanted_frames}, with {more} bits, would do."
        )
    if best.coin == "public" and best.bits <= min(_RRSC_BITS, most_rrsc_bits(terms.dim)):
        better = 1 - math.sqrt(rrsc(terms.dim, best.epsilon, best.bits).variance / clients / best.mse)
        if better > 0:
            return (
                f"RRSC with as many bits would have {100 * better:.1f} % less error for Θ(d·4^{best.bits}) work a "
                f"message at the server instead of O(1); the bias of the frames is {bias}: {_FRESH}."
            )
    if frames > 1 and frames * _MANY_FRAMES > clients:
        return f"{frames} frames hold the bias at {bias}; the server works up to one transform a message for them."
    spread = "One frame holds" if frames == 1 else f"{frames} frames hold"
    return f"{spread} the bias at {bias}, little beside the noise; {_FRESH}."


def _of_clip(square: float) -> str:
    return f"{math.sqrt(square):.3g} of clip"
