"""Where things that can be made or fetched again are kept on a user's disk."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """The folder $SSTQ_CACHE, else $XDG_CACHE_HOME/sstq, else ~/.cache/sstq; it need not exist.

    Raises:
        RuntimeError: none of the two is set and there is no home folder.

    Examples:
        >>> cache_folder().is_absolute()
        True
    """
    if chosen := os.environ.get("SSTQ_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "sstq"
