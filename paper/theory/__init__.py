"""The theorems of the SSTQ paper as functions, with their conditions checked and their errors marked.

One module per section, numbered as in the paper: Theorem 2.4 (`representations`), Theorem 3.2 and Lemma B.1
(`flat_response`), Theorems 4.2 and 4.3 (`optimized_codebooks`), Theorems 5.1–5.3 and the bit width (`metric_aware`),
Theorem 6.2, Corollaries 6.3 and 6.4, Remarks 7.1 and F.1 (`convergence`), Theorem A.1, Remark A.2 and Table 1
(`polytopes`), and the least error of all (`optimum`).
What is only an order in the paper, O(·), is here a bound with a constant.

Notation: U is N×d with UᵀU = (N/d)·I, ρ = N/d, B = K·clip/√N, β = K/√ρ, M = 2^b and p, q are the probabilities of
randomized response. Arguments have the same meaning everywhere: `dim` is d, `epsilon` is ε in [1e-6, 32], `bits` is b
in [1, 12], `level` is K ≥ √ρ and `frame_size` is N ≥ d (by default the library's), `clip` bounds ‖x‖. Codebooks and
public densities of the coordinates are in units of B. docs/paper.md says how tight each bound is and what fails.

Examples:
    >>> import numpy as np, sstq
    >>> exact = sstq.SSTQ(dim=600, epsilon=3.0, bits=4, codebook="uniform").expected_mse(np.full(600, 600**-0.5)).total
    >>> exact < flat_mse_bound(600, 3.0, 4)
    True
"""

from paper.theory.convergence import *
from paper.theory.flat_response import *
from paper.theory.metric_aware import *
from paper.theory.optimized_codebooks import *
from paper.theory.optimum import *
from paper.theory.polytopes import *
from paper.theory.representations import *
