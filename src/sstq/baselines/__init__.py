"""The local randomizers that ours are compared with."""

from sstq.baselines.privunit import PrivUnit as PrivUnit
from sstq.baselines.privunit import PrivUnitG as PrivUnitG
from sstq.baselines.projunit import ProjUnit as ProjUnit
from sstq.baselines.sqkr import SQKR as SQKR
from sstq.baselines.vqsgd import VqSGD as VqSGD
