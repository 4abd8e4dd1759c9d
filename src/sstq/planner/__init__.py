"""Which mechanism, with which parameters, at which price: before anything is collected.

Everything is predicted by closed forms, so that a plan takes a second or two for a million dimensions, too.
"""

from sstq.planner.planning import Alternative, Plan, plan
from sstq.planner.timing import Times

__all__ = ["Alternative", "Plan", "Times", "plan"]
