"""The exact ε of a mechanism's integers, and certificates for reviewers who do not trust this library.

The largest ratio of probabilities is computed exactly; its logarithm has rational bounds. A certificate states both
with all the integers, as JSON; `docs/verify_certificate.py` checks it with the standard library alone.
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sstq.checks import check_argument
from sstq.exactness import exp_lower, log_interval, round_up
from sstq.files.strict_json import read_json
from sstq.mechanisms import Mechanism
from sstq.scalar.laws import EitherLaw, Law, law_from_dict

FORMAT = "sstq-certificate"
VERSION = 3
_DECIMAL = re.compile(r"[0-9]{1,2}(\.[0-9]{1,60})?")
_FIELDS = ["format", "version", "mechanism", "digest", "epsilon", "messages"]
_FIELDS += ["total", "decides", "law", "ratio", "interval"]


@dataclass(frozen=True)
class ExactAudit:
    """The privacy of a mechanism, from its integers.

    Attributes:
        law: the integers of one message.
        epsilon: the budget that the mechanism states for one message, taken as the exact value of the double.
        messages: m, the messages per person.
        ratio: the largest ratio of the probabilities of one message for two inputs, exactly.
        lower, upper: decimal numbers, hence rational ones, with log(ratio) between them.
    """

    law: Law | EitherLaw
    epsilon: float
    messages: int
    ratio: Fraction
    lower: Decimal
    upper: Decimal

    @property
    def holds(self) -> bool:
        """Whether the ratio is at most e^ε, in exact arithmetic."""
        return self.ratio <= exp_lower(self.epsilon)

    @property
    def total(self) -> float:
        """m·ε, rounded up: what a person spends, if somebody can tell which messages are theirs."""
        return round_up(self.messages * Fraction(self.epsilon))


def exact_audit(mechanism: Mechanism) -> ExactAudit:
    """Compute the exact ε of a message over all inputs; ValueError for a mechanism without integer weights.

    Examples:
        >>> import sstq
        >>> audit = exact_audit(sstq.mechanism("frameunit", dim=100, epsilon=1.0))
        >>> audit.holds, audit.upper - audit.lower < Decimal("1e-28")
        (True, True)
        >>> exact_audit(sstq.mechanism("frameunit", dim=100, epsilon=3.0, messages=16)).total
        48.0
    """
    return _audit(mechanism.law(), mechanism.epsilon, mechanism.messages)


def _audit(law: Law | EitherLaw, epsilon: float, messages: int) -> ExactAudit:
    ratio = law.ratio()
    return ExactAudit(law, epsilon, messages, ratio, *log_interval(ratio))


def certify(mechanism: Mechanism) -> str:
    """Return the certificate of a mechanism as JSON text; ValueError for a mechanism that is not exactly ε-LDP.

    Examples:
        >>> import sstq
        >>> certificate = certify(sstq.mechanism("vqsgd", dim=10, epsilon=1.0))
        >>> verify(certificate).holds
        True
        >>> verify(certificate.replace('"epsilon": 1.0', '"epsilon": 0.5'))
        Traceback (most recent call last):
        ...
        ValueError: the certificate's integers spend at least 0.99999..., more than its epsilon = 0.5
    """
    audit = exact_audit(mechanism)
    if not audit.holds:
        raise ValueError(
            f"{mechanism.name} spends at least {audit.lower}, more than its epsilon = {audit.epsilon!r}"
        )
    decides = mechanism.layout.fields[0].name
    interval = [str(audit.lower), str(audit.upper)]
    spent = (
        audit.epsilon,
        audit.messages,
        audit.total,
        decides,
        audit.law.to_dict(),
        _written(audit.ratio),
        interval,
    )
    claim = (FORMAT, VERSION, mechanism.name, mechanism.digest(), *spent)
    return json.dumps(dict(zip(_FIELDS, claim, strict=True)), indent=1) + "\n"


def verify(text: str, mechanism: Mechanism | None = None) -> ExactAudit:
    """Check a certificate and, if a mechanism is given, that it certifies it; ValueError says what is wrong.

    Everything is computed again from the integers and compared with the certificate.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("vqsgd", dim=10, epsilon=1.0)
        >>> verify(certify(mechanism), mechanism).holds
        True
    """
    try:
        data = read_json(text)
    except ValueError as error:
        raise ValueError(f"the certificate is not JSON: {error}") from error
    if (
        not isinstance(data, dict)
        or data.get("format") != FORMAT
        or data.get("version") != VERSION
    ):
        raise ValueError(
            f"format must be {FORMAT!r}, version {VERSION}: this is not a certificate"
        )
    if set(data) != set(_FIELDS):
        raise ValueError(
            f"a certificate must have the fields {', '.join(_FIELDS)}, got {', '.join(map(str, data))}"
        )
    epsilon, messages = (
        check_argument(name, data[name]) for name in ("epsilon", "messages")
    )
    audit = _audit(law_from_dict(data["law"]), epsilon, messages)
    if not audit.holds:
        spent = f"at least {audit.lower}, more than its epsilon = {audit.epsilon!r}"
        raise ValueError(f"the certificate's integers spend {spent}")
    if data["total"] != audit.total or isinstance(data["total"], bool):
        raise ValueError(
            f"the certificate's total must be {audit.total!r}, messages times epsilon, got {data['total']!r}"
        )
    if data["ratio"] != _written(audit.ratio):
        raise ValueError("the certificate's ratio does not match its integers")
    if not _encloses(data["interval"], audit):
        raise ValueError(
            f"the certificate's interval {data['interval']} does not enclose the logarithm of its ratio"
        )
    if (
        mechanism is not None
        and json.loads(certify(mechanism)) | {"interval": data["interval"]} != data
    ):
        raise ValueError("the certificate is for another mechanism")
    return audit


def _written(ratio: Fraction) -> list[str]:
    """Numerator and denominator as decimal strings."""
    return [str(part) for part in ratio.as_integer_ratio()]


def _encloses(interval: Any, audit: ExactAudit) -> bool:
    """Whether two strings are decimal bounds of log(ratio), of at most 60 digits; the script has the same rule."""
    ends = interval if isinstance(interval, list) else []
    if len(ends) != 2 or not all(
        isinstance(end, str) and _DECIMAL.fullmatch(end) for end in ends
    ):
        return False
    return Decimal(ends[0]) <= audit.lower and audit.upper <= Decimal(ends[1])
