"""Two mechanisms of one's own, which sstq finds by the entry points of this package."""

from own_mechanisms.coordinate_sign import CoordinateSign as CoordinateSign
from own_mechanisms.hadamard_response import HadamardResponse as HadamardResponse
