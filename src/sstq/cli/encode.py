"""`sstq encode`: vectors in, messages out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import (
    MechanismOption,
    check_output,
    privacy_of,
    read_mechanism,
    several_messages,
    warn_of_seed,
)
from sstq.cli.engines import AddressOption, EngineOption, engine
from sstq.cli.private_groups import GroupNamesOption, read_group_names
from sstq.cli.terminal import note, progress, show_facts, warn
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import LocalReport, Mechanism
    from sstq.runs.shards import Shard

__all__ = ["encode", "group_numbers"]


def encode(
    vectors: Annotated[
        list[Path],
        typer.Argument(metavar="VECTORS...", help="Files of vectors, one row per client: .npy, .npz, Parquet or CSV."),
    ],
    mechanism: MechanismOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The message file to write; Parquet if its name ends in .parquet. With --shards, a folder.",
        ),
    ],
    key: Annotated[str | None, typer.Option(help="Which array of the .npz files.")] = None,
    column: Annotated[str | None, typer.Option(help="Which list column of the Parquet files.")] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="PUBLIC groups: keep this column of the Parquet or CSV files in clear beside the messages, for one "
            "mean per group. The server sees it.",
        ),
    ] = None,
    private_group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|FILE.npy",
            help="PRIVATE groups, for GroupUnit: encode this column, or an .npy of one integer per vector, together "
            "with the vector. Nobody sees it.",
        ),
    ] = None,
    group_names: GroupNamesOption = None,
    clients: Annotated[
        Path | None,
        typer.Option(help="Behind a public coin: an .npy of distinct non-negative integers, one for each vector."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="For simulation: a seed instead of secret randomness. The result is NOT private."),
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Print how many vectors were clipped or missed the certificate; for you only."),
    ] = False,
    shards: Annotated[
        str | None,
        typer.Option(metavar="sstq|parquet", help="Write a message file of this kind for each file of vectors."),
    ] = None,
    engine_name: EngineOption = "local",
    address: AddressOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the message file. Who was in it and is encoded again spends ε again."),
    ] = False,
) -> None:
    """Encode each vector as one message. Messages are private unless the mechanism needs a trusted aggregator.

    The input is read, checked and encoded a piece at a time, whatever its size. The message file appears whole or not
    at all: one bad vector, and there is none. A Parquet file has one column of lists of numbers, or one column of
    numbers for each coordinate; a CSV file has one line per vector, and may have a header.

    With --shards every NAME.npy (…) becomes NAME.sstq or NAME.parquet in the folder --output. Files that are there are
    not encoded again, so that an interrupted run can be repeated without sending two messages about one vector. With
    --seed the messages are the same as those of one file for all, unless people send several; a folder takes one seed
    and one list of files then.

    With --by country the label of each person's group stands in clear beside the private message, and `sstq aggregate`
    gives one mean per group. Only the vectors are private then: use it for what the server may know of everybody. With
    --private-group diagnosis the group is as secret as the vector. That takes a mechanism made for it (sstq spec --name
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
        raise WrongUsage(f"--by needs a mechanism whose messages are private one by one, which {shared.name} is not")
    secret = _private_groups(shared, private_group)
    in_column = secret if isinstance(secret, str) else None
    if isinstance(secret, Path) and shards is not None:
        raise WrongUsage("--private-group must be a column with --shards: an .npy is for one message file")
    names = read_group_names(group_names, shared)
    reading = {"key": key, "column": column, "by": by, "group": in_column, "group_names": names}
    rng = None if seed is None else np.random.default_rng(seed)
    local = LocalReport() if report else None
    if shards is None:
        if engine_name == "ray":
            raise WrongUsage("--engine ray needs --shards: every task writes a file of its own")
        with engine(engine_name, address):
            groups = secret if isinstance(secret, Path) else None
            total = _to_one_file(shared, mechanism, vectors, output, reading, groups, clients, rng, local, force)
        size = output.stat().st_size
    else:
        if force:
            raise WrongUsage("--force is for one message file; with --shards those that are there stay as they are")
        planned = _plan(shared, vectors, output, shards, reading)
        with engine(engine_name, address) as in_ray:
            total = _to_shards(shared, planned, output, clients, seed, rng, local, in_ray)
        size = sum(shard.messages.stat().st_size for shard in planned)
    show_facts(
        str(output),
        [
            ("messages", total),
            ("bits per message", shared.message_bits),
            *several_messages(shared),
            ("file bytes", size),
            ("digest", shared.digest()),
            ("private", privacy_of(shared, simulated=seed is not None)),
            ("public labels", by),
        ],
    )
    if by is not None:
        note(f"the column {by!r} is in clear beside the messages: whoever has the file sees each message's group")
    if local is not None:
        note(
            f"local report: {local.vectors} vectors, {local.clipped} longer than clip, "
            f"{local.missed} missed the certificate. These counts depend on the data: keep them to yourself."
        )
    if seed is not None:
        warn_of_seed("the messages come from --seed and are for simulation only; they are marked so")
    elif shared.trust != "local":
        warn(f"the messages are in clear: {privacy_of(shared, simulated=False)}")


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
    from sstq.messages.files import write_messages
    from sstq.messages.vectors import open_vectors

    if any(output.exists() and output.samefile(path) for path in (mechanism_path, *vectors)):
        raise WrongUsage(f"--output {output} is also read from; choose another name")
    check_output(output, force)
    files = [open_vectors(path, mechanism.dim, **reading) for path in vectors]
    total = sum(file.count for file in files)
    if not total:
        raise ValueError(f"there are no vectors in {', '.join(file.name for file in files)}")
    identifiers = _client_identifiers(mechanism, clients, total)
    numbers = None if groups is None else group_numbers(groups, total)
    named: dict[str, Any] = {"clients": identifiers, "groups": numbers}
    with progress("Encoding", total * mechanism.messages) as advance:
        return write_messages(output, mechanism.encode_files(files, rng, **named, report=local, advance=advance))


def _plan(
    mechanism: Mechanism,
    vectors: list[Path],
    output: Path,
    kind: str,
    reading: dict[str, Any],
) -> list[Shard]:
    from sstq.checks import check_option
    from sstq.runs.shards import FORMATS, plan_shards

    with check_usage():
        check_option("--shards", kind, FORMATS)
    return plan_shards(vectors, output, mechanism.dim, kind=kind, **reading)


def _to_shards(
    mechanism: Mechanism,
    shards: list[Shard],
    output: Path,
    clients: Path | None,
    seed: int | None,
    rng: np.random.Generator | None,
    local: LocalReport | None,
    in_ray: bool,
) -> int:
    """Write a message file for each shard; returns the number of their messages."""
    import shutil

    from sstq.runs.shards import record_simulation, unfinished_folder

    total = sum(shard.count for shard in shards)
    identifiers = _client_identifiers(mechanism, clients, total)
    if seed is not None:
        output.mkdir(parents=True, exist_ok=True)
        record_simulation(output, mechanism, seed, shards)
    # What an interrupted run has left there was never finished, so never sent.
    shutil.rmtree(unfinished_folder(output), ignore_errors=True)
    unfinished_folder(output).mkdir(parents=True)
    there = 0
    try:
        with progress("Encoding", total) as advance:
            for shard, part in zip(shards, _reports(mechanism, shards, identifiers, rng, in_ray), strict=True):
                advance(shard.count)
                there += part is None
                if part is not None and local is not None:
                    local.vectors += part.vectors
                    local.clipped += part.clipped
                    local.missed += part.missed
    finally:
        shutil.rmtree(unfinished_folder(output), ignore_errors=True)
    if there:
        note(f"{there} of {len(shards)} message files were there already and were left as they are")
    return total * mechanism.messages


def _reports(
    mechanism: Mechanism,
    shards: list[Shard],
    clients: NDArray[np.uint64] | None,
    rng: np.random.Generator | None,
    in_ray: bool,
) -> Iterator[LocalReport | None]:
    """Encode the shards, yielding what each reports; None where the message file was there."""
    if in_ray:
        from sstq.integrations.ray import encode_shards

        yield from encode_shards(shards, mechanism, rng, clients=clients)
        return
    from sstq.runs.shards import encode_shard

    for shard in shards:
        ids = None if clients is None else clients[shard.first : shard.first + shard.count]
        yield encode_shard(shard, mechanism, rng, clients=ids)


def _private_groups(mechanism: Mechanism, given: str | None) -> str | Path | None:
    """Return the column or the .npy of the private groups; it must be there exactly when the mechanism has some."""
    if mechanism.groups is not None and given is None:
        raise WrongUsage(f"--private-group is required: {mechanism.name} encodes a group with every vector")
    if mechanism.groups is None and given is not None:
        remedy = f"sstq spec --name groupunit --dim {mechanism.dim} --epsilon {mechanism.epsilon!r} --set groups=10"
        raise WrongUsage(f"--private-group needs GroupUnit ({remedy}); {mechanism.name} has no private groups")
    return Path(given) if given is not None and given.endswith(".npy") else given


def group_numbers(path: Path, total: int) -> NDArray[np.int64]:
    """Read one integer per vector; whether there are such groups is for the mechanism to say."""
    import numpy as np

    numbers = _read_numbers(path)
    if numbers.shape != (total,) or numbers.dtype.kind not in "iu":
        found = f"shape {numbers.shape} and dtype {numbers.dtype}"
        raise ValueError(f"{path}: --private-group must be {total} integers, one for each vector, got {found}")
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
    """Read the clients' identifiers; they must be there exactly when the coin is public."""
    from sstq.messages.batch import client_ids

    if mechanism.coin == "private":
        if path is not None:
            raise WrongUsage("--clients is for public coins; this mechanism's coin is private")
        return None
    if path is None:
        raise WrongUsage("--clients is required: behind a public coin both sides name the clients")
    numbers = _read_numbers(path)
    try:
        return client_ids(numbers, total)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
