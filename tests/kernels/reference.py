"""Slow float64 references, written without any of the library's code."""

import numpy as np

FLOAT32_ROUNDING = 2.0**-24


def butterflies(x):
    """The unnormalised Hadamard transform of the last axis in float64."""
    x = np.array(x, np.float64)
    half = 1
    while half < x.shape[-1]:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        upper, lower = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        pairs[..., 0, :] = upper + lower
        pairs[..., 1, :] = upper - lower
        half *= 2
    return x


def kashin(x, columns, signs, size, schedule):
    """The loop of the docstring of kashin_pick: t and the residual norms."""
    v = np.zeros((len(x), size))
    v[:, columns] = np.float64(signs) * x
    mask = np.zeros(size)
    mask[columns] = 1
    a = butterflies(v)
    t = np.zeros_like(a)
    for relaxation, cap, box in np.float64(schedule):
        new = np.clip(t + np.clip(relaxation * a, -cap, cap), -box, box)
        a = butterflies(mask * butterflies(a - (new - t))) / size
        t = new
    return t, residual_norms(x, columns, signs, size, t)


def residual_norms(x, columns, signs, size, t):
    """‖x − signs·gather(H t)/N‖₂ for every row."""
    return np.linalg.norm(x - signs * butterflies(t)[:, columns] / size, axis=1)
