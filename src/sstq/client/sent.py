"""What was sent from this machine: a private record per campaign, so that nobody is sent twice by mistake."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from sstq.checks import ArgumentError
from sstq.client.campaigns import Campaign
from sstq.files.atomic import locked_file

__all__ = ["record_sent"]


def record_sent(campaign: Campaign, key: str, files: Iterable[Path], *, again: bool = False) -> None:
    """Note that these files are about to be sent; ValueError, and nothing noted, if one was sent before.

    The record has salted SHA-256 sums. It is in the folder `sstq` of the user's state ($XDG_STATE_HOME), and readable
    by its owner only.

    Args:
        campaign: the campaign.
        key: the collector's public key, so that campaigns of one name at two collectors are two.
        files: the files of vectors.
        again: allow files that were sent before, which spends their ε again.
    """
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sstq"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    which = hashlib.sha256(f"{key} {campaign.digest}".encode()).hexdigest()[:16]
    with locked_file(folder / f"{campaign.name}-{which}.sent") as descriptor:
        lines = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("ascii").split()
        new = [] if lines else [secrets.token_hex(16)]
        salt = bytes.fromhex((lines or new)[0])
        for file in files:
            with file.open("rb") as opened:
                line = hashlib.sha256(salt + hashlib.file_digest(opened, "sha256").digest()).hexdigest()
            if line not in lines:
                new.append(line)
            elif not again:
                problem = f"must be set to send {file} once more, which spends these people's ε once more"
                raise ArgumentError(
                    "again", f"{problem}; nothing was sent, because it was sent to this campaign before"
                )
        os.lseek(descriptor, 0, os.SEEK_END)
        os.write(descriptor, "".join(f"{line}\n" for line in new).encode())
        os.fsync(descriptor)
