"""ε of the integers themselves: the largest ratio of probabilities, and rational bounds of its logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from sstq.exactness import exp_lower
from sstq.mechanisms import Mechanism
from sstq.mechanisms.laws import Law

__all__ = ["ExactAudit", "audit_law", "exact_audit", "log_interval"]

# The logarithm is taken to 60 digits and its bounds are given to 30.
_WORKING, _SHOWN = 60, 30


@dataclass(frozen=True)
class ExactAudit:
    """What the integers of a mechanism say of its privacy.

    Attributes:
        law: the integers.
        epsilon: the budget that the mechanism states, taken as the exact value of the double.
        ratio: the largest ratio of the probabilities of one message for two inputs, exactly.
        lower: a decimal number, hence a rational one, that is at most log(ratio).
        upper: one that is at least log(ratio).
    """

    law: Law
    epsilon: float
    ratio: Fraction
    lower: Decimal
    upper: Decimal

    @property
    def holds(self) -> bool:
        """Whether the ratio is at most e^ε, in exact arithmetic."""
        return self.ratio <= exp_lower(self.epsilon)


def exact_audit(mechanism: Mechanism) -> ExactAudit:
    """The exact ε of a mechanism over all inputs; ValueError for one that has no integer weights.

    Examples:
        >>> import sstq
        >>> audit = exact_audit(sstq.mechanism("frameunit", dim=100, epsilon=1.0))
        >>> audit.holds, audit.upper - audit.lower < Decimal("1e-28")
        (True, True)
        >>> exact_audit(sstq.mechanism("privunit", dim=100, epsilon=1.0))
        Traceback (most recent call last):
        ...
        ValueError: privunit sends continuous values, whose privacy holds up to floating point only (exact=False): ...
    """
    return audit_law(mechanism.law(), mechanism.epsilon)


def audit_law(law: Law, epsilon: float) -> ExactAudit:
    """The exact ε of a law, beside the ε that is stated for it.

    Examples:
        >>> from sstq.mechanisms.laws import FlatLaw
        >>> audit_law(FlatLaw(2, 3 << 60, 1 << 60), 1.0).holds
        False
    """
    ratio = law.ratio()
    return ExactAudit(law, epsilon, ratio, *log_interval(ratio))


def log_interval(ratio: Fraction) -> tuple[Decimal, Decimal]:
    """Two decimal numbers of 30 digits with log(ratio) between them, for a ratio of at least 1.

    Examples:
        >>> log_interval(Fraction(2))
        (Decimal('0.693147180559945309417232121458'), Decimal('0.693147180559945309417232121459'))
        >>> log_interval(Fraction(1))
        (Decimal('0'), Decimal('0'))
    """
    if ratio < 1:
        raise ValueError(f"ratio must be at least 1, got {ratio}")
    if ratio == 1:
        return Decimal(0), Decimal(0)
    top, bottom = Decimal(ratio.numerator), Decimal(ratio.denominator)
    down, up = (Context(prec=_WORKING, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING))
    # ln is within half a unit of the last place, so one whole unit settles the direction.
    least = down.next_minus(down.ln(down.divide(top, bottom)))
    most = up.next_plus(up.ln(up.divide(top, bottom)))
    return Context(prec=_SHOWN, rounding=ROUND_FLOOR).plus(least), Context(prec=_SHOWN, rounding=ROUND_CEILING).plus(
        most
    )
