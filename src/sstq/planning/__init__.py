"""Which mechanism, with which parameters, at which price: before anything is collected.

Everything is predicted by closed forms, so that a plan takes a second or two for a million dimensions, too.
"""

from sstq.planning.planner import Alternative, Plan, plan
from sstq.planning.timing import Times

__all__ = ["Alternative", "Plan", "Times", "plan"]
