"""Planning before anything is collected: which mechanism, with which parameters, at which error and cost.

Everything is predicted by closed forms, so a plan takes a second or two even for a million dimensions.
"""

from sstq.planning.classifier import ClassifierPlan, plan_classifier
from sstq.planning.planner import plan
from sstq.planning.plans import Plan, Remedy, Verdict
from sstq.planning.shuffled_draw import shuffled_mechanism
from sstq.planning.shuffler import ShuffledPlan, plan_shuffled

__all__ = [
    "ClassifierPlan",
    "Plan",
    "Remedy",
    "ShuffledPlan",
    "Verdict",
    "plan",
    "plan_classifier",
    "plan_shuffled",
    "shuffled_mechanism",
]
