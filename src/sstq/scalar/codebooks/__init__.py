"""Codebooks: the M = 2^b values a coordinate is rounded to, in units of the bound B, and the rounding.

`uniform_codebook` is the plain grid, `optimized_codebook` the minimiser of the paper's surrogate loss for
flat randomized response, `panter_dite_codebook` the high-resolution optimum for a public density and
`loss_optimal_codebook` the optimum of the metric-aware channel for one.
"""

from sstq.scalar.codebooks.base import BITS_MAX, BITS_MIN, Codebook, check_bits, uniform_codebook
from sstq.scalar.codebooks.loss_optimal import loss_optimal_codebook, metric_aware_loss
from sstq.scalar.codebooks.panter_dite import panter_dite_codebook
from sstq.scalar.codebooks.rounding import interpolation, rounding_moments, stochastic_round, token_moments
from sstq.scalar.codebooks.surrogate import optimized_codebook, surrogate_loss

__all__ = [
    "BITS_MAX",
    "BITS_MIN",
    "Codebook",
    "check_bits",
    "interpolation",
    "loss_optimal_codebook",
    "metric_aware_loss",
    "optimized_codebook",
    "panter_dite_codebook",
    "rounding_moments",
    "stochastic_round",
    "surrogate_loss",
    "token_moments",
    "uniform_codebook",
]
