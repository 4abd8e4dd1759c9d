"""Vectors in many files, encoded to one message file each: in any order, by anybody, after any interruption.

A client must not send two messages about one vector: together they would cost 2ε. So a shard's message file gets its
name only when it is finished, and only if nobody else has finished it by then; it is never replaced, and what is there
already is not encoded again. A try that fails leaves nothing but a file in a hidden folder (`unfinished_folder`), which
is nobody's message as long as nobody takes it out of there.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_option
from sstq.files.atomic import atomic_file, sync_folder
from sstq.files.strict_json import read_json
from sstq.mechanisms import LocalReport, Mechanism
from sstq.messages.files import describe_messages, write_messages
from sstq.messages.vectors import VectorFile, open_vectors, refuse_repeated
from sstq.runs.splitting import stream_part

__all__ = [
    "FORMATS",
    "Shard",
    "encode_shard",
    "is_finished",
    "plan_shards",
    "record_simulation",
    "unfinished_folder",
]

FORMATS = ("sstq", "parquet")


@dataclass(frozen=True)
class Shard:
    """A file of vectors and the message file that is made of it.

    Attributes:
        vectors: the file of vectors.
        messages: the message file.
        first: the number of its first vector among those of all shards: where its part of a seeded stream begins.
        count: how many vectors it has.
        key: which array of an .npz.
        column: which list column of a Parquet file.
    """

    vectors: Path
    messages: Path
    first: int
    count: int
    key: str | None = None
    column: str | None = None

    def open(self, dim: int) -> VectorFile:
        """The vectors; ValueError if they are not as many as when the shards were planned."""
        file = open_vectors(self.vectors, dim, self.key, self.column)
        if file.count != self.count:
            raise ValueError(f"{self.vectors} had {self.count} vectors, and has {file.count} now")
        return file


def plan_shards(
    vectors: Sequence[Path],
    folder: Path,
    dim: int,
    *,
    kind: str = "sstq",
    key: str | None = None,
    column: str | None = None,
) -> list[Shard]:
    """The shards of files of vectors: NAME.npy becomes NAME.sstq (or NAME.parquet) in the folder.

    Args:
        vectors: files that `sstq.messages.vectors.open_vectors` reads, of which only the headers are read here.
        folder: where the message files go.
        dim: the length of the vectors.
        kind: of the message files, "sstq" or "parquet".
        key: which array of .npz files.
        column: which list column of Parquet files.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for day in ("monday", "tuesday"):
        ...     np.save(folder / f"{day}.npy", np.zeros((10, 3)))
        >>> shards = plan_shards(sorted(folder.glob("*.npy")), folder, dim=3)
        >>> [(shard.messages.name, shard.first, shard.count) for shard in shards]
        [('monday.sstq', 0, 10), ('tuesday.sstq', 10, 10)]
    """
    check_option("kind", kind, FORMATS)
    refuse_repeated(vectors)
    shards: list[Shard] = []
    names: dict[Path, Path] = {}
    first = 0
    for path in vectors:
        messages = folder / f"{path.stem}.{kind}"
        if messages in names:
            raise ValueError(f"{names[messages]} and {path} would both be written to {messages}: use different names")
        names[messages] = path
        count = open_vectors(path, dim, key, column).count
        if not count:
            raise ValueError(f"there are no vectors in {path}")
        shards.append(Shard(path, messages, first, count, key, column))
        first += count
    for shard in shards:
        if any(shard.messages.exists() and shard.messages.samefile(path) for path in vectors):
            raise ValueError(f"{shard.messages} would be written, but is also read from; choose another folder")
    return shards


def unfinished_folder(folder: Path) -> Path:
    """Where message files are until they are finished; remove it when nobody writes to the folder any more."""
    return folder / ".unfinished"


def record_simulation(folder: Path, mechanism: Mechanism, seed: int, shards: Sequence[Shard]) -> None:
    """Note in the folder, before anything is encoded, which places in the stream of a seed its shards take.

    A run with another seed, other shards or another order would put parts of another stream beside those that are
    there, so it is refused, and so are message files without such a note. What the vectors are is not compared.

    Args:
        folder: of the message files; must exist. The note is the hidden file `.simulation.json`.
        mechanism: that encodes.
        seed: of the generator that all shards share.
        shards: all of them, of `plan_shards`.

    Raises:
        ValueError: the folder holds messages of another simulation, or of none.

    Examples:
        >>> import sstq, tempfile
        >>> folder, mechanism = Path(tempfile.mkdtemp()), sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
        >>> np.save(folder / "monday.npy", np.zeros((10, 3)))
        >>> shards = plan_shards([folder / "monday.npy"], folder, dim=3)
        >>> for seed in (5, 5, 6):
        ...     record_simulation(folder, mechanism, seed, shards)
        Traceback (most recent call last):
        ...
        ValueError: ... is of another simulation, which differs in seed; choose another folder
    """
    path = folder / ".simulation.json"
    places = [[shard.messages.name, shard.first, shard.count] for shard in shards]
    note = {"seed": seed, "mechanism": mechanism.digest(), "shards": places}
    if path.exists():
        try:
            found = dict(read_json(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged: {error}; choose another folder") from error
        differing = [part for part in note if found.get(part) != note[part]]
        if differing:
            raise ValueError(
                f"{path} is of another simulation, which differs in {', '.join(differing)}; choose another folder"
            )
        return
    for shard in shards:
        if shard.messages.exists():
            raise ValueError(
                f"{shard.messages} is there, but not {path.name}, which says of which simulation it is; choose another "
                "folder"
            )
    with atomic_file(path) as file:
        file.write(json.dumps(note).encode() + b"\n")


def encode_shard(
    shard: Shard,
    mechanism: Mechanism,
    rng: np.random.Generator | None = None,
    *,
    clients: NDArray[np.uint64] | None = None,
) -> LocalReport | None:
    """Encode the vectors of a shard, unless its message file is there; returns None then.

    The shard is read, checked and encoded a piece at a time; unless all of it can be encoded, there is no message file.

    Args:
        shard: of `plan_shards`. The unfinished folder must exist.
        mechanism: that encodes.
        rng: None for secret randomness; for simulation the generator that all shards share. Each takes its own part
            of the stream, so that the messages are those of one run over all of them.
        clients: behind a public coin, the identifiers of the shard's clients.

    Raises:
        ValueError: vectors that encoding refuses, or a message file that is there but cannot be this shard's.

    """
    if is_finished(shard, mechanism, simulated=rng is not None):
        return None
    file = shard.open(mechanism.dim)
    report = LocalReport()
    attempt = unfinished_folder(shard.messages.parent) / f"{secrets.token_hex(8)}-{shard.messages.name}"
    with stream_part(rng, mechanism, shard.first, shard.count) as part:
        write_messages(attempt, mechanism.encode_files([file], part, clients=clients, report=report))
    return report if _publish(attempt, shard.messages) else None


def is_finished(shard: Shard, mechanism: Mechanism, *, simulated: bool) -> bool:
    """Whether the message file is there; ValueError if there is one that cannot be this shard's."""
    if not shard.messages.exists():
        return False
    found = describe_messages(shard.messages)
    expected = (mechanism.digest(), shard.count, simulated)
    if (found.digest, found.count, found.simulated) != expected:
        raise ValueError(
            f"{shard.messages} is there, but not as the messages of {shard.vectors} with this mechanism"
            f"{' and a seed' if simulated else ''}; choose another folder"
        )
    return True


def _publish(attempt: Path, target: Path) -> bool:
    """Give a finished file its name, unless another has it: a name is given once, so that no two versions ever leave.

    A link does that in one step where moving the file would replace another.
    """
    try:
        os.link(attempt, target)
    except FileExistsError:
        return False
    except FileNotFoundError:
        # Another try has finished, and the unfinished ones were removed.
        if not target.exists():
            raise
        return False
    finally:
        attempt.unlink(missing_ok=True)
    sync_folder(target.parent)
    return True
