"""`sstq encode`: vectors in, messages out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.common import MechanismOption, privacy_of, read_mechanism, require_folder_of, warn_of_seed
from sstq.cli.terminal import note, progress, show_facts, warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import LocalReport, Mechanism, Messages
    from sstq.randomness import RngLike
    from sstq.vector_files import VectorFile

__all__ = ["encode"]


def encode(
    vectors: Annotated[
        list[Path],
        typer.Argument(metavar="VECTORS...", help="Files of vectors, one row a client: .npy, .npz or Parquet."),
    ],
    mechanism: MechanismOption,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The message file to write; Parquet if its name ends in .parquet.")
    ],
    key: Annotated[str | None, typer.Option(help="Which array of the .npz files.")] = None,
    column: Annotated[str | None, typer.Option(help="Which list column of the Parquet files.")] = None,
    clients: Annotated[
        Path | None,
        typer.Option(help="Behind a public coin: an .npy of distinct non-negative integers, one for each vector."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For simulation: a seed instead of secret randomness. The result is NOT private.")
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Print how many vectors were clipped or missed the certificate; for you only."),
    ] = False,
) -> None:
    """Turn vectors into messages, one for each; private ones, unless the mechanism trusts the aggregator or all.

    All of the input is read and checked once before anything is sampled; then it is encoded a piece at a time, whatever
    its size. The message file appears whole or not at all. A Parquet file has one column of lists of floats, or one
    column of floats for each coordinate.

    Example: sstq encode embeddings.npy --mechanism mechanism.json --output messages.sstq
    """
    from sstq import LocalReport, write_messages
    from sstq.vector_files import open_vectors

    require_folder_of(output)
    if any(output.exists() and output.samefile(path) for path in (mechanism, *vectors) if path.exists()):
        raise ValueError(f"--output {output} is also read from; choose another name")
    shared = read_mechanism(mechanism)
    files = [open_vectors(path, shared.dim, key, column) for path in vectors]
    total = sum(file.count for file in files)
    if not total:
        raise ValueError(f"there are no vectors in {', '.join(file.name for file in files)}")
    identifiers = _client_identifiers(shared, clients, total)
    rng = _generator(seed)
    with progress("Checking", total) as advance:
        for file in files:
            for rows in file.chunks():
                advance(len(rows))

    local = LocalReport()
    with progress("Encoding", total) as advance:
        count = write_messages(output, _batches(shared, files, identifiers, rng, local, advance))
    show_facts(
        str(output),
        [
            ("messages", count),
            ("bits a message", shared.message_bits),
            ("file bytes", output.stat().st_size),
            ("digest", shared.digest()),
            ("private", privacy_of(shared, simulated=seed is not None)),
        ],
    )
    if report:
        note(
            f"local report: {local.vectors} vectors, {local.clipped} longer than clip, "
            f"{local.missed} missed the certificate. These counts depend on the data: keep them to yourself."
        )
    if seed is not None:
        warn_of_seed("the messages come from --seed and are for simulation only; they are marked so")
    elif shared.trust != "local":
        warn(f"the messages are in clear: {privacy_of(shared, simulated=False)}")


def _batches(
    mechanism: Mechanism,
    files: list[VectorFile],
    identifiers: NDArray[np.uint64] | None,
    rng: RngLike,
    local: LocalReport,
    advance: Callable[[int], None],
) -> Iterator[Messages]:
    start = 0
    for file in files:
        for rows in file.chunks():
            ids = None if identifiers is None else identifiers[start : start + len(rows)]
            yield mechanism.encode(rows, rng, clients=ids, report=local)
            start += len(rows)
            advance(len(rows))


def _generator(seed: int | None) -> RngLike:
    import numpy as np

    if seed is None:
        return None
    if seed < 0:
        raise ValueError(f"--seed must not be negative, got {seed}")
    return np.random.default_rng(seed)


def _client_identifiers(mechanism: Mechanism, path: Path | None, total: int) -> NDArray[np.uint64] | None:
    """Read the clients' identifiers; they must be there exactly when the coin is public."""
    import numpy as np

    from sstq.messages import client_ids

    if mechanism.coin == "private":
        if path is not None:
            raise ValueError("--clients is for public coins; this mechanism's coin is private")
        return None
    if path is None:
        raise ValueError("--clients is required: behind a public coin both sides name the clients")
    try:
        return client_ids(np.load(path, allow_pickle=False), total)
    except (ValueError, EOFError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from error
