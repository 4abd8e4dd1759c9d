"""The mechanisms that ours are compared with: the paper's baselines."""

from sstq.baselines.clean import Clean as Clean
from sstq.baselines.csgm import CSGM as CSGM
from sstq.baselines.csgm import L2CSGM as L2CSGM
from sstq.baselines.privunit import PrivUnit as PrivUnit
from sstq.baselines.privunit import PrivUnitG as PrivUnitG
from sstq.baselines.projunit import ProjUnit as ProjUnit
from sstq.baselines.sqkr import SQKR as SQKR
from sstq.baselines.turboquant import TurboQuant as TurboQuant
from sstq.baselines.vqsgd import VqSGD as VqSGD
