"""`sstq plan --trust shuffler`: plans for a central (ε, δ), next to the local and the central alternative."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.numbers import figure, write_json
from sstq.cli.terminal import note, show_facts
from sstq.cli.usage import WrongUsage, check_usage
from sstq.cli.verdicts import refuse_infeasible, show_remedies, verdict_numbers

if TYPE_CHECKING:
    from sstq.planning import ShuffledPlan, Verdict

__all__ = ["instead_central", "instead_local", "plan_shuffled", "shuffled_numbers", "shuffled_privacy"]

_NEEDED = ("dim", "clients", "epsilon")
_TAKEN = (*_NEEDED, "delta", "messages", "bits", "clip")


def plan_shuffled(given: dict[str, Any], output: Path | None, json: Path | None) -> None:
    """Plan for a shuffler with these options, show it, and write the outputs."""
    from sstq import planning
    from sstq.files.atomic import atomic_file

    options = {name: f"--{name.replace('_', '-')}" for name in (*_NEEDED, *given)}
    others = [options[name] for name in given if name not in (*_TAKEN, "trust")]
    if others:
        raise WrongUsage(f"--trust shuffler cannot be combined with {', '.join(others)}: every person answers once")
    missing = [options[name] for name in _NEEDED if name not in given]
    if missing:
        raise WrongUsage(f"--trust shuffler needs {', '.join(missing)}")
    with check_usage():
        found = planning.plan_shuffled(**{name: value for name, value in given.items() if name != "trust"})
    verdict = found.verdict()
    show_facts("Plan for a shuffler", _facts(found, verdict))
    show_remedies(verdict)
    if json is not None:
        write_json(json, {**verdict_numbers(verdict), **shuffled_numbers(found)})
    refuse_infeasible(verdict, "no mechanism is written")
    if output is not None:
        with atomic_file(output) as file:
            file.write(found.mechanism.to_json().encode() + b"\n")
        note(f"wrote {output}")


def shuffled_privacy(found: ShuffledPlan) -> list[tuple[str, object]]:
    """Return the privacy cost per person, as names and values."""
    each = f"{found.messages} x {found.mechanism.epsilon:g}"
    return [
        ("total epsilon per person behind the shuffler", f"{found.epsilon:g}, delta {found.delta:g}"),
        ("local epsilon if the shuffler cheats", f"{found.cheated_epsilon:g} ({each})"),
        ("messages per person", found.messages),
        ("bytes per person", found.person_bytes),
    ]


def instead_local(found: ShuffledPlan) -> str:
    """Return the name of the alternative that trusts nobody."""
    return f"instead: trust nobody, local epsilon {found.epsilon:g}"


def instead_central(found: ShuffledPlan) -> str:
    """Return the name of the alternative that trusts the server."""
    return f"instead: trust the server, Gaussian noise of ({found.epsilon:g}, {found.delta:g})"


def _facts(found: ShuffledPlan, verdict: Verdict) -> list[tuple[str, object]]:
    mechanism = found.mechanism

    def both(length: float) -> str:
        return f"{figure(length)} ({figure(length / mechanism.clip)} of clip)"

    return [
        ("verdict", str(verdict)),
        ("mechanism", f"FrameUnit, N = {mechanism.frame.size}"),
        ("people", found.clients),
        *shuffled_privacy(found),
        ("rows inside", f"{mechanism.choice.inside} of {mechanism.choice.size}"),
        ("frames", mechanism.frames),
        ("bits per message", mechanism.message_bits),
        ("total bytes", found.total_bytes),
        ("error of the mean", both(found.error)),
        ("bias", both(found.bias)),
        ("standard deviation", both(found.standard_deviation)),
        (instead_local(found), both(found.local_error)),
        (instead_central(found), both(found.central_error)),
        ("python", found.python()),
        ("command", found.command()),
    ]


def shuffled_numbers(found: ShuffledPlan) -> dict[str, Any]:
    """Return all numbers of a plan for JSON."""
    names = ("clients", "epsilon", "delta", "messages", "cheated_epsilon", "person_bytes", "total_bytes")
    errors = ("error", "bias", "standard_deviation", "local_error", "central_error")
    mechanism = found.mechanism
    drawn = {
        "dim": mechanism.dim,
        "clip": mechanism.clip,
        "message_epsilon": mechanism.epsilon,
        "inside": mechanism.choice.inside,
        "frames": mechanism.frames,
        "frame_size": mechanism.frame.size,
        "bits": mechanism.message_bits,
    }
    own = {name: getattr(found, name) for name in (*names, *errors)}
    return {**own, **drawn, "python": found.python(), "command": found.command()}
