"""Requests to a collector, and what the commands of `sstq campaign` print and write of what it has."""

import csv
import io
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import Facts, note, show_facts, show_rows, show_table, warn

if TYPE_CHECKING:
    from sstq.client import Campaign

STAGE = "stage"
"""The column of tables of counts with the number of the stage."""
# How long an export waits for messages that have arrived to be counted.
_PATIENCE_SECONDS = 60.0
_SHOWN = ("kind", "epsilon", "delta", "people", "hours", "too_few", "note")


def ask(
    method: str,
    url: str,
    path: str,
    token: str | None = None,
    document: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Send a request to a service; returns the JSON of its answer, if any."""
    from sstq.client.http import request

    if document is not None:
        options |= {
            "headers": {"Content-Type": "application/json"},
            "body": json.dumps(document).encode(),
        }
    answer = request(method, f"{url.rstrip('/')}/v1{path}", token=token, **options)
    return answer.json() if answer.content else None


def fetched(url: str, name: str) -> "Campaign":
    """The campaign of a document as a collector publishes it; of a study that of its newest stage."""
    from sstq.client.campaigns import read_document
    from sstq.client.http import request

    answer = request("GET", f"{url.rstrip('/')}/v1/campaigns/{name}")
    return read_document(answer.content).campaign


def wait_until_counted(url: str, name: str, token: str, field: str) -> None:
    """Wait until the messages that have arrived are counted, in this field of the status; say if some are not."""
    path = f"/campaigns/{name}/status"
    status = ask("GET", url, path, token)
    arrived = status["received"]
    ends = time.monotonic() + _PATIENCE_SECONDS
    while status[field] < arrived and time.monotonic() < ends:
        time.sleep(0.3)
        status = ask("GET", url, path, token)
    if status[field] < arrived:
        missing = arrived - status[field]
        warn(
            f"{missing:,} of {arrived:,} messages are not counted yet: export again later"
        )


def show_estimate(url: str, name: str, token: str) -> None:
    """Print the newest estimate or result as a table."""
    from sstq.client.http import request

    where = f"{url.rstrip('/')}/v1/campaigns/{name}/estimate?format=csv"
    content = request("GET", where, token=token).content.decode()
    rows = [
        {column: _cell(cell) for column, cell in row.items()}
        for row in csv.DictReader(io.StringIO(content))
    ]
    if not rows:
        note("Nothing was found so far.")
        return
    further = f"sstq campaign export {name} --output {name}.csv"
    show_rows("estimate", list(rows[0]), rows, further)


def _cell(text: str) -> object:
    try:
        return float(text) if "." in text or "e" in text else text
    except ValueError:  # a label
        return text


def show_study(url: str, name: str, token: str, status: dict[str, Any]) -> None:
    """Print how far a study is, and what it knows."""
    study = status["study"]
    facts: Facts = {
        "name": name,
        "state": study["state"],
    }
    facts |= {field: study[field] for field in _SHOWN}
    facts |= {field: status[field] for field in ("received", "covered", "released")}
    show_facts("study", facts)
    rows = [_stage_row(stage) for stage in study["stages"]]
    columns = ("stage", "asked", "people", "received", "state", "epsilon")
    caption = "epsilon: behind the shuffler, of a person whose crowd that was"
    shuffled = any(row[-1] is not None for row in rows)
    shown = len(columns) if shuffled else len(columns) - 1
    show_table(
        "stages", columns[:shown], [row[:shown] for row in rows], caption * shuffled
    )
    if study["next"]:
        note(f"May follow: {', '.join(study['next'])}.")
    if not status["covered"]:
        ended = study["state"] == "ended"
        note(
            "The study ended before anything was known."
            if ended
            else "There is no result yet: it comes with the first stage that people answered and that is over."
        )
        return
    show_estimate(url, name, token)


def _stage_row(stage: dict[str, Any]) -> list[object]:
    crowds = (stage["shuffling"] or {}).get("crowds", [])
    worst = max((crowd["epsilon"] for crowd in crowds), default=None)
    shown = [stage[field] for field in ("number", "name", "people", "received")]
    unanswered = stage["state"] == "learned" and not stage["received"]
    return [*shown, "nobody answered" if unanswered else stage["state"], worst]


def write_counts(url: str, name: str, token: str, output: Path) -> None:
    """Write how often each message occurred, for SQL engines; of a study all stages, with a column that says which."""
    from sstq.files.atomic import atomic_file
    from sstq.files.parquet import import_pyarrow

    pyarrow = import_pyarrow()
    study = ask("GET", url, f"/campaigns/{name}/status", token)["study"]
    parts = {name: None}
    if study is not None:
        parts = {f"{name}--{row['number']}": row["number"] for row in study["stages"]}
    tables = []
    for part, number in parts.items():
        mechanism = fetched(url, part).mechanism
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.npz"
            with file.open("wb") as opened:
                ask("GET", url, f"/campaigns/{part}/state", token, into=opened)
            sums = mechanism.load_aggregator(file).counted()
        table = mechanism.estimator.table(sums)
        if number is not None:
            rows = len(next(iter(table.values())))
            table = {STAGE: [number] * rows, **table}
        tables.append(pyarrow.table(table))
    joined = pyarrow.concat_tables(tables, promote_options="default")
    with atomic_file(output) as file_:
        pyarrow.parquet.write_table(joined, file_, compression="zstd")
