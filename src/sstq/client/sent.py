"""What was sent from this machine: a private record per campaign, so that nobody is sent twice by mistake."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from sstq.client.campaigns import Campaign
from sstq.files.atomic import locked_file

__all__ = ["SentRecord"]


class SentRecord:
    """The files that were sent to one campaign, as salted SHA-256 sums; readable by its owner only.

    Args:
        campaign: the campaign.
        key: the collector's public key, so that campaigns of one name at two collectors are two.
        folder: where records are kept; by default `sstq` in the user's state folder ($XDG_STATE_HOME).
    """

    def __init__(self, campaign: Campaign, key: str, folder: Path | None = None) -> None:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        which = hashlib.sha256(f"{key} {campaign.digest}".encode()).hexdigest()[:16]
        self.path = (folder or Path(state) / "sstq") / f"{campaign.name}-{which}.sent"

    def add(self, files: Iterable[Path], *, again: bool = False) -> None:
        """Note that these files are about to be sent; ValueError, and nothing noted, if one was sent before.

        Args:
            files: the files of vectors.
            again: allow files that were sent before, which spends their ε again.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked_file(self.path) as descriptor:
            lines = self.path.read_text(encoding="ascii").split()
            new = [] if lines else [secrets.token_hex(16)]
            salt = bytes.fromhex((lines or new)[0])
            for file in files:
                with file.open("rb") as opened:
                    line = hashlib.sha256(salt + hashlib.file_digest(opened, "sha256").digest()).hexdigest()
                if line not in lines:
                    new.append(line)
                elif not again:
                    raise ValueError(
                        f"{file} was sent to this campaign before: sending it again spends these people's ε "
                        "again; nothing was sent. Pass --again if that is what you want"
                    )
            os.lseek(descriptor, 0, os.SEEK_END)
            os.write(descriptor, "".join(f"{line}\n" for line in new).encode())
            os.fsync(descriptor)
