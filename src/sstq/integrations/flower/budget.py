"""The budget of a node: caps on ε, and the ledger on its disk.

Everything here is decided without looking at data, so a refusal reveals nothing about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.supercore import log

from sstq.accounting import Ledger, LedgerDamaged, LedgerError, ledger_price
from sstq.accounting.ledger import check_round_id
from sstq.checks import check_argument, did_you_mean
from sstq.exactness import round_up
from sstq.mechanisms import Mechanism

_KEYS = ("sstq-max-epsilon", "sstq-total-epsilon", "sstq-ledger", "sstq-node")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Limits:
    """The limits of the app; None leaves the decision to the node.

    Attributes:
        max_epsilon: the maximum ε of one message.
        total_epsilon: the maximum total ε.
        ledger: the folder of the ledgers; a relative one is resolved against the current folder.
    """

    max_epsilon: float | None = None
    total_epsilon: float | None = None
    ledger: str | Path | None = None

    def __post_init__(self) -> None:
        if self.max_epsilon is not None:
            check_argument("max_epsilon", self.max_epsilon, of="answer_epsilon")
        if self.total_epsilon is not None:
            check_argument("total_epsilon", self.total_epsilon)
        if self.ledger is not None:
            # A process that changes its folder must not start a new budget there.
            object.__setattr__(
                self, "ledger", _folder("ledger", self.ledger).absolute()
            )


class NodeBudget:
    """The limits that apply on a node, and its ledger; ValueError if one is missing or cannot be read.

    Args:
        app: the limits of the app.
        node_config: the node's limits: "sstq-max-epsilon" and "sstq-total-epsilon" (the smaller of app's and node's
            counts), "sstq-ledger" (instead of the app's folder; absolute, and required with a total of the node's own,
            because in a folder named by an app the total would start again) and "sstq-node" (the name of its
            ledger, instead of the node's number). Any other key that begins with "sstq" is refused: it may be a
            misspelled limit.
        node_id: the node's number.
        run_config: the configuration of the run. Its keys must not begin with "sstq": limits belong to the node's.
    """

    def __init__(
        self,
        app: Limits,
        node_config: Mapping[str, Any],
        node_id: int,
        run_config: Iterable[str] = (),
    ) -> None:
        _check_keys(node_config, run_config)
        self.max_epsilon = _cap(
            node_config, "sstq-max-epsilon", app.max_epsilon, "answer_epsilon"
        )
        self.total_epsilon = _cap(
            node_config, "sstq-total-epsilon", app.total_epsilon, "total_epsilon"
        )
        # An app's cap binds that app only, so a ledger is opened for the node's total where there is one.
        self._ledger_total = node_config.get("sstq-total-epsilon", self.total_epsilon)
        name = node_config.get("sstq-node", f"node-{node_id}")
        if not isinstance(name, str) or not _NODE_NAME.fullmatch(name):
            raise ValueError(
                "sstq-node must be 1 to 64 letters, digits, dots, dashes and underscores"
            )
        self.path = _node_folder(node_config, app) / f"{name}.ledger"

    def permit(self, mechanism: Mechanism, round_id: str) -> None:
        """Check before the training whether its message may leave; ValueError if not. Nothing is spent."""
        check_round_id(round_id)
        epsilon = ledger_price(mechanism)
        if epsilon > self.max_epsilon:
            raise ValueError(
                f"epsilon = {epsilon!r} is more than this node allows for one message, {self.max_epsilon!r}"
            )
        with _public_reasons():
            ledger = self._open()
            if any(entry.round_id == round_id for entry in ledger.entries):
                raise ValueError(
                    "this request was already answered; a second answer would be a second expense"
                )
            within = _sum(ledger) + Fraction(epsilon) <= Fraction(self.total_epsilon)
            if not within or not ledger.rounds_left(epsilon):
                raise ValueError(_exhausted(epsilon))

    def charge(self, mechanism: Mechanism, round_id: str) -> None:
        """Spend an answer's ε; when this returns, it is on the disk, and the answer may leave.

        ValueError if it must not leave. Nothing was spent then, unless the total is below the ledger's own and another
        process spent the rest of it at the same moment: then this one has paid and does not send.
        """
        epsilon = ledger_price(mechanism)
        with _public_reasons():
            ledger = self._open()
            ledger.spend(epsilon, round_id)
            spent = _sum(ledger)
            total = min(self.total_epsilon, ledger.epsilon)
            message = (
                "SstqMod: this answer spends epsilon = %s; %s of %s is spent in total"
            )
            log(INFO, message, epsilon, round_up(spent), total)
            # The ledger guards its own total under a lock. A smaller one may have been overspent since `permit`.
            if spent > Fraction(total):
                raise ValueError(_exhausted(epsilon))

    def _open(self) -> Ledger:
        """The node's ledger with the terms it was created with, or a new one."""
        if self.path.exists():
            return Ledger(self.path)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ledger = Ledger(self.path, epsilon=self._ledger_total)
        log(
            WARNING,
            "SstqMod: a new budget starts: %s, total epsilon %s",
            self.path,
            ledger.epsilon,
        )
        return ledger


@contextmanager
def _public_reasons() -> Iterator[None]:
    """Turn errors of ledger and disk into ValueErrors whose text may leave the node; details are logged locally."""
    try:
        yield
    except (LedgerDamaged, OSError) as error:
        log(ERROR, "SstqMod: the ledger cannot be used: %s", error)
        raise ValueError(
            "the node's ledger cannot be used; its operator can find the reason in the log"
        ) from error
    except LedgerError as error:
        log(WARNING, "SstqMod: the ledger refuses: %s", error)
        raise ValueError(
            f"the node's ledger refuses: {type(error).__name__}"
        ) from error


def _sum(ledger: Ledger) -> Fraction:
    """The total ε ever spent, by plain addition."""
    return sum((Fraction(entry.epsilon) for entry in ledger.entries), Fraction(0))


def _exhausted(epsilon: float) -> str:
    return f"epsilon = {epsilon!r} is more than is left of this node's budget"


def _check_keys(node_config: Iterable[str], run_config: Iterable[str]) -> None:
    """Refuse limits that would be ignored silently: misspelled ones, and those set where nobody reads them."""
    for key in node_config:
        if key.lower().startswith("sstq") and key not in _KEYS:
            close = did_you_mean(key.lower(), _KEYS)
            raise ValueError(
                f"the node's configuration has no key {key!r}; valid are {', '.join(_KEYS)}{close}"
            )
    for key in run_config:
        if key.lower().startswith("sstq"):
            raise ValueError(
                f"{key!r} has no effect in the run's configuration: keys that begin with sstq belong to the node's "
                "(--node-config)"
            )


def _node_folder(node_config: Mapping[str, Any], app: Limits) -> Path:
    """The folder of the node's ledger: its own, or the app's, where a total of the node would start again."""
    if "sstq-ledger" in node_config:
        folder = _folder("sstq-ledger", node_config["sstq-ledger"])
        if not folder.is_absolute():
            raise ValueError(
                "sstq-ledger must be an absolute folder: a relative one could start a new budget"
            )
        return folder
    if app.ledger is None or "sstq-total-epsilon" in node_config:
        raise ValueError(
            "the node has no ledger of its own: set sstq-ledger, a folder, in the node's configuration"
        )
    return Path(app.ledger)


def _folder(name: str, value: Any) -> Path:
    """Expand the home folder in a path; errors do not contain the value, because refusals leave the node."""
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"{name} must be a folder")
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"{name} begins with a home folder that is not known"
        ) from error


def _cap(node_config: Mapping[str, Any], key: str, app: float | None, of: str) -> float:
    """The smaller cap of node and app."""
    caps = [check_argument(key, node_config[key], of=of)] if key in node_config else []
    caps += [] if app is None else [app]
    if not caps:
        raise ValueError(
            f"the node has no limit: set {key} in the node's configuration; nothing is sent without it"
        )
    return float(min(caps))
