"""Checks of the privacy claim: from the integers, through the encoder, and from messages alone.

* `exact_audit` computes ε from the integers of a mechanism's law; `check_encoder` runs the encoder on all that
  its secret words can be and checks that it follows the same law.
* `certify` writes the law and its ε as a certificate, which `verify` and a script that does not import sstq check.
* `empirical_audit` treats the encoder as a black box and bounds ε from below.
"""

from sstq.audit.empirical import EmpiricalAudit as EmpiricalAudit
from sstq.audit.empirical import PairResult as PairResult
from sstq.audit.empirical import empirical_audit as empirical_audit
from sstq.audit.empirical import worst_pairs as worst_pairs
from sstq.audit.encoder import EncoderCheck as EncoderCheck
from sstq.audit.encoder import check_encoder as check_encoder
from sstq.audit.exact import ExactAudit as ExactAudit
from sstq.audit.exact import certify as certify
from sstq.audit.exact import exact_audit as exact_audit
from sstq.audit.exact import verify as verify
