"""`sstq study`: asks cohorts in turn, from the shell. The state of a study is one JSON file."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sstq.cli.common import (
    ForceOption,
    WrongUsage,
    argument,
    check_output,
    check_usage,
    option,
    output_option,
    read_mechanism,
    split,
    write_text,
)
from sstq.cli.terminal import note, show_table

if TYPE_CHECKING:
    from sstq.studies import Question, Study
    from sstq.studies.results import WordsResult

HELP = """
Ask cohorts in turn; everybody answers once, so the ε of a message is a person's total.

`new` writes the state of a study. Repeat `question`, `answer` and `learn` until no cohort is left, then see `result`.
"""

FileArgument = Annotated[Path, argument("The state of the study, a JSON file.", metavar="FILE")]
PeopleOption = Annotated[int, option("The number of people.", "--people", "-n")]
_KINDS = "words, range, columns or panel"


def new(
    file: FileArgument,
    kind: Annotated[str, option(f"Study this: {_KINDS}.")],
    epsilon: Annotated[float | None, option("Spend this ε per person, in total; a panel has its mechanism's.")] = None,
    longest: Annotated[int, option("For words: the most letters of a string.")] = 16,
    candidates: Annotated[Path | None, option("For words: a file of public strings, one per line.")] = None,
    shuffled: Annotated[float | None, option("For words: messages are shuffled; this is the total δ.")] = None,
    dim: Annotated[int | None, option("For a range: the length of the vectors.")] = None,
    columns: Annotated[str | None, option("For columns: their names, such as age,bmi.")] = None,
    mechanism: Annotated[Path | None, option("For a panel: the survey or mechanism to ask in every period.")] = None,
    periods: Annotated[int, option("For a panel: the number of periods.")] = 52,
    period: Annotated[str, option("For a panel: what a period is called.")] = "week",
    force: ForceOption = False,
) -> None:
    """Write the state of a new study.

    Example: sstq study new words.json --kind words --epsilon 3

    Example: sstq study new year.json --kind panel --mechanism survey.json
    """
    from sstq.studies import Panel, Range, Words

    check_output(file, force, "FILE")
    needed = {"words": epsilon, "range": dim and epsilon, "columns": columns and epsilon, "panel": mechanism}
    if kind not in needed:
        raise WrongUsage(f"--kind must be {_KINDS}, got {kind!r}")
    if not needed[kind]:
        wanted = {"range": "--dim and --epsilon", "columns": "--columns and --epsilon", "panel": "--mechanism"}
        raise WrongUsage(f"--kind {kind} needs {wanted.get(kind, '--epsilon')}")
    study: Study
    with check_usage():
        if kind == "words":
            known = candidates.read_text(encoding="utf-8").splitlines() if candidates else []
            trust: dict[str, Any] = {} if shuffled is None else {"trust": "shuffler", "delta": shuffled}
            study = Words(epsilon or 0.0, longest, candidates=known, **trust)
        elif kind == "range":
            study = Range(dim or 0, epsilon or 0.0)
        elif kind == "columns":
            study = Range(columns=split(columns), epsilon=epsilon or 0.0)  # type: ignore[call-arg]
        else:
            study = Panel(read_mechanism(mechanism or Path()), periods, period)
    write_text(file, study.to_json() + "\n")


def plan(file: FileArgument, people: PeopleOption) -> None:
    """Show how many people to ask in each cohort, and the expected error; exit code 1 if the study cannot work.

    Example: sstq study plan words.json --people 100000
    """
    planned = _read(file).plan(people)
    rows = [(name, f"{count:,}") for name, count in planned.cohorts.items()]
    show_table(f"{people:,} people", ("cohort", "people"), rows, caption="")
    if not planned.works:
        raise ValueError(f"the study cannot work: {planned.problem}")
    note(f"{planned.of}: {planned.error:.3g}")


def question(
    file: FileArgument,
    people: PeopleOption,
    output: Annotated[Path, output_option("Write the question to this file.")],
    force: ForceOption = False,
) -> None:
    """Write the question for the next cohort, of so many people; publish it to these people's devices.

    Example: sstq study question words.json --people 30000 --output question.json
    """
    check_output(output, force, inputs=[file])
    study = _read(file)
    cohort = study.cohorts_left[0] if study.cohorts_left else ""
    document = study.question(people)
    _replace(file, study)
    write_text(output, document)
    note(f"this is the question for the cohort “{cohort}” of {people:,} people")


def answer(
    document: Annotated[Path, argument("The question, as `sstq study question` writes it.", metavar="QUESTION")],
    values: Annotated[Path, argument("What people hold, one row each: text, CSV, Parquet or .npy.", metavar="VALUES")],
    most_epsilon: Annotated[float, option("Refuse a question that asks for more ε per person.")],
    output: Annotated[Path, output_option("Write the messages to this file.")],
    column: Annotated[str | None, option("For words: the column of the table.")] = None,
    force: ForceOption = False,
) -> None:
    """Answer a question for some people: one private message each, whatever their values are.

    Example: sstq study answer question.json people.csv --column drink --most-epsilon 3 --output messages.sstq
    """
    from sstq.accounting.ledger import price
    from sstq.messages.files import write_messages
    from sstq.studies import Question

    check_output(output, force, inputs=[document, values])
    asked = Question.from_json(document.read_text(encoding="utf-8"))
    if price(asked.mechanism) > most_epsilon:
        raise WrongUsage(f"the study asks for epsilon = {price(asked.mechanism):g}, more than --most-epsilon")
    messages = asked.encode(read_values(values, asked, column))
    write_messages(output, messages)
    note(f"wrote {len(messages):,} messages to {output}; nobody may answer another question of this study")


def learn(
    file: FileArgument,
    messages: Annotated[list[Path], argument("The messages of the cohort that was asked.", metavar="MESSAGES...")],
) -> None:
    """Learn from the messages of the cohort that was asked last.

    Example: sstq study learn words.json messages.sstq
    """
    study = _read(file)
    aggregator = study.asked.mechanism.aggregator()
    for path in messages:
        aggregator.update_from_file(path)
    study.learn(aggregator)
    _replace(file, study)
    left = len(study.cohorts_left)
    note(f"learned from {aggregator.count:,} people; cohorts left: {left}" if left else "the result is there")


def result(
    file: FileArgument,
    output: Annotated[Path | None, output_option("Write the result to this CSV file.")] = None,
    plot: Annotated[Path | None, option("Draw it to this picture, such as result.png.")] = None,
    question: Annotated[str, option("For a panel of a survey: draw this question.")] = "",
    force: ForceOption = False,
) -> None:
    """Show the result, and write or draw it.

    Example: sstq study result words.json --output words.csv --plot words.png
    """
    from sstq.plots.canvas import save
    from sstq.studies.panel_results import PanelResult
    from sstq.studies.results import WordsResult

    for path in (output, plot):
        check_output(path, force, inputs=[file])
    found = _read(file).result
    columns = found.columns()
    rows = list(zip(*columns.values(), strict=True))
    shown = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    show_table(repr(found), list(columns), shown, caption="")
    if isinstance(found, WordsResult):
        note_others(found)
    if output is not None:
        with io.StringIO() as text:
            csv.writer(text, lineterminator="\n").writerows([list(columns), *rows])
            write_text(output, text.getvalue())
    if plot is not None:
        chosen = {"question": question} if isinstance(found, PanelResult) else {}
        save(found.plot(**chosen), plot)
        note(f"wrote {plot}")


def note_others(found: "WordsResult") -> None:
    """Say how many people hold strings that are not listed."""
    note(f"{max(0.0, found.others[0]):.0%} of the people hold others: rare strings, or longer than the study asks for")


def _read(file: Path) -> "Study":
    from sstq.studies import Study

    try:
        return Study.from_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _replace(file: Path, study: "Study") -> None:
    """Write the state again, whole or not at all."""
    from sstq.files.atomic import atomic_file

    with atomic_file(file) as opened:
        opened.write((study.to_json() + "\n").encode())


def read_values(path: Path, question: "Question", column: str | None) -> Sequence[Any]:
    """Read what people hold, as a question of its kind takes it."""
    import numpy as np

    suffix = path.suffix.lower()
    if suffix == ".npy":
        return list(np.load(path, allow_pickle=False))
    if suffix == ".txt":
        return path.read_text(encoding="utf-8").splitlines()
    records = _parquet_records(path) if suffix == ".parquet" else _csv_records(path)
    names = list(records[0]) if records else []
    if question.kind == "words":
        return read_texts(path, column)
    if question.kind in ("norm", "vector") or question.mechanism.name == "frameunit":
        return [[record.get(name) for name in names] for record in records]
    return records if question.mechanism.name == "survey" else [_whole(record.get(names[0])) for record in records]


def _whole(value: Any) -> Any:
    """A number as an integer, if it is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_texts(path: Path, column: str | None) -> list[str | None]:
    """Read a column of texts."""
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        names = table.column_names
        found = table[column].to_pylist() if column in names else []
        cells = [None if cell is None else str(cell) for cell in found]
    else:
        from sstq.inputs.csv_files import csv_rows

        names, *rows = csv_rows(str(path), answering=True)
        place = names.index(column) if column in names else 0
        cells = [row[place] if place < len(row) else None for row in rows]
    if column not in names:
        given = "none: pass --column" if column is None else column
        raise WrongUsage(f"the column must be one of {', '.join(names)}, got {given}")
    return cells


def _csv_records(path: Path) -> list[dict[str, Any]]:
    from sstq.inputs.csv_files import csv_rows, number_in

    header, *rows = csv_rows(str(path), answering=True)
    numbers = [{name: number_in(cell) for name, cell in zip(header, row, strict=False)} for row in rows]
    return [
        {name: (cell or None) if known[name] is None else known[name] for name, cell in zip(header, row, strict=False)}
        for row, known in zip(rows, numbers, strict=True)
    ]


def _parquet_records(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    records: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return records


COMMANDS = (new, plan, question, answer, learn, result)
