"""What a message costs, and how the rounds of a training are entered into a ledger."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from sstq.accounting.ledger import Ledger
from sstq.accounting.ledger_file import Entry

if TYPE_CHECKING:
    from sstq.mechanisms import Mechanism

__all__ = ["RunExpenses", "ledger_price", "price"]


def price(mechanism: Mechanism) -> float:
    """The ε that a message of this mechanism is charged: what was agreed, and no less than what the numbers give away.

    Examples:
        >>> import sstq
        >>> price(sstq.mechanism("frameunit", dim=10, epsilon=2.0))
        2.0
    """
    return max(mechanism.epsilon, mechanism.privacy_loss())


def ledger_price(mechanism: Mechanism) -> float:
    """The `price`, if a ledger can hold it: ledgers add up pure ε, so a mechanism with δ > 0 is refused (ValueError).

    Examples:
        >>> import sstq
        >>> ledger_price(sstq.mechanism("csgm", dim=10, epsilon=1.0, clients=100))
        Traceback (most recent call last):
        ...
        ValueError: a ledger adds up pure ε, but mechanism 'csgm' is (ε, δ)-private with delta = 1e-05: ...
    """
    delta = mechanism.delta
    if delta > 0:
        raise ValueError(
            f"a ledger adds up pure ε, but mechanism {mechanism.name!r} is (ε, δ)-private with delta = {delta!r}: "
            "leave the ledger out, or use a mechanism with δ = 0"
        )
    return price(mechanism)


class RunExpenses:
    """The rounds of one run of a training, as ledgers know them: each is paid once in a run, and anew in another.

    A run begins whenever a training is started or goes on from a saved state, and has a random name. A round that is
    done again after a crash makes a second message about the same data; under its new name it is charged again, where
    the number alone would be refused for ever.

    Args:
        mechanism: of the messages.

    Examples:
        >>> import sstq, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger(f"{folder.name}/client.ledger", epsilon=6.0)
        >>> mechanism = sstq.mechanism("frameunit", dim=10, epsilon=2.0)
        >>> for run in range(2):
        ...     _ = RunExpenses(mechanism).charge(ledger, 1)
        >>> ledger.spent
        4.0
        >>> folder.cleanup()
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._run = secrets.token_hex(8)

    def charge(self, ledger: Ledger, number: int) -> Entry:
        """Pay for a message of a round; when this returns, the message may leave.

        Raises:
            LedgerError: the ledger refuses, among other reasons because this run has paid for the round.
            ValueError: the mechanism has δ > 0.
        """
        return ledger.spend(ledger_price(self._mechanism), f"run {self._run} round {number}")
