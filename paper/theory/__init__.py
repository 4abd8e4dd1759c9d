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

from paper.theory.bit_width import *
from paper.theory.convergence import *
from paper.theory.flat_response import *
from paper.theory.metric_aware import *
from paper.theory.optimized_codebooks import *
from paper.theory.polytopes import *
from paper.theory.representations import *
from paper.theory.tables import *
