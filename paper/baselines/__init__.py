"""The paper's baselines that are not locally private: registered as a third party's mechanisms are, by this import.

No device may use them. Their ε is infinite (Clean, TurboQuant), or that of a mean that a trusted aggregator releases
(CSGM, L2-CSGM, with δ > 0), and whatever answers a server's document refuses both.
"""

from paper.baselines.clean import Clean as Clean
from paper.baselines.csgm import CSGM as CSGM
from paper.baselines.csgm import L2CSGM as L2CSGM
from paper.baselines.turboquant import TurboQuant as TurboQuant
from sstq import list_mechanisms, register

for _baseline in (Clean, TurboQuant, CSGM, L2CSGM):
    if _baseline.name not in list_mechanisms():
        register(_baseline)
