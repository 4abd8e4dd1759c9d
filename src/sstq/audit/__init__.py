"""Checks of the privacy claim: from the integers, through the encoder, and from messages alone.

* `exact_audit` computes ε from the integers of a mechanism's law; `check_encoder` runs the encoder on all that
  its secret words can be and checks that it follows the same law.
* `certify` writes the law and its ε as a certificate, which `verify` and a script that does not import sstq check.
* `empirical_audit` treats the encoder as a black box and bounds ε from below; `sampler_test` compares the frequencies
  of messages with the integers.
"""

from sstq.audit.empirical import EmpiricalAudit, PairResult, empirical_audit, worst_pairs
from sstq.audit.encoder import EncoderCheck, SamplerTest, check_encoder, sampler_test
from sstq.audit.exact import ExactAudit, certify, exact_audit, verify

__all__ = [
    "EmpiricalAudit",
    "EncoderCheck",
    "ExactAudit",
    "PairResult",
    "SamplerTest",
    "certify",
    "check_encoder",
    "empirical_audit",
    "exact_audit",
    "sampler_test",
    "verify",
    "worst_pairs",
]
