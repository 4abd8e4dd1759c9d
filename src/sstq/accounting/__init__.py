"""What many private messages of one client reveal together, and a ledger that keeps a client within its budget.

A message is ε-LDP. `compose` says what T of them are worth, `rounds_allowed` and `epsilon_per_round` turn the question
round, `subsampled_epsilon` and `shuffled_epsilon` say when a crowd helps, and `Ledger` refuses to spend too much.
"""

from sstq.accounting.amplification import subsampled_epsilon
from sstq.accounting.composition import METHODS, compose, epsilon_per_round, optimal_delta, rounds_allowed
from sstq.accounting.gaussian import gaussian_sigma
from sstq.accounting.ledger import Ledger, RunExpenses, ledger_price, price
from sstq.accounting.ledger_file import (
    BudgetExhausted,
    Entry,
    LedgerDamaged,
    LedgerError,
    RoundAlreadySpent,
    RoundCapExceeded,
)
from sstq.accounting.shuffling import (
    shuffled_delta,
    shuffled_epsilon,
    two_level_local_epsilon,
    two_level_shuffled_epsilon,
)

__all__ = [
    "METHODS",
    "BudgetExhausted",
    "Entry",
    "Ledger",
    "LedgerDamaged",
    "LedgerError",
    "RoundAlreadySpent",
    "RoundCapExceeded",
    "RunExpenses",
    "compose",
    "epsilon_per_round",
    "gaussian_sigma",
    "ledger_price",
    "optimal_delta",
    "price",
    "rounds_allowed",
    "shuffled_delta",
    "shuffled_epsilon",
    "subsampled_epsilon",
    "two_level_local_epsilon",
    "two_level_shuffled_epsilon",
]
