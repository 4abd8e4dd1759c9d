"""What baselines without privacy share."""

import math
from abc import abstractmethod
from functools import cached_property
from typing import NoReturn

from paper.baselines.bounded_sums import BoundedEstimator
from sstq.extending import Estimate, Floats, Mechanism, Messages

# The norm of a clipped vector, rounded to single precision, exceeds 1 by less than this.
ROUNDING = 1e-6


class NotPrivate(Mechanism):
    """A mechanism without privacy: `epsilon` and `privacy_loss` are infinite, and there is no law to be exact about."""

    exact = False
    words_each = 0
    epsilon = math.inf

    @property
    @abstractmethod
    def decoding_bound(self) -> float:
        """The largest decoded coordinate."""

    @abstractmethod
    def _decoded(self, messages: Messages) -> Floats:
        """The estimates of single messages."""

    @property
    def draw(self) -> NoReturn:
        """ValueError: there is none."""
        raise ValueError(f"{self.name} has no privacy at all")

    def privacy_loss(self) -> float:
        """Infinite."""
        return math.inf

    def finished(self, estimate: Estimate) -> Estimate:
        """The estimate as it is: no noise hides how long the vectors are, so no advice about clip is needed."""
        return estimate

    @cached_property
    def estimator(self) -> BoundedEstimator:
        """Sums of the decoded vectors."""
        return BoundedEstimator(self, self.dim, self.decoding_bound, self._decoded)
