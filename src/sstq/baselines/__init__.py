"""The mechanisms that ours are compared with: the paper's baselines and its rivals."""

from sstq.baselines.clean import Clean
from sstq.baselines.compressed_privunitg import CompressedPrivUnitG
from sstq.baselines.csgm import CSGM, L2CSGM
from sstq.baselines.mmrc import MMRC
from sstq.baselines.privunit import PrivUnit, PrivUnitG
from sstq.baselines.projunit import ProjUnit
from sstq.baselines.rrsc import RRSC
from sstq.baselines.sqkr import SQKR
from sstq.baselines.turboquant import TurboQuant
from sstq.baselines.vqsgd import VqSGD

__all__ = [
    "CSGM",
    "L2CSGM",
    "MMRC",
    "RRSC",
    "SQKR",
    "Clean",
    "CompressedPrivUnitG",
    "PrivUnit",
    "PrivUnitG",
    "ProjUnit",
    "TurboQuant",
    "VqSGD",
]
