"""Decoding values: what the server adds for a code, in units of B."""

import math

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL
from sstq.scalar.channels.base import Channel
from sstq.scalar.channels.flat import FlatChannel
from sstq.scalar.codebooks import Codebook

RESIDUAL_MAX = 1e-9
"""The largest bias of an "unbiased" decoder, in units of B."""

_RANK_TOLERANCE = 1e-12


def identity_decoder(codebook: Codebook) -> NDArray[np.float64]:
    """Return the codewords themselves: the paper's decoding of the metric-aware channel, biased towards 0.

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> identity_decoder(uniform_codebook(1))
        array([-1.,  1.])
    """
    return codebook.values


def unbiased_decoder(channel: Channel, codebook: Codebook) -> NDArray[np.float64]:
    """Return values w with Σ_i P(i|k)·w_i = c_k for every token k, P being the channel's integers over 2^62.

    For the flat channel w_k = (2^62·c_k − b·Σc)/(a − b). In general the linear system is solved by rank-revealing QR;
    of several solutions the one of least Σ_i π_i·w_i² (π the mean of the rows) is taken. Codes never sent get 0.

    Args:
        channel: the channel, with one input for each codeword.
        codebook: the codewords the tokens stand for.

    Raises:
        ValueError: when no solution is unbiased within 1e-9.

    Examples:
        >>> from sstq.scalar.channels import flat_channel
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> unbiased_decoder(flat_channel(1, 3.0), uniform_codebook(1)).round(4)
        array([-1.1048,  1.1048])

    """
    if channel.inputs != codebook.size:
        raise ValueError(f"codebook has {codebook.size} codewords, not one for each of {channel.inputs} tokens")
    if isinstance(channel, FlatChannel):
        total = math.fsum(codebook.values)
        contrast = channel.own - channel.other
        if contrast == 0:
            raise ValueError("no decoder is unbiased for this channel: its codes do not depend on the tokens")
        values: NDArray[np.float64] = codebook.values * (TOTAL / contrast) - total * (channel.other / contrast)
    else:
        values = _least_variance_solution(channel, codebook.values)
    residual = float(np.abs(channel.moments(values)[0] - codebook.values).max())
    if not residual <= RESIDUAL_MAX:
        raise ValueError(
            f"no decoder is unbiased for this channel: the best is off by {residual:.1e}, above {RESIDUAL_MAX}; "
            "take fewer bits or a larger epsilon"
        )
    return values


def _least_variance_solution(channel: Channel, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.linalg import lstsq

    distinct, first = np.unique(targets, return_index=True)
    used = channel.used
    rows = channel.probabilities()[np.ix_(first, used)]
    # In the unknowns √π·w the least norm is the least variance. Directions that no row can tell apart (cells thinner
    # than the arithmetic) are cut by the rank tolerance; they would only add noise.
    scales = 1 / np.sqrt(rows.mean(axis=0))
    solution = lstsq(rows * scales, distinct, cond=_RANK_TOLERANCE, lapack_driver="gelsy")[0]
    values = np.zeros(channel.outputs)
    values[used] = scales * solution
    return values
