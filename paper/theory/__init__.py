"""The theorems of the SSTQ paper as functions, with their conditions checked and their errors marked.

One module per section, numbered as in the paper: Lemma 2.3, Theorem 2.4 (`representations`), Theorems 3.1 and 3.2,
Lemma B.1 (`flat_response`), Theorems 4.2 and 4.3 (`optimized_codebooks`), Theorems 5.1–5.3 (`metric_aware`,
`bit_width`), Theorem 6.2, Corollaries 6.3 and 6.4, Remark F.1 (`convergence`), Theorem A.1, Remark A.2 (`polytopes`),
Tables 1 and 2 (`tables`). What is only an order in the paper, O(·), is here a bound with a constant.

Notation: U is N×d with UᵀU = (N/d)·I, ρ = N/d, B = K·clip/√N, β = K/√ρ, M = 2^b and p, q are the probabilities of
randomized response. The page on theory shows how tight each bound is, and lists the statements that fail as printed.

Examples:
    >>> import numpy as np, sstq
    >>> exact = sstq.SSTQ(dim=600, epsilon=3.0, bits=4, codebook="uniform").expected_mse(np.full(600, 600**-0.5)).total
    >>> exact < flat_mse_bound(600, 3.0, 4)
    True
"""

from paper.theory.bit_width import balanced_bits, best_flat_bits, stated_bits
from paper.theory.convergence import (
    Descent,
    dsgd_bound,
    dsgd_bound_at,
    dsgd_noise,
    dsgd_rate,
    dsgd_rounds,
    dsgd_step_size,
    flat_descent,
    metric_aware_descent,
)
from paper.theory.flat_response import (
    flat_bias,
    flat_mse_bound,
    flat_mse_rate,
    flat_second_moment_bound,
    probability_gap,
)
from paper.theory.metric_aware import (
    gap_constant,
    metric_aware_bias_bound,
    metric_aware_drift,
    metric_aware_mse_bound,
    metric_aware_privacy_loss,
    oscillation_ratio,
    panter_dite_distortion,
    refined_mse_bound,
    spatial_constant,
)
from paper.theory.optimized_codebooks import (
    flat_loss,
    flat_second_moment,
    optimized_mse_bound,
    optimized_mse_rate,
    rounding_variance,
    surrogate_curvature,
)
from paper.theory.polytopes import simplex_mse, vqsgd_mse, vqsgd_mse_bound
from paper.theory.representations import least_level, least_level_of, row_norm_defect
from paper.theory.tables import communication_table, error_orders

__all__ = [
    "Descent",
    "balanced_bits",
    "best_flat_bits",
    "communication_table",
    "dsgd_bound",
    "dsgd_bound_at",
    "dsgd_noise",
    "dsgd_rate",
    "dsgd_rounds",
    "dsgd_step_size",
    "error_orders",
    "flat_bias",
    "flat_descent",
    "flat_loss",
    "flat_mse_bound",
    "flat_mse_rate",
    "flat_second_moment",
    "flat_second_moment_bound",
    "gap_constant",
    "least_level",
    "least_level_of",
    "metric_aware_bias_bound",
    "metric_aware_descent",
    "metric_aware_drift",
    "metric_aware_mse_bound",
    "metric_aware_privacy_loss",
    "optimized_mse_bound",
    "optimized_mse_rate",
    "oscillation_ratio",
    "panter_dite_distortion",
    "probability_gap",
    "refined_mse_bound",
    "rounding_variance",
    "row_norm_defect",
    "simplex_mse",
    "spatial_constant",
    "stated_bits",
    "surrogate_curvature",
    "vqsgd_mse",
    "vqsgd_mse_bound",
]
