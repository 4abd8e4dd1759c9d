"""`sstq encode`: encodes files of vectors as private messages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sstq.cli.common import (
    ColumnsOption,
    MechanismOption,
    VerboseOption,
    WrongUsage,
    argument,
    check_output,
    open_files,
    option,
    output_option,
    privacy_of,
    read_mechanism,
    several_messages,
)
from sstq.cli.terminal import note, progress, show_facts, warn

if TYPE_CHECKING:
    from numpy.typing import NDArray


def encode(
    vectors: Annotated[
        list[Path], argument("Encode these vectors: .npy, Parquet or CSV, a row per person.", metavar="VECTORS...")
    ],
    mechanism: MechanismOption,
    output: Annotated[Path, output_option("Write this message file, Parquet if its name ends in .parquet.")],
    columns: ColumnsOption = None,
    by: Annotated[
        str | None, option("Keep this column as PUBLIC labels of Parquet messages.", metavar="COLUMN")
    ] = None,
    private_group: Annotated[Path | None, option("Encode the PRIVATE groups in this .npy with the vectors.")] = None,
    seed: Annotated[int | None, option("Simulate with this seed. The result is NOT private.", min=0)] = None,
    verbose: VerboseOption = False,
    force: Annotated[bool, option("Overwrite the file. People encoded again spend ε again.", "--force")] = False,
) -> None:
    """Encode each vector as one message, which is private unless the mechanism needs a trusted aggregator.

    The input is read, checked and encoded in pieces, whatever its size. If any vector is bad, no message file
    is written. With a survey (sstq survey init) the files are tables that have its columns, and each line is one
    person. --verbose also prints how many vectors were clipped; keep that to yourself.

    With --by country each message carries the person's group as a public label, and `sstq aggregate --by country`
    gives one mean per group. With --private-group diagnosis.npy, one integer from 0 on per person, the group is as
    private as the vector. That needs a mechanism for it (sstq spec --name groupunit --set groups=10), and more people
    for the same error.

    Example: sstq encode embeddings.npy --mechanism mechanism.json --output messages.sstq

    Example: sstq encode people.csv --columns age,bmi -m mechanism.json -o messages.sstq
    """
    import numpy as np

    from sstq.mechanisms import LocalReport
    from sstq.mechanisms.answers import encode_files
    from sstq.messages.files import write_messages
    from sstq.messages.parquet import SUFFIXES

    shared = read_mechanism(mechanism)
    if by is not None and not output.name.lower().endswith(SUFFIXES):
        raise WrongUsage(f"--by keeps labels as a column of Parquet: --output must end in .parquet, got {output}")
    if by is not None and shared.trust == "aggregator":
        raise WrongUsage(f"--by needs a mechanism whose single messages are private, unlike {shared.name}")
    if (private_group is not None) != (shared.groups is not None):
        raise WrongUsage("--private-group is for mechanisms with private groups (sstq spec --name groupunit) only")
    check_output(output, force, inputs=(mechanism, *vectors))
    counted = LocalReport() if verbose and shared.name != "survey" else None
    if shared.name == "survey":
        if by is not None or columns is not None:
            raise WrongUsage("--by and --columns are for vectors; a survey takes tables")
        from sstq.mechanisms.survey.schema import read_table

        rng = None if seed is None else np.random.default_rng(seed)
        survey: Any = shared
        total = write_messages(output, (survey.encode(read_table(path, survey), rng) for path in vectors))
    else:
        files, count = open_files(vectors, shared.dim, columns, by=by)
        groups = None if private_group is None else read_integers(private_group, count)
        with progress("Encoding", count * shared.messages) as advance:
            messages = encode_files(shared, files, seed, groups=groups, report=counted, advance=advance)
            total = write_messages(output, messages, by)
    facts = [
        ("messages", total),
        ("bits per message", shared.message_bits),
        ("digest", shared.digest()),
        *several_messages(shared),
        ("file bytes", output.stat().st_size),
        ("private", privacy_of(shared, simulated=seed is not None)),
        ("public labels", by),
    ]
    show_facts(str(output), facts, verbose=verbose)
    if by is not None:
        note(f"the column {by!r} is public: whoever has the file sees each message's group")
    if counted is not None:
        note(
            f"local report: {counted.vectors} vectors, {counted.clipped} longer than clip, "
            f"{counted.missed} missed the certificate. These counts depend on the data: keep them to yourself."
        )
    if seed is not None:
        warn("NOT PRIVATE: the messages come from --seed and are marked as simulated")
    elif shared.trust != "local":
        warn(f"NOT PRIVATE: {privacy_of(shared, simulated=False).removeprefix('no: ')}")


def read_integers(path: Path, total: int) -> "NDArray[Any]":
    """Read one integer per vector from a .npy file; the mechanism checks their range."""
    from sstq.inputs.files import load_array

    numbers = load_array(path)
    if numbers.shape != (total,) or numbers.dtype.kind not in "iu":
        got = f"shape {numbers.shape} and dtype {numbers.dtype}"
        raise ValueError(f"{path} must hold {total} integers, one per vector, got {got}")
    return numbers
