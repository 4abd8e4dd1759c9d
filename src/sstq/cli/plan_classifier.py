"""`sstq plan --learn`: plans a classifier from one message per person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.numbers import figure, write_json
from sstq.cli.plan_shuffled import instead_central, instead_local, shuffled_numbers, shuffled_privacy
from sstq.cli.terminal import note, show_facts
from sstq.cli.usage import WrongUsage, check_usage
from sstq.cli.verdicts import refuse_infeasible, show_remedies, verdict_numbers

if TYPE_CHECKING:
    from sstq.planning import ClassifierPlan, Verdict

__all__ = ["plan_classifier"]

_NEEDED = ("classes", "features", "clients", "epsilon")
_SHUFFLED = ("trust", "delta", "messages")


def plan_classifier(given: dict[str, Any], output: Path | None, json: Path | None) -> None:
    """Plan a classifier with these options, show it, and write the outputs."""
    from sstq import planning
    from sstq.files.atomic import atomic_file

    _check_options(given)
    with check_usage():
        found = planning.plan_classifier(**given)
    verdict = found.verdict()
    show_facts("Plan for a classifier", _facts(found, verdict))
    show_remedies(verdict)
    if json is not None:
        write_json(json, _numbers(found, verdict))
    refuse_infeasible(verdict, "no mechanism is written")
    if output is not None:
        with atomic_file(output) as file:
            file.write(found.mechanism.to_json().encode() + b"\n")
        note(f"wrote {output}")


def _check_options(given: dict[str, Any]) -> None:
    options = {name: f"--{name.replace('_', '-')}" for name in (*_NEEDED, *given)}
    allowed = _NEEDED + (_SHUFFLED if given.get("trust") == "shuffler" else ())
    others = [options[name] for name in given if name not in allowed]
    if others:
        raise WrongUsage(f"--learn cannot be combined with {', '.join(others)}: every person sends one message, once")
    missing = [options[name] for name in _NEEDED if name not in given]
    if missing:
        raise WrongUsage(f"--learn needs {', '.join(missing)}")


def _facts(found: ClassifierPlan, verdict: Verdict) -> list[tuple[str, object]]:
    mechanism = found.mechanism
    inside = f"{mechanism.choice.inside} of {2 * mechanism.frame.size} of the own block"
    return [
        ("verdict", str(verdict)),
        ("mechanism", f"GroupUnit, {found.classes} groups"),
        *_total(found),
        ("people", found.clients),
        ("features", found.features),
        ("blocks", mechanism.blocks),
        ("rows inside", inside),
        ("frames", mechanism.frames),
        ("bits per message", mechanism.message_bits),
        ("total bytes", found.total_bytes),
        ("noise per coordinate of a class mean", f"{figure(found.noise)} (features have norm 1)"),
        ("noise of a class mean", figure(1 / found.signal_to_noise)),
        *_instead(found),
        ("features worth their noise", _features(found)),
        ("mechanism in python", f"sstq.{mechanism!r}"),
        *_next(found),
    ]


def _total(found: ClassifierPlan) -> list[tuple[str, object]]:
    if found.shuffled is None:
        return [("total epsilon per person", f"{found.epsilon:g}: one message, once")]
    return shuffled_privacy(found.shuffled)


def _instead(found: ClassifierPlan) -> list[tuple[str, object]]:
    """Return the noise per coordinate for people who trust nobody, and for people who trust the server."""
    if found.shuffled is None:
        return []
    local, central = (figure(found.noise_of(e)) for e in (found.shuffled.local_error, found.shuffled.central_error))
    return [(instead_local(found.shuffled), local), (instead_central(found.shuffled), central)]


def _next(found: ClassifierPlan) -> list[tuple[str, object]]:
    if found.shuffled is None:
        return [("simulate in python", found.python())]
    return [("command", found.shuffled.command())]


def _features(found: ClassifierPlan) -> str:
    usual = f"about {found.usual_features:,} if class differences fall as 1/j, as on principal directions of images"
    return f"{usual}; at most {found.most_features:,}; only the messages tell which"


def _numbers(found: ClassifierPlan, verdict: Verdict) -> dict[str, Any]:
    mechanism = found.mechanism
    numbers = {
        name: getattr(found, name) for name in (*_NEEDED, "noise", "usual_features", "most_features", "total_bytes")
    }
    drawn = {"blocks": mechanism.blocks, "inside": mechanism.choice.inside, "frames": mechanism.frames}
    return {
        **verdict_numbers(verdict),
        **numbers,
        **drawn,
        "bits": mechanism.message_bits,
        **({"python": found.python()} if found.shuffled is None else shuffled_numbers(found.shuffled)),
    }
