"""Showing verdicts: the line, the commands that would be feasible, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import show_facts

if TYPE_CHECKING:
    from sstq.planning import Remedy, Verdict

__all__ = ["refuse_infeasible", "show_remedies", "verdict_numbers"]

_INSTEAD = {
    "people": "with more people",
    "epsilon": "with more epsilon",
    "delta": "with a delta",
    "once": "with one answer per person",
    "shuffler": "with a shuffler",
    "dimensions": "with fewer dimensions",
}


def show_remedies(verdict: Verdict) -> None:
    """Print the commands of the remedies in a separate table, whose lines are long enough for most of them."""
    facts: list[tuple[str, object]] = []
    for remedy in verdict.remedies:
        plan, *account = remedy.commands
        facts.append((_INSTEAD[remedy.name], plan))
        facts += [("its total epsilon", command) for command in account]
    if facts:
        show_facts("What would be feasible", facts)


def verdict_numbers(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as numbers for JSON."""
    return {
        "feasible": verdict.feasible,
        "signal_to_noise": verdict.signal_to_noise,
        "verdict": str(verdict),
        "remedies": [_numbers(remedy) for remedy in verdict.remedies],
    }


def _numbers(remedy: Remedy) -> dict[str, Any]:
    named = {"name": remedy.name, "change": remedy.change}
    return {**named, "arguments": dict(remedy.arguments), "commands": list(remedy.commands)}


def refuse_infeasible(verdict: Verdict, otherwise: str) -> None:
    """End with exit code 1 if the task is infeasible; `otherwise` says what to do about it."""
    if not verdict.feasible:
        raise ValueError(f"{verdict}; {otherwise}")
