"""The mechanisms of this library and of its paper, and the registry of all names; others are in `sstq.baselines`."""

from sstq.mechanisms.base import (
    ClippedWarning,
    ExpectedError,
    LocalReport,
    Mechanism,
    Unbiased,
)
from sstq.mechanisms.frameunit.frameunit import FrameUnit
from sstq.mechanisms.frequencies import Frequencies
from sstq.mechanisms.groupunit.groupunit import GroupUnit
from sstq.mechanisms.registry import (
    from_json,
    list_mechanisms,
    mechanism,
    mechanism_class,
    register,
)
from sstq.mechanisms.sstq import SSTQ

__all__ = [
    "SSTQ",
    "ClippedWarning",
    "ExpectedError",
    "FrameUnit",
    "Frequencies",
    "GroupUnit",
    "LocalReport",
    "Mechanism",
    "Unbiased",
    "from_json",
    "list_mechanisms",
    "mechanism",
    "mechanism_class",
    "register",
]
