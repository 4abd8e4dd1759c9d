"""The families that may be chosen: exactly private, local, and not worse than another in every respect.

MMRC and compressed PrivUnitG are left out, because FrameUnit with as many public bits has less error, or the same to
1 %, and a faster server; so is PrivUnit with its kin, which is private up to floating point only and not better.
"""

from __future__ import annotations

from collections.abc import Iterable

from sstq.mechanisms.base import Coin
from sstq.mechanisms.candidates.rrsc import RRSC
from sstq.mechanisms.flat_response import gain
from sstq.mechanisms.sqkr.mechanism import SQKR
from sstq.mechanisms.vqsgd import VqSGD
from sstq.planning import frameunits, sstqs
from sstq.planning.offers import Family, Offer, Terms, Unbiased, fewest_bits

__all__ = ["COINS", "SERVERS", "families", "most_rrsc_bits", "offers", "rrsc"]

COINS = ("private", "public", "any")
"""Who may draw what is public."""

SERVERS = ("fast", "any")
"""How much work a message may be for the server: O(1), or any."""

_VQSGD_DIM_MAX = 2**24
_MOST_K = 16


def families(terms: Terms, epsilon: float) -> list[Family]:
    """All families that the terms allow, with ε to spend."""
    found: list[Family] = []
    if terms.coin == "private":
        found += frameunits.private_family(terms, epsilon)
        found += _sqkr(terms, epsilon, "private")
    else:
        # Behind a public coin nothing is gained by sending what the coin has chosen.
        found += frameunits.public_family(terms, epsilon)
        found += _sqkr(terms, epsilon, "public")
        found += sstqs.strata_families(terms, epsilon)
        if terms.server == "any":
            found += _rrsc_family(terms, epsilon)
    if terms.coin != "public":
        found += sstqs.private_families(terms, epsilon)
        found += _vqsgd(terms, epsilon)
    return found


def offers(found: Iterable[Family], clients: int, *, thorough: bool = False) -> list[Offer]:
    """What the families offer to so many clients, the least error first; of equal errors the shorter message.

    Unless `thorough`, some that cannot be the first are left out.
    """
    made: list[Offer] = []
    for family in found:
        best = min((offer.mse for offer in made), default=float("inf"))
        if family.worth_asking(best, clients, thorough=thorough) and (offer := family.offer(clients)) is not None:
            made.append(offer)
    return sorted(made, key=lambda offer: (offer.mse, offer.bits))


def rrsc(dim: int, epsilon: float, bits: int) -> Unbiased:
    """RRSC, the least error of its bits.

    Examples:
        >>> round(rrsc(10_000, 3.0, 3).variance / 10_000, 3)
        0.869
    """
    mechanism = RRSC(dim, epsilon, bits=bits)
    variance = mechanism.alignment**-2 - 1
    return Unbiased(f"RRSC, b = {bits}", RRSC.name, {"bits": bits}, epsilon, bits, "public", variance)


def most_rrsc_bits(dim: int) -> int:
    """The most bits that RRSC has in so many dimensions; 0 where it has none."""
    return min(12, dim.bit_length() - 1)


def _rrsc_family(terms: Terms, epsilon: float) -> list[Unbiased]:
    most = most_rrsc_bits(terms.dim) if terms.bits is None else min(most_rrsc_bits(terms.dim), terms.bits)
    return fewest_bits([rrsc(terms.dim, epsilon, bits) for bits in range(1, most + 1)], terms.slack)


def _sqkr(terms: Terms, epsilon: float, coin: Coin) -> list[Unbiased]:
    candidates = []
    for k in range(1, _MOST_K + 1):
        mechanism = SQKR(terms.dim, epsilon, k=k, coin=coin)
        if not terms.allows(mechanism.message_bits):
            break
        coder = mechanism.coder
        variance = (terms.dim * mechanism.decoding_scale) ** 2 * coder.sent + coder.cross - 1
        label = f"SQKR, {coin} coin, k = {k}"
        arguments = {"k": k, "coin": coin}
        candidates.append(Unbiased(label, SQKR.name, arguments, epsilon, mechanism.message_bits, coin, variance))
    return fewest_bits(candidates, terms.slack)


def _vqsgd(terms: Terms, epsilon: float) -> list[Unbiased]:
    if terms.dim > _VQSGD_DIM_MAX:
        return []
    mechanism = VqSGD(terms.dim, epsilon)
    if not terms.allows(mechanism.message_bits):
        return []
    variance = terms.dim / gain(mechanism.channel) ** 2 - 1
    return [Unbiased("vqSGD", VqSGD.name, {}, epsilon, mechanism.message_bits, "private", variance)]
