"""`sstq encode`: encodes files of vectors as private messages."""

from pathlib import Path

from sstq.cli.common import (
    COLUMNS,
    GROUPS,
    MECHANISM,
    NO_HEADER,
    VERBOSE,
    WrongUsage,
    argument,
    check_output,
    chosen,
    flag,
    option,
    output_option,
    privacy_of,
    read_mechanism,
    several_messages,
)
from sstq.cli.terminal import note, progress, show_facts, warn


def encode(
    vectors: list[Path] = argument(
        "Encode these vectors: .npy, Parquet or CSV, a row per person.",
        metavar="VECTORS...",
    ),
    mechanism: Path = MECHANISM,
    output: Path = output_option(
        "Write this message file, Parquet if its name ends in .parquet."
    ),
    columns: str | None = COLUMNS,
    no_header: bool = NO_HEADER,
    by: str | None = option(
        "Keep this column as PUBLIC labels of Parquet messages.", metavar="COLUMN"
    ),
    groups: Path | None = GROUPS,
    seed: int | None = option(
        "Simulate with this seed. The result is NOT private.", min=0
    ),
    verbose: bool = VERBOSE,
    force: bool = flag(
        "Overwrite the file. People encoded again spend ε again.", "--force"
    ),
) -> None:
    """Encode each row of a file as one private message.

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
    from sstq.inputs import LocalReport
    from sstq.mechanisms.answers import encode_files
    from sstq.messages.files import write_messages
    from sstq.messages.parquet import SUFFIXES

    shared = read_mechanism(mechanism)
    if by is not None and not output.name.lower().endswith(SUFFIXES):
        raise WrongUsage(
            f"--by keeps labels as a column of Parquet: --output must end in .parquet, got {output}"
        )
    check_output(output, force, inputs=(mechanism, *vectors))
    names = chosen(columns, no_header)
    people = shared.input.open(vectors, columns=names, by=by, groups=groups)
    report = LocalReport() if verbose else None
    with progress("Encoding", people.count * shared.messages) as advance:
        messages = encode_files(shared, people, seed, report=report, advance=advance)
        total = write_messages(output, messages, by)
    facts = {
        "messages": total,
        "bits per message": shared.message_bits,
        "digest": shared.digest(),
        **several_messages(shared),
        "file bytes": output.stat().st_size,
        "private": privacy_of(simulated=seed is not None),
        "public labels": by,
    }
    show_facts(str(output), facts, verbose=verbose)
    if by is not None:
        note(
            f"the column {by!r} is public: whoever has the file sees each message's group"
        )
    if report is not None:
        note(
            f"local report: {report.vectors} vectors, {report.clipped} longer than clip, "
            f"{report.missed} missed the certificate. These counts depend on the data: keep them to yourself."
        )
    if seed is not None:
        warn("NOT PRIVATE: the messages come from --seed and are marked as simulated")
