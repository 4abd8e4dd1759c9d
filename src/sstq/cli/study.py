"""`sstq study`: asks cohorts in turn, from the shell. The state of a study is one JSON file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.collected import STAGE
from sstq.cli.common import (
    FORCE,
    PLOT,
    WrongUsage,
    argument,
    check_file,
    check_output,
    check_picture,
    check_usage,
    flag,
    given,
    option,
    output_option,
    read_mechanism,
    read_study,
    required,
    save_picture,
    split,
    take_only,
    write_text,
)
from sstq.cli.terminal import Facts, note, show_facts, show_rows, show_table

if TYPE_CHECKING:
    from sstq import Aggregator
    from sstq.studies import Study

HELP = """
Ask cohorts of people in turn, each person once.

So the ε of a message is a person's total. `new` writes the state of a study. Repeat `question`, `answer` and `learn`
until no cohort is left, then see `result`.
"""

_FILE = argument("Use this JSON file as the state of the study.", metavar="FILE")
_PEOPLE = required("Ask so many people.", "--people", "-n")
_KINDS = "words, range, columns or panel"


def new(
    file: Path = _FILE,
    kind: str = required(f"Study this: {_KINDS}."),
    epsilon: float | None = option(
        "Spend this ε per person, in total; a panel has its mechanism's."
    ),
    longest: int | None = option(
        "For words: find strings of at most so many letters.", show_default="16"
    ),
    candidates: Path | None = option(
        "For words: ask for the public strings in this file first, one per line."
    ),
    delta: float | None = option(
        "For words: let a shuffler mix the messages, with this total δ.", "--shuffled"
    ),
    dim: int | None = option("For a range: study vectors of this length."),
    columns: str | None = option("For columns: study these, such as age,bmi."),
    mechanism: Path | None = option(
        "For a panel: ask this survey or mechanism in every period."
    ),
    periods: int | None = option(
        "For a panel: ask for so many periods.", show_default="52"
    ),
    period: str | None = option(
        "For a panel: call a period this.", show_default="week"
    ),
    force: bool = FORCE,
) -> None:
    """Write the state of a new study.

    Example: sstq study new words.json --kind words --epsilon 3

    Example: sstq study new mean.json --kind range --epsilon 3 --dim 40

    Example: sstq study new bounds.json --kind columns --epsilon 3 --columns age,bmi

    Example: sstq study new year.json --kind panel --mechanism survey.json
    """
    from inspect import Parameter, signature

    from sstq.checks import ArgumentError, check_option
    from sstq.studies import Panel, Range, Words
    from sstq.studies.columns import ColumnRange

    check_output(file, force, "FILE")
    kinds: dict[str, Any] = {
        "words": Words,
        "range": Range,
        "columns": ColumnRange,
        "panel": Panel,
    }
    make = kinds[check_option("kind", kind, tuple(kinds))]
    options = given(
        epsilon=epsilon,
        longest=longest,
        candidates=candidates,
        delta=delta,
        dim=dim,
        columns=split(columns),
        mechanism=mechanism,
        periods=periods,
        period=period,
    )
    _, *parameters = signature(make.__init__).parameters.values()
    taken = {each.name: each.default for each in parameters}
    take_only(options, taken, f"with --kind {kind}")
    for name, default in taken.items():
        if default is Parameter.empty and name not in options:
            raise ArgumentError(name, f"must be given with --kind {kind}")
    if candidates is not None:
        options["candidates"] = candidates.read_text(encoding="utf-8").splitlines()
    if delta is not None:
        options["trust"] = "shuffler"
    if mechanism is not None:
        options["mechanism"] = read_mechanism(mechanism)
    with check_usage():
        study: Study = make(**options)
    write_text(file, study.to_json() + "\n")


def plan(file: Path = _FILE, people: int = _PEOPLE) -> None:
    """Show how many people to ask in each cohort, and the expected error.

    The exit code is 1 if the study cannot work.

    Example: sstq study plan words.json --people 100000
    """
    study = read_study(file)
    if not study.cohorts_left:
        raise ValueError(f"all cohorts have answered: sstq study result {file}")
    planned = study.plan(people)
    rows = [(name, f"{count:,}") for name, count in planned.cohorts.items()]
    show_facts(
        f"{people:,} people",
        _total(study.options["epsilon"]) | {planned.of: planned.error},
    )
    show_table("", ("cohort", "people"), rows)
    if not planned.works:
        raise ValueError(f"the study cannot work: {planned.problem}")


def _total(epsilon: float) -> Facts:
    return {
        "total epsilon per person": f"{epsilon:g}",
    }


def question(
    file: Path = _FILE,
    people: int = _PEOPLE,
    output: Path = output_option("Write the question to this file."),
    force: bool = FORCE,
) -> None:
    """Write the question for the next cohort, of so many people.

    Publish it to these people's devices, and learn from their answers.

    Example: sstq study question words.json --people 30000 --output question.json
    """
    check_output(output, force, inputs=[file])
    study = read_study(file)
    cohort = "".join(study.cohorts_left[:1])
    document = study.question(people)
    _replace(file, study)
    write_text(output, document)
    note(f"this is the question for the cohort “{cohort}” of {people:,} people")


def answer(
    document: Path = argument(
        "Answer this question, as `sstq study question` writes it.", metavar="QUESTION"
    ),
    values: Path = argument(
        "Answer for these people, one row each: text, CSV, Parquet or .npy.",
        metavar="VALUES",
    ),
    most_epsilon: float = required(
        "Refuse a question that asks for more ε per person."
    ),
    output: Path = output_option("Write the messages to this file."),
    column: str | None = option("Take the values in this column of the table."),
    force: bool = FORCE,
) -> None:
    """Answer a question for some people, with one private message each.

    A value that cannot be used is answered as “other”, the zero vector or no answer.

    Example: sstq study answer question.json people.csv --column drink --most-epsilon 3 --output messages.sstq
    """
    from sstq.messages.files import write_messages
    from sstq.studies import Question

    check_output(output, force, inputs=[document, values])
    with check_file(document, "the question of a study (sstq study question)"):
        asked = Question.from_json(document.read_text(encoding="utf-8"))
    asked.pay(most_epsilon, ledger=None)
    messages = asked.encode_file(values, column)
    write_messages(output, messages)
    note(
        f"wrote {len(messages):,} messages to {output}; nobody may answer another question of this study"
    )


def learn(
    file: Path = _FILE,
    messages: list[Path] = argument(
        "Learn from these messages of the cohort.", metavar="MESSAGES..."
    ),
    counts: bool = flag("Read tables of counts, not messages (sstq sql).", "--counts"),
) -> None:
    """Learn from the messages of the cohort that was asked last.

    With --counts the files are tables that a SQL engine made of the messages; the result is the same bit for bit. Of a
    table with a column “stage”, those rows count that have the number of the cohort.

    Example: sstq study learn words.json messages.sstq

    Example: sstq study learn words.json counted.parquet --counts
    """
    study = read_study(file)
    aggregator = study.asked.mechanism.aggregator()
    for path in messages:
        if counts:
            _add_counts(aggregator, path, len(study.learned) + 1)
        else:
            aggregator.update_from_file(path)
    study.learn(aggregator)
    _replace(file, study)
    left = len(study.cohorts_left)
    note(f"learned from {aggregator.count:,} people; cohorts left: {left}")
    if not left:
        note(f"the result is there: sstq study result {file}")


def _add_counts(aggregator: "Aggregator[Any]", path: Path, number: int) -> None:
    """Add a table of counts; with a column of stages, its rows of this stage."""
    from sstq.aggregation.counts import COUNT, fingerprint
    from sstq.inputs.tables import column_names
    from sstq.messages.count_tables import read_count_table

    table = read_count_table(str(path))
    layout = aggregator.estimator.source.counted_layout
    try:
        if STAGE in column_names(table):
            rows = _cells(table[STAGE]) == number
            names = {COUNT, *layout.names}
            columns = names & set(column_names(table))
            table = {name: _cells(table[name])[rows] for name in columns}
        aggregator.update_counts(table, source=fingerprint(table, layout))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _cells(column: Any) -> Any:
    """The values of a column as objects: where a field is of other stages only, it has none."""
    import numpy as np

    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return np.array(values, dtype=object)


def result(
    file: Path = _FILE,
    output: Path | None = output_option("Write the result to this CSV file.", None),
    plot: Path | None = PLOT,
    question: str | None = option("For a panel of a survey: draw this question."),
    force: bool = FORCE,
) -> None:
    """Show the result, and write or draw it.

    Example: sstq study result words.json --output words.csv --plot words.png
    """
    from sstq.files.atomic import write_csv

    check_output(output, force, inputs=[file])
    check_picture(plot, force)
    outcome = read_study(file).result
    if plot is not None and not hasattr(outcome, "plot"):
        raise WrongUsage("--plot must be left out: there is no picture of this study")
    if question is not None and not hasattr(outcome, "curves"):
        raise WrongUsage("--question must be left out: only a panel has questions")
    columns = outcome.columns()
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    show_facts(repr(outcome), _total(outcome.epsilon))
    show_rows("", list(columns), rows, "write them with --output")
    if outcome.note:
        note(outcome.note)
    if output is not None:
        write_csv(output, list(columns), rows)
        note(f"wrote {output}")
    if plot is not None:
        chosen = {} if question is None else {"question": question}
        with check_usage():
            save_picture(outcome.plot(**chosen), plot)


def _replace(file: Path, study: "Study") -> None:
    """Write the state again, whole or not at all."""
    from sstq.files.atomic import atomic_file

    with atomic_file(file) as opened:
        opened.write((study.to_json() + "\n").encode())


COMMANDS = (new, plan, question, answer, learn, result)
