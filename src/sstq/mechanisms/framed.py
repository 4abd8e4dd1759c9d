"""What mechanisms on a tight frame share: the same mechanism with another frame, for the next round."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

from sstq.frames.tight import Frame
from sstq.mechanisms.base import Mechanism, check_number

__all__ = ["FramedMechanism"]


class FramedMechanism(Mechanism):
    """A frozen dataclass of parts, one of which is its frame."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    frame: Frame

    @abstractmethod
    def _set_parts(self, **parts: Any) -> None:
        """Take the parts, whether built from options or read from JSON, and check that they belong together."""

    def with_frame_seed(self, frame_seed: int) -> Self:
        """The same mechanism with another frame, for the next round; nothing is solved again.

        Examples:
            >>> import sstq
            >>> sstq.SSTQ(dim=10, epsilon=1.0).with_frame_seed(5) == sstq.SSTQ(dim=10, epsilon=1.0, frame_seed=5)
            True
        """
        seed = check_number("frame_seed", frame_seed, 0, 2**64 - 1, integer=True)
        other = object.__new__(type(self))
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        other._set_parts(**parts | {"frame": replace(self.frame, seed=seed)})
        return other
