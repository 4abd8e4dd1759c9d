"""`sstq encode`: encodes files of vectors as private messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import (
    ColumnOption,
    MechanismOption,
    VerboseOption,
    check_output,
    open_columns,
    privacy_of,
    read_mechanism,
    several_messages,
    warn_of_seed,
)
from sstq.cli.private_groups import GroupNamesOption, read_group_names
from sstq.cli.terminal import note, progress, show_facts, warn
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import LocalReport, Mechanism

__all__ = ["encode", "group_numbers"]


def encode(
    vectors: Annotated[
        list[Path],
        typer.Argument(
            metavar="VECTORS...",
            help="Encode the vectors in these files, one row per client: .npy, .npz, Parquet or CSV.",
        ),
    ],
    mechanism: MechanismOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Write this message file, Parquet if its name ends in .parquet.",
        ),
    ],
    column: ColumnOption = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Keep this column of the Parquet or CSV files as PUBLIC labels with the messages, for one "
            "mean per group. The server sees them.",
        ),
    ] = None,
    private_group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|FILE.npy",
            help="Encode this column, or an .npy of one integer per vector, as PRIVATE groups (GroupUnit) together "
            "with the vectors. Nobody sees them.",
        ),
    ] = None,
    group_names: GroupNamesOption = None,
    clients: Annotated[
        Path | None,
        typer.Option(
            help="Read client identifiers for a public coin from this .npy: distinct integers ≥ 0, one per vector."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Simulate with this seed instead of secret randomness. The result is NOT private."),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report", help="Print how many vectors were clipped or missed the certificate; keep this to yourself."
        ),
    ] = False,
    verbose: VerboseOption = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the message file. People who are encoded again spend ε again."),
    ] = False,
) -> None:
    """Encode each vector as one message, which is private unless the mechanism needs a trusted aggregator.

    The input is read, checked and encoded in pieces, whatever its size. If any vector is bad, no message file
    is written. A Parquet file has one column of lists of numbers, or one column of
    numbers per coordinate; a CSV file has one line per vector, and may have a header.

    With --by country each message carries the person's group as a public label, and `sstq aggregate`
    gives one mean per group. Only the vectors are private then: use it for what the server may know anyway. With
    --private-group diagnosis the group is as private as the vector. That needs a mechanism for it (sstq spec --name
    groupunit --set groups=10), and more people for the same error.

    Example: sstq encode embeddings.npy --mechanism mechanism.json --output messages.sstq
    """
    import numpy as np

    from sstq.mechanisms import LocalReport
    from sstq.messages.vectors import refuse_repeated

    shared = read_mechanism(mechanism)
    with check_usage():
        refuse_repeated(vectors)
    if by is not None and shared.trust == "aggregator":
        raise WrongUsage(f"--by needs a mechanism whose single messages are private, unlike {shared.name}")
    secret = _private_groups(shared, private_group)
    in_column = secret if isinstance(secret, str) else None
    names = read_group_names(group_names, shared)
    reading = {"column": column, "by": by, "group": in_column, "group_names": names}
    rng = None if seed is None else np.random.default_rng(seed)
    local = LocalReport() if report else None
    groups = secret if isinstance(secret, Path) else None
    total = _to_one_file(shared, mechanism, vectors, output, reading, groups, clients, rng, local, force)
    show_facts(
        str(output),
        [
            ("messages", total),
            ("bits per message", shared.message_bits),
            *several_messages(shared),
            ("file bytes", output.stat().st_size),
            ("digest", shared.digest()),
            ("private", privacy_of(shared, simulated=seed is not None)),
            ("public labels", by),
        ],
        verbose=verbose,
    )
    if by is not None:
        note(f"the column {by!r} is public: whoever has the file sees each message's group")
    if local is not None:
        note(
            f"local report: {local.vectors} vectors, {local.clipped} longer than clip, "
            f"{local.missed} missed the certificate. These counts depend on the data: keep them to yourself."
        )
    if seed is not None:
        warn_of_seed("the messages come from --seed and are marked as simulated")
    elif shared.trust != "local":
        warn(f"NOT PRIVATE: {privacy_of(shared, simulated=False).removeprefix('no: ')}")


def _to_one_file(
    mechanism: Mechanism,
    mechanism_path: Path,
    vectors: list[Path],
    output: Path,
    reading: dict[str, Any],
    groups: Path | None,
    clients: Path | None,
    rng: np.random.Generator | None,
    local: LocalReport | None,
    force: bool,
) -> int:
    """Write the messages of all vectors to one file; returns their number."""
    from sstq.mechanisms.encoding import encode_files
    from sstq.messages.files import write_messages

    if any(output.exists() and output.samefile(path) for path in (mechanism_path, *vectors)):
        raise WrongUsage(f"--output must not be an input file, got {output}")
    check_output(output, force)
    files = [open_columns(path, mechanism.dim, **reading) for path in vectors]
    total = sum(file.count for file in files)
    if not total:
        raise ValueError(f"there are no vectors in {', '.join(file.name for file in files)}")
    identifiers = _client_identifiers(mechanism, clients, total)
    numbers = None if groups is None else group_numbers(groups, total)
    named: dict[str, Any] = {"clients": identifiers, "groups": numbers}
    with progress("Encoding", total * mechanism.messages) as advance:
        return write_messages(output, encode_files(mechanism, files, rng, **named, report=local, advance=advance))


def _private_groups(mechanism: Mechanism, given: str | None) -> str | Path | None:
    """Return the column or the .npy of the private groups, which must be given exactly if the mechanism has groups."""
    if mechanism.groups is not None and given is None:
        raise WrongUsage(f"pass --private-group: {mechanism.name} encodes a group with every vector")
    if mechanism.groups is None and given is not None:
        remedy = f"sstq spec --name groupunit --dim {mechanism.dim} --epsilon {mechanism.epsilon!r} --set groups=10"
        raise WrongUsage(f"--private-group needs GroupUnit ({remedy}); {mechanism.name} has no private groups")
    return Path(given) if given is not None and given.endswith(".npy") else given


def group_numbers(path: Path, total: int) -> NDArray[np.int64]:
    """Read one integer per vector; the mechanism checks their range."""
    import numpy as np

    numbers = _read_numbers(path)
    if numbers.shape != (total,) or numbers.dtype.kind not in "iu":
        found = f"shape {numbers.shape} and dtype {numbers.dtype}"
        raise ValueError(f"{path}: --private-group must be {total} integers, one per vector, got {found}")
    return numbers.astype(np.int64)


def _read_numbers(path: Path) -> NDArray[Any]:
    from sstq.files.npy import DAMAGED_ARCHIVE, read_npy

    try:
        return read_npy(path)
    except (FileNotFoundError, PermissionError):
        raise
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{path}: {error}") from error


def _client_identifiers(mechanism: Mechanism, path: Path | None, total: int) -> NDArray[np.uint64] | None:
    """Read the clients' identifiers, which must be given exactly if the coin is public."""
    from sstq.messages.batch import client_ids

    if mechanism.coin == "private":
        if path is not None:
            raise WrongUsage("--clients must be left out: this mechanism's coin is private")
        return None
    if path is None:
        raise WrongUsage("pass --clients: with a public coin both sides need the clients' identifiers")
    numbers = _read_numbers(path)
    try:
        return client_ids(numbers, total)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
