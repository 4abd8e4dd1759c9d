"""What must be true after a run, by what the server wrote down and what the nodes' ledgers say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from processes import NotAsExpectedError


def check(what: str, holds: bool, found: object) -> None:
    """Print that something is so, or raise a NotAsExpectedError with what was found instead."""
    if not holds:
        raise NotAsExpectedError(f"not so: {what}; found {found}")
    print("checked:", what, flush=True)


def check_history(
    folder: Path, *, rounds: int, replies: int, refusals: int, accuracy: float
) -> None:
    """Check history.json, which the server wrote.

    Args:
        folder: the app's `output`.
        rounds: how many there must be.
        replies: how many private messages must have counted in each.
        refusals: how many nodes must have refused in each, because of their caps.
        accuracy: that the last model must exceed.
    """
    history: dict[str, Any] = json.loads((folder / "history.json").read_text())
    metrics = list(history["rounds"].values())
    check(f"{rounds} rounds are done", len(metrics) == rounds, len(metrics))
    for name, count in {
        "sstq-replies": replies,
        "sstq-refused": refusals,
        "sstq-missing": 0,
    }.items():
        counts = [each[name] for each in metrics]
        check(f"{name} is {count} in each", counts == [count] * rounds, counts)
    errors = [each["error"] for each in history["received"] if "error" in each]
    check(
        "who refuses gives the node's cap as the reason",
        all("this node allows" in e for e in errors),
        errors,
    )
    private = [each for each in history["received"] if "error" not in each]
    in_clear = sum(each["arrays"] + each["metrics"] for each in private)
    check("no array and no metric left a node", in_clear == 0, f"{in_clear} bytes")
    largest = max(each["config"] for each in private)
    check(
        "what a reply holds is less than 100 bytes", largest < 100, f"{largest} bytes"
    )
    last = history["model"][str(rounds)]
    beside = f"at a total ε of {last['total-epsilon']:g} per node"
    check(
        f"the model's accuracy is above {accuracy:.0%} {beside}",
        last["accuracy"] > accuracy,
        last["accuracy"],
    )


def check_ledger(name: str, path: Path, due: float) -> None:
    """Check that a node has paid for what it sent, and for nothing else."""
    from sstq.accounting import Ledger

    spent = Ledger(path).spent if path.exists() else 0.0
    check(f"{name} has spent ε = {due:g}", spent == due, spent)
