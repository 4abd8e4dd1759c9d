"""`sstq survey`: writes the schema of a survey, and plans it."""

import json
from pathlib import Path

from sstq.cli.common import (
    FORCE,
    argument,
    check_output,
    check_usage,
    output_option,
    required,
    write_text,
)
from sstq.cli.terminal import note, show_table

HELP = """
Ask several questions in one private message per person: choices, numbers, vectors.

`sstq survey init` writes a schema to fill in. `sstq encode`, `sstq aggregate` and `sstq inspect` take it with
--mechanism, as they take any mechanism.
"""


def init(
    table: Path = argument(
        "Take the columns of this CSV or Parquet file.", metavar="TABLE"
    ),
    epsilon: float = required("Spend this ε per person, in total."),
    output: Path = output_option("Write this schema.", Path("survey.json")),
    force: bool = FORCE,
) -> None:
    """Write a schema with one question per column, guessed from names and types only.

    Fill in what is null or []: the labels of choices and the bounds of numbers. They must be public knowledge, because
    bounds and labels that come from the data tell something about it. Remove columns that nobody needs. Those whose
    names say that they number the rows or identify people, such as index and user_id, are left out.

    Example: sstq survey init people.csv --epsilon 2
    """
    from sstq.mechanisms.survey.schema import guess_schema

    check_output(output, force)
    schema = guess_schema(table, epsilon)
    write_text(output, json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    to_fill = [
        name
        for name, entry in schema["questions"].items()
        if any(v in (None, []) for v in entry.values())
    ]
    if to_fill:
        note(
            f"fill in the bounds and labels of {', '.join(to_fill)}, and check all others"
        )
    note("bounds and labels must not come from the data: use what everybody knows")
    numbers = [
        name for name, entry in schema["questions"].items() if entry["type"] == "number"
    ]
    if numbers:
        asked = json.dumps(
            {f"mean {numbers[0]}": {"type": "mean", "value": numbers[0]}},
            ensure_ascii=False,
        )
        note(
            f"a number has quantiles; for a mean as one number, add a question such as {asked[1:-1]}"
        )


def plan(
    schema: Path = argument("Plan the survey of this schema.", metavar="SURVEY"),
    clients: int = required("Plan for this many people."),
) -> None:
    """Show the expected error of every question, and which cannot work with so many people.

    The error is the standard error of what stands beside it: a share, the share of the people below a value, a mean
    divided by the range or by clip, or a group's mean divided by half the range or by clip. The exit code is 1 if a
    question cannot work.

    Example: sstq survey plan survey.json --clients 20000
    """
    from sstq import Survey
    from sstq.mechanisms.survey.survey_plan import PLAN_HEADER

    with check_usage():
        plans = Survey.from_schema(schema).plan(clients)
    show_table(
        f"{clients:,} people",
        PLAN_HEADER,
        plans.rows(),
        caption="The whole survey needs so many people.",
    )
    if hopeless := [name for name, one in plans.items() if not one.works]:
        raise ValueError(
            f"these questions need more people or a larger epsilon: {', '.join(hopeless)}"
        )


COMMANDS = (init, plan)
