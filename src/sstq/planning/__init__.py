"""Planning before anything is collected: which mechanism, with which parameters, at which error and cost.

Everything is predicted by closed forms, so a plan takes a second or two even for a million dimensions.
"""

from sstq.planning.planner import plan
from sstq.planning.plans import Plan, Remedy, Verdict
from sstq.planning.shuffled_draw import shuffled_mechanism

__all__ = ["Plan", "Remedy", "Verdict", "plan", "shuffled_mechanism"]
