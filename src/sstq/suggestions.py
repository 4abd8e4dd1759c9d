"""“Did you mean”: what was probably meant by a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

__all__ = ["did_you_mean"]


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """The end of an error about a wrong name: a question with the closest of the right ones, or nothing.

    Examples:
        >>> did_you_mean("framunit", ["sstq", "frameunit"])
        "; did you mean 'frameunit'?"
        >>> did_you_mean("rainbow", ["sstq", "frameunit"])
        ''
    """
    close = get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
