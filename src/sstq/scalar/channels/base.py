"""What the channels have in common."""

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.scalar.codebooks import BITS_MAX

SIZE_MAX = 1 << BITS_MAX


class Channel(ABC):
    """A random map from tokens to codes; its matrix of integer weights decides everything.

    Attributes:
        name: the construction it comes from.
        epsilon: the privacy budget.
    """

    name: str
    epsilon: float

    @property
    @abstractmethod
    def matrix(self) -> NDArray[np.int64]:
        """The integer weights, (inputs, outputs), each row summing to 2^62."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The number of tokens."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of codes, those that never occur included."""

    @property
    @abstractmethod
    def used(self) -> NDArray[np.bool_]:
        """Which codes can occur."""

    @abstractmethod
    def probabilities(self) -> NDArray[np.float64]:
        """Return the weights divided by 2^62."""

    @abstractmethod
    def moments(self, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return E[w|token] and E[w²|token] of decoding values w, from the integer weights."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the integers themselves, for JSON; `channel_from_dict` is the inverse."""

    @abstractmethod
    def ratio(self) -> Fraction:
        """Return the largest ratio of two weights in one column, exactly."""

    @abstractmethod
    def _draw(self, tokens: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the codes of checked tokens and words."""

    def sample(self, tokens: ArrayLike, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Draw a code for each token, with the same work whatever the token and the word.

        Args:
            tokens: (n,) integers in [0, inputs).
            words: (n,) uniform integers in [0, 2^62), as uint64.

        Returns:
            (n,) codes in [0, outputs).

        """
        tokens = np.asarray(tokens)
        if tokens.dtype.kind not in "iu" or tokens.ndim != 1 or (tokens.size and not self._accepts(tokens)):
            raise ValueError(f"tokens must be a vector of integers in [0, {self.inputs})")
        if words.dtype != np.uint64 or words.shape != tokens.shape or (words >= TOTAL).any():
            raise ValueError("words must be uint64 numbers in [0, 2^62), one for each token")
        return self._draw(tokens.astype(np.int64, copy=False), words)

    def privacy_loss(self) -> float:
        """Return the largest log ratio of two weights in one column, rounded up to a double; never above ε."""
        return log_upper(self.ratio())

    def _accepts(self, tokens: NDArray[Any]) -> bool:
        return bool(tokens.min() >= 0 and tokens.max() < self.inputs)

    def _check_ratio(self) -> None:
        ratio = self.ratio()
        # e^ε is irrational and the bound is good to 58 digits: a ratio of 62-bit integers cannot fall in between.
        if ratio > exp_lower(self.epsilon):
            raise ValueError(
                f"the channel is not {self.epsilon}-LDP: its largest ratio of weights is {float(ratio):.17g}, "
                "above e^epsilon"
            )

    def _check_values(self, values: ArrayLike) -> NDArray[np.float64]:
        checked = np.asarray(values, dtype=np.float64)
        if checked.shape != (self.outputs,):
            raise ValueError(f"values has shape {checked.shape}, not one value for each of {self.outputs} codes")
        return checked
