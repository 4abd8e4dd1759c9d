"""Encoding many files of vectors to one message file each, in any order, in parallel and after interruptions.

A client must not send two messages about one vector: together they would cost 2ε. So a shard's message file gets its
name only when it is finished, and only if nobody else has finished it by then; it is never replaced or encoded again. A
try that fails leaves nothing but a file in a hidden folder (`unfinished_folder`).

Every encoder draws the same number of 64-bit words for each vector, whatever the vector is. So in a simulation the
words of vector k begin at k times that number, and parts of one long run can be encoded anywhere, in any order and more
than once (`stream_part`). Secret randomness has no stream and needs none of this.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sstq.checks import check_option
from sstq.files.atomic import atomic_file, sync_folder
from sstq.files.strict_json import read_json
from sstq.mechanisms import LocalReport, Mechanism
from sstq.mechanisms.encoding import encode_files
from sstq.messages.files import describe_messages, write_messages
from sstq.messages.vectors import VectorFile, open_vectors, refuse_repeated

FORMATS = ("sstq", "parquet")


@dataclass(frozen=True)
class Shard:
    """A file of vectors and the message file it is encoded to.

    Its vectors are number `first` to `first + count - 1` of those of all shards, which is their place in a seeded
    stream; `key` is an array of an .npz, `column` a list column of a Parquet file, `by` a column of public labels,
    and `group` one of private groups, of these names if they are not integers.
    """

    vectors: Path
    messages: Path
    first: int
    count: int
    key: str | None = None
    column: str | None = None
    by: str | None = None
    group: str | None = None
    group_names: Sequence[str] | None = None

    def open(self, dim: int) -> VectorFile:
        """Open the vectors; ValueError if their number has changed since the shards were planned."""
        file = open_vectors(self.vectors, dim, self.key, self.column, self.by, self.group, self.group_names)
        if file.count != self.count:
            raise ValueError(
                f"{self.vectors} must have {self.count} vectors, as when the shards were planned, got {file.count}"
            )
        return file


def plan_shards(
    vectors: Sequence[Path],
    folder: Path,
    dim: int,
    *,
    kind: str = "sstq",
    key: str | None = None,
    column: str | None = None,
    by: str | None = None,
    group: str | None = None,
    group_names: Sequence[str] | None = None,
) -> list[Shard]:
    """Plan one shard per file of vectors: NAME.npy becomes NAME.sstq (or NAME.parquet) in the folder.

    Args:
        vectors: files that `sstq.messages.vectors.open_vectors` reads, of which only the headers are read here.
        folder: the folder for the message files.
        dim: the length of the vectors.
        kind: the format of the message files, "sstq" or "parquet".
        key: the array to read from .npz files.
        column: the list column to read from Parquet files.
        by: the column with public labels.
        group: the column with private groups.
        group_names: the names of the private groups, in the order of their numbers.

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
    shards: dict[Path, Shard] = {}
    first = 0
    for path in vectors:
        messages = folder / f"{path.stem}.{kind}"
        if other := shards.get(messages):
            raise ValueError(f"{other.vectors} and {path} would both be written to {messages}: use different names")
        count = open_vectors(path, dim, key, column, by, group, group_names).count
        if not count:
            raise ValueError(f"there are no vectors in {path}")
        shards[messages] = Shard(path, messages, first, count, key, column, by, group, group_names)
        first += count
    for messages in shards:
        if any(messages.exists() and messages.samefile(path) for path in vectors):
            raise ValueError(f"folder must not contain the input file {messages}; choose another folder")
    return list(shards.values())


def unfinished_folder(folder: Path) -> Path:
    """The folder of unfinished message files; remove it when nobody writes to the folder any more."""
    return folder / ".unfinished"


def record_simulation(folder: Path, mechanism: Mechanism, seed: int, shards: Sequence[Shard]) -> None:
    """Record in `.simulation.json`, before anything is encoded, which parts of a seed's stream the shards use.

    A run with another seed, other shards or another order would mix parts of different streams,
    so it is refused with a ValueError, and so are message files without such a record. Vectors are not compared.
    """
    path = folder / ".simulation.json"
    places = [[shard.messages.name, shard.first, shard.count] for shard in shards]
    note = {"seed": seed, "mechanism": mechanism.digest(), "shards": places}
    if not path.exists():
        for shard in shards:
            if shard.messages.exists():
                missing = f"{path.name}, the record of its simulation"
                raise ValueError(f"{shard.messages} exists without {missing}; choose another folder")
        with atomic_file(path) as file:
            file.write(json.dumps(note).encode() + b"\n")
        return
    try:
        found = dict(read_json(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}; choose another folder") from error
    differing = ", ".join(part for part in note if found.get(part) != note[part])
    if differing:
        raise ValueError(f"{path} belongs to another simulation, which differs in {differing}; choose another folder")


def encode_shard(
    shard: Shard, mechanism: Mechanism, rng: Generator | None = None, *, clients: NDArray[np.uint64] | None = None
) -> LocalReport | None:
    """Encode the vectors of a shard, completely or not at all; None if its message file already exists.

    Args:
        shard: a shard of `plan_shards`. The unfinished folder must exist.
        mechanism: the mechanism to encode with.
        rng: None for secret randomness; for simulations the generator that all shards share, each using its own part.
        clients: with a public coin, the identifiers of the shard's clients.

    Raises:
        ValueError: vectors that encoding refuses, or an existing message file that cannot be this shard's.
    """
    if shard.messages.exists():
        found = describe_messages(shard.messages)
        same = (found.digest, found.count) == (mechanism.digest(), shard.count * mechanism.messages)
        if not same or (found.simulated, found.label_column) != (rng is not None, shard.by):
            beside = "" if shard.by is None else f" and labels by {shard.by}"
            seeded = "" if rng is None else " and a seed"
            expected = f"the messages of {shard.vectors} with this mechanism{beside}{seeded}"
            raise ValueError(f"{shard.messages} exists, but does not hold {expected}; choose another folder")
        return None
    file = shard.open(mechanism.dim)
    report = LocalReport()
    attempt = unfinished_folder(shard.messages.parent) / f"{secrets.token_hex(8)}-{shard.messages.name}"
    with stream_part(rng, mechanism, shard.first, shard.count) as part:
        write_messages(attempt, encode_files(mechanism, [file], part, clients=clients, report=report))
    return report if _publish(attempt, shard.messages) else None


def _publish(attempt: Path, target: Path) -> bool:
    """Give a finished file its name, once: a link fails if the name exists, while a move would replace it."""
    try:
        os.link(attempt, target)
    except (FileExistsError, FileNotFoundError):
        # Not found: another try has finished, and the unfinished ones were removed.
        if not target.exists():
            raise
        return False
    finally:
        attempt.unlink(missing_ok=True)
    sync_folder(target.parent)
    return True


@contextmanager
def stream_part(rng: Generator | None, mechanism: Mechanism, first: int, count: int) -> Iterator[Generator | None]:
    """Yield a generator for the vectors from number `first` on in a run that began with `rng`, which stays unchanged.

    Exactly `count` vectors must be encoded with it; RuntimeError otherwise. None (secret
    randomness) stays None. With several messages per person the slots of a part are adjacent, unlike those of a run.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
        >>> X, rng = np.ones((10, 3)), np.random.default_rng(5)
        >>> with stream_part(rng, mechanism, first=4, count=6) as part:
        ...     later = mechanism.encode(X[4:], part)
        >>> later.to_bytes() == mechanism.encode(X, rng)[4:].to_bytes()
        True
    """
    if rng is None:
        yield None
        return
    each = mechanism.words_each * mechanism.messages
    part = _ahead(rng, first * each)
    yield part
    if part.bit_generator.state != _ahead(rng, (first + count) * each).bit_generator.state:
        raise RuntimeError(f"{mechanism.name} did not draw {each} words for each of {count} vectors")


def _ahead(rng: Generator, words: int) -> Generator:
    """Return a copy of the generator, advanced by this many 64-bit words, each one step of PCG64."""
    copied = copy.deepcopy(rng)
    if not isinstance(copied.bit_generator, np.random.PCG64):
        raise ValueError(f"rng must be a PCG64 generator (numpy's default), got {type(rng.bit_generator).__name__}")
    if words:
        copied.bit_generator.advance(words)
    return copied
