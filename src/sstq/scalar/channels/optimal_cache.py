"""Solved channels on disk, so that none is solved twice; nothing that is read is trusted.

The folder is $SSTQ_CACHE, else $XDG_CACHE_HOME/sstq, else ~/.cache/sstq. A file is named by the digest of the
configuration it belongs to and carries that configuration; whatever is missing, damaged or of another configuration is
solved again, and a folder that cannot be written is left alone.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sstq.files.atomic import atomic_file, cache_folder
from sstq.files.strict_json import read_json
from sstq.scalar.channels.optimal_exact import OptimalChannel

_FORMAT = "sstq-optimal-channel"


def read_cached(digest: str, configuration: Mapping[str, Any]) -> OptimalChannel | None:
    """The channel of that configuration if a sound file holds it: its integers and its means are checked anew."""
    try:
        fields = read_json(_path(digest).read_bytes())
        if fields.pop("format") != _FORMAT or fields.pop("configuration") != configuration:
            return None
        return OptimalChannel.from_dict(fields)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def write_cached(digest: str, configuration: Mapping[str, Any], solved: OptimalChannel) -> None:
    """Keep the channel, if the folder can be written."""
    text = json.dumps({"format": _FORMAT, "configuration": configuration} | solved.to_dict())
    try:
        path = _path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(text.encode())
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return


def _path(digest: str) -> Path:
    return cache_folder() / f"optimal-{digest}.json"
