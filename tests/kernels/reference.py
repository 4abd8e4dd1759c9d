"""Slow float64 references, written without any of the library's code."""

import numpy as np

FLOAT32_ROUNDING = 2.0**-24


def butterflies(x):
    """The unnormalised Hadamard transform of the last axis in float64."""
    x = np.array(x, np.float64)
    half = 1
    while half < x.shape[-1]:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        upper = pairs[..., 0, :].copy()
        lower = pairs[..., 1, :].copy()
        pairs[..., 0, :] = upper + lower
        pairs[..., 1, :] = upper - lower
        half *= 2
    return x


def kashin(x, columns, schedule):
    """The loop of the docstring of kashin_pick: t, the residual norms, and a bound of single precision's error in t."""
    places, signs, size = columns
    v = np.zeros((len(x), size))
    v[:, places] = np.float64(signs) * x
    mask = np.zeros(size)
    mask[places] = 1

    def project(coefficients):
        return butterflies(mask * butterflies(coefficients)) / size

    # A projection is two transforms of log₂ N levels and a few more roundings, each relative to ‖a‖₂, and they add up
    # in a = H v − P t. As a map of t a step, (I − r·P)·t + r·H v up to that, is followed by clips, which do not expand.
    rounding = (2 * np.log2(size) + 8) * FLOAT32_ROUNDING
    drift = np.zeros(len(x))
    bound = np.zeros(len(x))
    a = butterflies(v)
    t = np.zeros_like(a)
    quotients = [np.zeros(len(x)), np.zeros(len(x))]
    for relaxation, stretch, cap, box in np.float64(schedule):
        r = np.maximum(relaxation, np.minimum(stretch * quotients[-2], 16))
        new = np.clip(t + np.clip(r[:, None] * a, -cap, cap), -box, box)
        reduction = np.linalg.norm(project(new - t), axis=1) ** 2
        quotients.append(
            np.linalg.norm(new - t, axis=1) ** 2 / np.maximum(reduction, 1e-30)
        )
        drift += rounding * np.linalg.norm(a, axis=1)
        # Twice the drift: r itself is off by a few roundings.
        bound = (
            np.maximum(1, np.abs(r - 1)) * bound
            + 2 * r * drift
            + rounding * np.linalg.norm(new, axis=1)
        )
        a = project(a - (new - t))
        t = new
    return t, residual_norms(x, columns, t), bound


def residual_norms(x, columns, t):
    """‖x − signs·gather(H t)/N‖₂ for every row."""
    places, signs, size = columns
    return np.linalg.norm(x - signs * butterflies(t)[:, places] / size, axis=1)
