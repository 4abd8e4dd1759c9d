"""Certificates: the integers of a mechanism's law and their ε, for a reviewer who does not trust this library.

A certificate is JSON. `docs/verify_certificate.py` checks it with the standard library alone.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from sstq.audit.exact import ExactAudit, audit_law, exact_audit
from sstq.exactness import check_epsilon
from sstq.files.strict_json import read_json
from sstq.mechanisms import Mechanism
from sstq.mechanisms.laws import law_from_dict

__all__ = ["FORMAT", "VERSION", "certify", "verify"]

FORMAT = "sstq-certificate"
VERSION = 1
_FIELDS = ("format", "version", "mechanism", "digest", "epsilon", "decides", "apart", "law", "ratio", "interval")


def certify(mechanism: Mechanism) -> str:
    """The certificate of a mechanism, as JSON text; ValueError for one that is not exactly ε-LDP.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("vqsgd", dim=10, epsilon=1.0)
        >>> verify(certify(mechanism), mechanism).holds
        True
    """
    audit = exact_audit(mechanism)
    if not audit.holds:
        raise ValueError(f"{mechanism.name} spends at least {audit.lower}, more than its epsilon = {audit.epsilon!r}")
    decides, *apart = (field.name for field in mechanism.layout.fields)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "mechanism": mechanism.name,
        "digest": mechanism.digest(),
        "epsilon": audit.epsilon,
        "decides": decides,
        "apart": apart,
        "law": audit.law.to_dict(),
        "ratio": [audit.ratio.numerator, audit.ratio.denominator],
        "interval": [str(audit.lower), str(audit.upper)],
    }
    return json.dumps(document, indent=1) + "\n"


def verify(text: str, mechanism: Mechanism | None = None) -> ExactAudit:
    """Check a certificate, and that it is the mechanism's if one is given; ValueError says what is wrong with it.

    Everything is computed anew from the integers; what the certificate states is only compared.

    Examples:
        >>> import sstq
        >>> forged = certify(sstq.mechanism("vqsgd", dim=10, epsilon=1.0)).replace('"epsilon": 1.0', '"epsilon": 0.5')
        >>> verify(forged)
        Traceback (most recent call last):
        ...
        ValueError: the certificate's integers spend at least 0.99999..., more than its epsilon = 0.5
    """
    data = _read(text)
    audit = audit_law(law_from_dict(data["law"]), check_epsilon(data["epsilon"]))
    if data["ratio"] != [audit.ratio.numerator, audit.ratio.denominator]:
        raise ValueError("the certificate's ratio is not that of its integers")
    if not _encloses(data["interval"], audit):
        raise ValueError(f"the certificate's interval {data['interval']} does not enclose the logarithm of its ratio")
    if not audit.holds:
        raise ValueError(
            f"the certificate's integers spend at least {audit.lower}, more than its epsilon = {audit.epsilon!r}"
        )
    if mechanism is not None and json.loads(certify(mechanism)) != data:
        raise ValueError("the certificate is not of this mechanism")
    return audit


def _read(text: str) -> dict[str, Any]:
    try:
        data = read_json(text)
    except ValueError as error:
        raise ValueError(f"the certificate is not JSON: {error}") from error
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"this is not a certificate: its format must be {FORMAT!r}, version {VERSION}")
    if set(data) != set(_FIELDS):
        raise ValueError(f"a certificate has the fields {', '.join(_FIELDS)}; not {', '.join(map(str, data))}")
    if not isinstance(data["epsilon"], int | float):
        raise ValueError(f"epsilon must be a number, got {data['epsilon']!r}")
    return data


def _encloses(interval: Any, audit: ExactAudit) -> bool:
    """Whether two decimal strings are bounds of log(ratio): the tightest ones are, and those that are wider."""
    if not (isinstance(interval, list) and len(interval) == 2 and all(map(_is_short_decimal, interval))):
        return False
    lower, upper = map(Decimal, interval)
    return lower <= audit.lower and audit.upper <= upper


def _is_short_decimal(end: Any) -> bool:
    """Whether this is a number from 0 to 99 with no more digits than anybody needs; the script has the same rule."""
    return isinstance(end, str) and re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,60})?", end) is not None
