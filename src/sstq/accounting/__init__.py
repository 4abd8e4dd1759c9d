"""Privacy accounting: what several messages of one client reveal together, and a ledger that enforces a budget.

A message is ε-LDP. `compose` gives the total ε of T messages, `rounds_allowed` and `epsilon_per_round` solve for T and
ε, `subsampled_epsilon` and `shuffled_epsilon` give the ε in a crowd, and `Ledger` refuses to spend too much.
"""

from sstq.accounting.composition import (
    METHODS,
    compose,
    epsilon_per_round,
    gaussian_sigma,
    optimal_delta,
    rounds_allowed,
)
from sstq.accounting.ledger import Ledger, ledger_price, price
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
    subsampled_epsilon,
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
