"""`sstq audit`: checks the privacy claim, from the integers or from messages alone."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sstq.cli.common import (
    FORCE,
    argument,
    check_output,
    option,
    output_option,
    read_mechanism,
    write_text,
)
from sstq.cli.terminal import Facts, complain, progress, show_facts, show_table, warn

if TYPE_CHECKING:
    from sstq.audit import ExactAudit

HELP = "Check the privacy claim, exactly from the integers or from messages alone."

_SPEC = argument("Audit the mechanism in this JSON file (sstq spec).", metavar="SPEC")
_SEED = option("Repeat an audit with this seed instead of secret randomness.", min=0)


def exact(spec: Path = _SPEC, seed: int | None = _SEED) -> None:
    """Compute ε exactly from the integer weights, for all inputs, and test that the encoder follows them.

    ε is printed as an interval between two rational numbers. Mechanisms with continuous outputs have no integer weights
    and are refused. The exit code is 1 if the claim does not hold.

    Example: sstq audit exact mechanism.json
    """
    from sstq.audit import check_encoder, exact_audit

    mechanism = read_mechanism(spec)
    audit = exact_audit(mechanism)
    with progress("Testing the encoder", 1) as advance:
        check = check_encoder(
            mechanism, rng=seed, progress=lambda _, total: advance(1 / total)
        )
    how_many = "all" if check.complete else f"a sample of {check.cells}"
    show_facts(
        str(spec),
        {
            "mechanism": mechanism.name,
            **_exact_facts(audit),
            "encoder follows the integers": check.problem
            or f"yes, in {check.situations} situations",
            "outcomes tried in each": f"{how_many}, at both ends of their words and within",
            "largest ratio met": f"{float(check.ratio):.12g}",
            "random words per message": check.words,
            "digest": mechanism.digest(),
        },
    )
    if check.problem or not audit.holds:
        complain(
            check.problem or f"the integers spend more than epsilon = {audit.epsilon!r}"
        )
        raise typer.Exit(1)


def empirical(
    spec: Path = _SPEC,
    samples: int = option(
        "Encode each input of a pair this many times.", default=20000, min=100
    ),
    seed: int | None = _SEED,
) -> None:
    """Bound ε from below by messages alone, treating the encoder as a black box.

    Pairs of inputs that are easy to distinguish are encoded many times; one half of the messages selects an event, the
    other half tests it. The exit code is 1 if the messages show that more than ε is spent.

    Example: sstq audit empirical mechanism.json --samples 100000
    """
    from sstq.audit import empirical_audit

    mechanism = read_mechanism(spec)
    with progress("Encoding", 1) as advance:
        audit = empirical_audit(
            mechanism, samples, rng=seed, progress=lambda _, total: advance(1 / total)
        )
    show_table(
        str(spec),
        ["pair", "event is a set of", "likely", "unlikely", "epsilon is at least"],
        [
            [r.pair, r.event, r.likely, r.unlikely, f"{r.bound:.4g}"]
            for r in audit.results
        ],
        caption=f"likely, unlikely: how many of {audit.tested} messages fell into the event. All bounds hold together.",
    )
    facts: Facts = {
        "epsilon stated": repr(audit.epsilon),
        "epsilon is at least": f"{audit.lower_bound:.4g}",
        "largest epsilon that these messages can show": f"{audit.reach:.4g}",
        "violation": "FOUND" if audit.violation else "none found",
        "probability of a false alarm at most": f"{audit.alpha:g}",
    }
    show_facts("verdict", facts)
    if audit.reach <= audit.epsilon:
        warn(
            f"{samples} messages cannot show an ε above {audit.reach:.3g}: pass more --samples to test this ε"
        )
    if audit.violation:
        complain("the messages contradict the claim")
        raise typer.Exit(1)


def certify(
    spec: Path = _SPEC,
    output: Path = output_option(
        "Write the certificate to this file.", Path("certificate.json")
    ),
    force: bool = FORCE,
) -> None:
    """Write a certificate with the integer weights and their exact ε, which can be verified without this library.

    Example: sstq audit certify mechanism.json --output certificate.json
    """
    from sstq.audit import certify as certificate

    check_output(output, force)
    write_text(output, certificate(read_mechanism(spec)))


def verify(
    certificate: Path = argument(
        "Verify this file, written by sstq audit certify.", metavar="CERTIFICATE"
    ),
    spec: Path | None = argument(
        "Check that it certifies this mechanism.", default=None, metavar="[SPEC]"
    ),
) -> None:
    """Verify a certificate and, if a mechanism is given, that it certifies that mechanism.

    Everything is computed again from the integers. The exit code is 1 if the certificate is not valid. The
    documentation has a script that does the same without sstq.

    Example: sstq audit verify certificate.json mechanism.json
    """
    from sstq.audit import verify as verified

    mechanism = None if spec is None else read_mechanism(spec)
    audit = verified(certificate.read_text(encoding="utf-8"), mechanism)
    belongs = "not asked" if mechanism is None else f"yes, digest {mechanism.digest()}"
    show_facts(
        str(certificate),
        {
            "valid": "yes",
            "of this mechanism": belongs,
            **_exact_facts(audit),
        },
    )


COMMANDS = (exact, empirical, certify, verify)


def _exact_facts(audit: "ExactAudit") -> Facts:
    return {
        "epsilon stated, per message": repr(audit.epsilon),
        "epsilon of one message is at least": audit.lower,
        "epsilon of one message is at most": audit.upper,
        "messages per person": audit.messages,
        "epsilon per person, without a shuffler": f"at most {audit.total!r}",
        "largest ratio, exactly": audit.ratio,
        "within e^epsilon": "yes, in rational arithmetic" if audit.holds else "NO",
        "law": f"{audit.law.kind}, size {audit.law.to_dict()['size']}",
    }
