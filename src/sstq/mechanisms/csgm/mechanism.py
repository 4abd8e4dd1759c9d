"""CSGM and L2-CSGM: coordinate-subsampled Gaussian mechanisms, central (ε, δ)-privacy behind a trusted aggregator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from sstq.frames.kashin import default_level
from sstq.frames.tight import Frame
from sstq.mechanisms.csgm.coordinate_gaussian import CoordinateGaussian

__all__ = ["CSGM", "L2CSGM"]


class CSGM(CoordinateGaussian):
    """The coordinate-subsampled Gaussian mechanism, for coefficients bounded one by one (ℓ∞ geometry).

    With N frame coefficients of at most B = K·clip/√N (a Kashin representation), kept with rate γ = coordinates/N, the
    released mean is (ε, δ)-private for σ from N·f_α(B²) (`sstq.mechanisms.csgm.subsampled_gaussian`), and

        E‖x̂ − x‖² ≤ (d/N)²·(N·B²/(γ·n) + N·σ²/(γ·n)²).

    Rounding to one bit, ±B, costs no privacy, because the accounting has all coefficients at the bound anyway. A
    message is b bits for each of a fixed number of coefficients (the expected number and a margin, see
    `sstq.mechanisms.csgm.coordinate_sampling`), their number and a 128-bit seed.

    Warning:
        Not local privacy. Messages are in clear, and `decode` shows them: whoever adds them up is trusted
        (`trust` = "aggregator"), the channel to it must be confidential, and only its closed mean is private. The
        guarantee is for adding or removing one client's contribution; the number of messages is public. Noise is
        floating-point (`exact` is False).

    Reference: W.-N. Chen, D. Song, A. Özgür, P. Kairouz, *Privacy amplification via compression: achieving the optimal
    privacy-accuracy-communication trade-off in distributed mean estimation*, NeurIPS 2023.

    Args:
        dim: d, the length of the vectors.
        epsilon: ε of the released mean, 0.01 to 20.
        clients: n, the public number of clients of a round, which the mean divides by. More messages are refused.
        delta: δ of the released mean.
        clip: vectors longer than this are scaled down to it.
        bits: b, the bits of a kept coefficient, 1 to 12; 1 unless given.
        coordinates: how many of the N coefficients a client keeps on average; the default is the least power of two
            with at most twice the error (as bounded) of keeping all, or all if that is no longer a message.
        frame_size: N, a power of two; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame.
        level: the Kashin level K; the default is feasible for (dim, frame_size).
        steps: the number of steps of the representation, the same for every input.

    Examples:
        >>> mechanism = CSGM(dim=1000, epsilon=1.0, clients=1000)
        >>> mechanism.trust, mechanism.privacy_loss() <= 1.0
        ('aggregator', True)
        >>> import numpy as np
        >>> x = np.full(1000, 1000**-0.5)
        >>> mechanism.expected_mse(x, clients=1000).bias2 < 1e-9
        True
    """

    name: ClassVar[str] = "csgm"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"CSGM": {}}

    @staticmethod
    def _default_level(frame: Frame) -> float:
        return default_level(frame.dim, frame.size)

    @staticmethod
    def _energy_bound(beta: float) -> float:
        # All coefficients may be at the bound: the energy is not limited any further.
        return max(1.0, beta**2)


class L2CSGM(CoordinateGaussian):
    """CSGM with the accounting of ℓ₂ geometry: the sum of the squared coefficients is bounded too.

    A vector of the ball has least-norm coefficients of energy Σ y_j² ≤ (N/d)·clip². With at most 1.05 times that,
    enforced by every client, and single coefficients of at most B at a looser level (β = 3), the divergence is at most
    (E/B²)·f_α(B²) instead of N·f_α(B²): about a third of CSGM's, so that the error comes close to that of the Gaussian
    mechanism without compression. E counts the rounding to b bits, at its worst, so b should not be small (8 bits cost
    5 % of E; one bit makes this CSGM). The rest is as in `CSGM`, arguments and warning included.

    Reference: W.-N. Chen, B. Isik, P. Kairouz, A. No, S. Oh, Z. Xu, *Improved communication-privacy trade-offs in L2
    mean estimation under streaming differential privacy*, ICML 2024. (The scheme there rotates at random; a redundant
    frame flattens more, and coefficients beyond the bound are represented instead of cut.)

    Args:
        dim: d, the length of the vectors.
        epsilon: ε of the released mean, 0.01 to 20.
        clients: n, the public number of clients of a round, which the mean divides by. More messages are refused.
        delta: δ of the released mean.
        clip: vectors longer than this are scaled down to it.
        bits: b, the bits of a kept coefficient, 1 to 12; 8 unless given.
        coordinates: as in `CSGM`.
        frame_size: N, a power of two; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame.
        level: the Kashin level K; the default is 3·√(N/d), or more where the frame has little redundancy.
        steps: the number of steps of the representation, the same for every input.

    Examples:
        >>> loose = CSGM(dim=1000, epsilon=1.0, clients=1000, bits=8, coordinates=1024)
        >>> tight = L2CSGM(dim=1000, epsilon=1.0, clients=1000, bits=8, coordinates=1024)
        >>> tight.sigma * tight.bound < loose.sigma * loose.bound
        True
    """

    name: ClassVar[str] = "l2-csgm"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"L2-CSGM": {}}
    _default_bits: ClassVar[int] = 8

    @staticmethod
    def _default_level(frame: Frame) -> float:
        return max(3.0 * math.sqrt(frame.redundancy), default_level(frame.dim, frame.size))

    @staticmethod
    def _energy_bound(beta: float) -> float:  # noqa: ARG004 (what holds at β = 3 holds at higher levels)
        # Representations of Gaussian, spiked, constant, sparse, block and Hadamard vectors at β = 3 measure at most
        # 1.05 for d from 1 to 25,450 over 3 to 20 frames; a row beyond is scaled down and reported as missed.
        return 1.05
