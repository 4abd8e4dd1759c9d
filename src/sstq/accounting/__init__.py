"""Privacy accounting: what several messages of one client reveal together, and a ledger that enforces a budget.

A message is ε-LDP. `compose` gives the total ε of T messages, `rounds_allowed` and `epsilon_per_round` solve for T and
ε, `shuffled_epsilon` gives the ε in a shuffled crowd, and `Ledger` refuses to spend too much.
"""

from sstq.accounting.composition import compose as compose
from sstq.accounting.composition import epsilon_per_round as epsilon_per_round
from sstq.accounting.composition import rounds_allowed as rounds_allowed
from sstq.accounting.ledger import BudgetExhausted as BudgetExhausted
from sstq.accounting.ledger import Entry as Entry
from sstq.accounting.ledger import Ledger as Ledger
from sstq.accounting.ledger import LedgerDamaged as LedgerDamaged
from sstq.accounting.ledger import LedgerError as LedgerError
from sstq.accounting.ledger import RoundAlreadySpent as RoundAlreadySpent
from sstq.accounting.ledger import ledger_price as ledger_price
from sstq.accounting.ledger import price as price
from sstq.accounting.losses import gaussian_sigma as gaussian_sigma
from sstq.accounting.shuffling import shuffled_epsilon as shuffled_epsilon
from sstq.accounting.shuffling import two_level_local_epsilon as two_level_local_epsilon
