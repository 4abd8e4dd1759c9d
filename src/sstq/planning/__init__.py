"""Which mechanism, with which parameters, at which price: before anything is collected.

Everything is predicted by closed forms, so that a plan takes a second or two for a million dimensions, too.
"""

from sstq.planning.classifier import ClassifierPlan, plan_classifier
from sstq.planning.comparison import Times
from sstq.planning.planner import Alternative, Plan, plan
from sstq.planning.verdict import Remedy, Verdict

__all__ = ["Alternative", "ClassifierPlan", "Plan", "Remedy", "Times", "Verdict", "plan", "plan_classifier"]
