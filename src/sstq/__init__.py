"""Estimate the mean of many people's vectors with ε-local differential privacy, in about 20 bits per person.

The public names are loaded on first use, so that `import sstq` and `sstq --help` are fast.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sstq._version import __version__ as __version__

if TYPE_CHECKING:
    from sstq.aggregation import Aggregator as Aggregator
    from sstq.aggregation import Estimate as Estimate
    from sstq.aggregation import pool as pool
    from sstq.baselines import CSGM as CSGM
    from sstq.baselines import L2CSGM as L2CSGM
    from sstq.baselines import MMRC as MMRC
    from sstq.baselines import RRSC as RRSC
    from sstq.baselines import SQKR as SQKR
    from sstq.baselines import Clean as Clean
    from sstq.baselines import CompressedPrivUnitG as CompressedPrivUnitG
    from sstq.baselines import PrivUnit as PrivUnit
    from sstq.baselines import PrivUnitG as PrivUnitG
    from sstq.baselines import ProjUnit as ProjUnit
    from sstq.baselines import TurboQuant as TurboQuant
    from sstq.baselines import VqSGD as VqSGD
    from sstq.frames.tight import FourierFrame as FourierFrame
    from sstq.frames.tight import HadamardFrame as HadamardFrame
    from sstq.frames.tight import OrthogonalFrame as OrthogonalFrame
    from sstq.mechanisms import SSTQ as SSTQ
    from sstq.mechanisms import ExpectedError as ExpectedError
    from sstq.mechanisms import FrameUnit as FrameUnit
    from sstq.mechanisms import GroupUnit as GroupUnit
    from sstq.mechanisms import LocalReport as LocalReport
    from sstq.mechanisms import Mechanism as Mechanism
    from sstq.mechanisms import Unbiased as Unbiased
    from sstq.mechanisms import from_json as from_json
    from sstq.mechanisms import list_mechanisms as list_mechanisms
    from sstq.mechanisms import mechanism as mechanism
    from sstq.mechanisms import register as register
    from sstq.mechanisms.frameunit.bias import FrameBiasWarning as FrameBiasWarning
    from sstq.mechanisms.groupunit.estimates import GroupEstimate as GroupEstimate
    from sstq.messages.batch import Messages as Messages
    from sstq.messages.files import read_messages as read_messages
    from sstq.messages.files import write_messages as write_messages
    from sstq.planning import Plan as Plan
    from sstq.planning import plan as plan
    from sstq.randomness.streams import mix_seed as mix_seed
    from sstq.runs.groups import GroupedAggregator as GroupedAggregator
    from sstq.runs.groups import GroupMean as GroupMean
    from sstq.scalar.codebooks import Codebook as Codebook
    from sstq.scalar.densities import Density as Density

_HOMES = {
    "Aggregator": "sstq.aggregation",
    "CSGM": "sstq.baselines",
    "Clean": "sstq.baselines",
    "Codebook": "sstq.scalar.codebooks",
    "CompressedPrivUnitG": "sstq.baselines",
    "Density": "sstq.scalar.densities",
    "Estimate": "sstq.aggregation",
    "ExpectedError": "sstq.mechanisms",
    "FourierFrame": "sstq.frames.tight",
    "FrameBiasWarning": "sstq.mechanisms.frameunit.bias",
    "FrameUnit": "sstq.mechanisms",
    "GroupEstimate": "sstq.mechanisms.groupunit.estimates",
    "GroupMean": "sstq.runs.groups",
    "GroupUnit": "sstq.mechanisms",
    "GroupedAggregator": "sstq.runs.groups",
    "HadamardFrame": "sstq.frames.tight",
    "L2CSGM": "sstq.baselines",
    "LocalReport": "sstq.mechanisms",
    "MMRC": "sstq.baselines",
    "Mechanism": "sstq.mechanisms",
    "Messages": "sstq.messages.batch",
    "OrthogonalFrame": "sstq.frames.tight",
    "Plan": "sstq.planning",
    "PrivUnit": "sstq.baselines",
    "PrivUnitG": "sstq.baselines",
    "ProjUnit": "sstq.baselines",
    "RRSC": "sstq.baselines",
    "SQKR": "sstq.baselines",
    "SSTQ": "sstq.mechanisms",
    "TurboQuant": "sstq.baselines",
    "Unbiased": "sstq.mechanisms",
    "VqSGD": "sstq.baselines",
    "from_json": "sstq.mechanisms",
    "list_mechanisms": "sstq.mechanisms",
    "mechanism": "sstq.mechanisms",
    "mix_seed": "sstq.randomness.streams",
    "plan": "sstq.planning",
    "pool": "sstq.aggregation",
    "read_messages": "sstq.messages.files",
    "register": "sstq.mechanisms",
    "write_messages": "sstq.messages.files",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    # Rooms, so that sstq.accounting works after `import sstq` alone.
    if not name.startswith("_") and find_spec(f"sstq.{name}") is not None:
        return import_module(f"sstq.{name}")
    raise AttributeError(f"module 'sstq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
