"""Sums of decoded vectors that have no privacy noise."""

from sstq.extending import VectorEstimator


class BoundedEstimator(VectorEstimator):
    """Sums of decoded vectors without privacy noise, whose coordinates may differ by many orders of magnitude.

    A coordinate, and its standard error, may be as small as the data: squares take two limbs. The unit is what no
    decoded coordinate exceeds.
    """

    # Values are kept to 2^-59 of the bound and squares to 2^-59 of its square.
    columns = 4
    value_bits = 59
    square_bits = 59
    most_units = 1.0
