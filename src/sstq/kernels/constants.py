"""Constants that kernels and their callers share. Numba is not imported here."""

LONGEST_STEP = 16.0
"""The longest adaptive step of `kashin_pick`. Only inputs that no number of steps would represent ask for more."""

LEAST_REDUCTION = 1e-30
"""Stands in for a reduction of the residual that is zero, as that of a zero vector, or lost to rounding."""

LIMB_BITS = 30
"""The bits of a low limb of fixed-point sums; limbs and squares of 30 bits leave room for 2^32 messages in 63 bits."""
