"""The command line of the paper's experiments: `python -m paper mse`, `python -m paper train --help`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from paper.reproduction.experiments import EXPERIMENTS
from paper.reproduction.lines import write_record
from paper.reproduction.methods import FULL, QUICK
from paper.reproduction.runner import read_result, run_jobs

app = typer.Typer(
    help="Reproduce the SSTQ paper, and train on its data sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Write everything to this folder.")]


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> None:
    """Print a table, as wide as it needs to be if nobody is looking."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _add_experiment(name: str) -> None:
    def experiment(
        quick: Annotated[bool, typer.Option("--quick", help="Run fewer seeds, dimensions and rounds.")] = False,
        seeds: Annotated[int | None, typer.Option(min=1, help="The number of seeds (5; 1 with --quick).")] = None,
        workers: Annotated[int | None, typer.Option(min=1, help="The number of processes (the cores).")] = None,
        data: Annotated[Path | None, typer.Option(help="Read the data sets from this folder.")] = None,
        output: OutputOption = Path("reproduction"),
    ) -> None:
        scale = QUICK if quick else FULL
        _reproduce(name, scale if seeds is None else replace(scale, seeds=seeds), workers, data, output)

    app.command(
        name,
        help=f"Run the experiment “{name}” and show the paper's numbers beside ours. Run it again to resume it.",
        rich_help_panel="Experiments",
    )(experiment)


for _name in EXPERIMENTS:
    _add_experiment(_name)


def _reproduce(name: str, scale: Any, workers: int | None, data: Path | None, output: Path) -> None:
    jobs, results = list(dict.fromkeys(EXPERIMENTS[name].jobs(scale))), output / "results"
    done = sum(read_result(job, results) is not None for job in jobs)
    typer.echo(f"{done} of {len(jobs)} pieces were done before", err=True)

    def finished(job: Any, seconds: float) -> None:
        nonlocal done
        done += 1
        typer.echo(f"{done} of {len(jobs)}: {job.path.with_suffix('')} took {seconds:.1f} s", err=True)

    run_jobs(jobs, results, workers=workers, data=data, finished=finished)
    section = EXPERIMENTS[name].section(scale, {job: read_result(job, results) or {} for job in jobs})
    write_record(section, output / name)
    show_table(
        section.title + (" (QUICK: fewer seeds, dimensions and rounds)" if scale.quick else ""),
        ["setting", "method", "ours", "compared", "paper", "verdict"],
        [
            [line.setting, line.label, f"{line.ours:.4g}"]
            + ([f"{line.compared:.4g}", f"{line.paper.value:g}", line.verdict] if line.paper else [""] * 3)
            for line in section.lines
        ],
        "compared: rescaled or shifted by Clean with the same seed, if the starting point matters.",
    )
    typer.echo(output / name)


@app.command()
def data(name: Annotated[str, typer.Argument(metavar="fashion-mnist|cifar-10")]) -> None:
    """Download a data set into the cache and check it."""
    from paper.datasets import RELEASES, fetch

    if name not in RELEASES:
        raise typer.BadParameter(f"must be {' or '.join(RELEASES)}, got {name!r}")
    typer.echo(fetch(name))


@app.command()
def train(
    dataset: Annotated[str, typer.Option(metavar="digits|fashion-mnist|cifar-10|regression")] = "digits",
    model: Annotated[
        str, typer.Option(metavar="hidden-layer|logistic", help="The paper's network, or a logistic regression.")
    ] = "hidden-layer",
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:ARGUMENT=VALUE,...]",
            help="Repeat to compare several. gaussian: noise of a total (ε, 1e-5) over all of a client's answers.",
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="The ε of one answer.")] = 3.0,
    participation: Annotated[
        str | None, typer.Option(metavar="once|K", help="Let each client answer in one or K rounds, in cohorts.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="The number of rounds.")] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="The number of clients that hold the examples.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="The number of examples per gradient.")] = None,
    clip: Annotated[float | None, typer.Option(help="Scale longer gradients down to this norm.")] = None,
    rate: Annotated[float | None, typer.Option(help="The server's learning rate.")] = None,
    held_out: Annotated[
        int, typer.Option(min=0, help="Test on this many training images, whose clients do not answer.")
    ] = 0,
    output: OutputOption = Path("training"),
) -> None:
    """Train a model on examples spread over clients, each of which sends its gradients as private messages.

    The defaults are the paper's settings for the data set. All mechanisms see the same examples in the same order.
    Writes rounds.csv. `paper.training.train` has more options.
    """
    from paper.training.problems import SETTINGS
    from paper.training.rounds import Server
    from paper.training.rounds import train as rounds_of
    from sstq.files.atomic import write_csv

    changes: dict[str, Any] = {"rounds": rounds, "clients": clients, "batch": batch, "clip": clip, "rate": rate}
    if dataset not in SETTINGS:
        raise typer.BadParameter(f"--dataset must be {' or '.join(SETTINGS)}, got {dataset!r}")
    settings = replace(SETTINGS[dataset], **{name: value for name, value in changes.items() if value is not None})
    answers: Any = participation if participation in (None, "once") else int(participation or 0)
    problem = _problem(dataset, model, settings, held_out)
    histories = {}
    for label, built in _mechanisms(mechanism, problem, epsilon, settings, answers).items():
        rows, start = [], time.perf_counter()
        for report in rounds_of(
            problem,
            built,
            Server(settings.rate, settings.norm_cap),
            settings.rounds,
            batch=settings.batch,
            participation=answers,
            estimate=_gaussian(label, epsilon, settings.rounds, answers),
        ):
            row = asdict(report) | {"mechanism": label, "seconds": time.perf_counter() - start}
            if label == "gaussian":
                row |= {"epsilon": epsilon, "delta": 1e-5}
            del row["parameters"]
            rows.append(row)
            typer.echo(f"{label}: round {report.number}, loss {report.loss:.4g}", err=True)
        histories[label] = rows
    output.mkdir(parents=True, exist_ok=True)
    everything = [row for rows in histories.values() for row in rows]
    write_csv(output / "rounds.csv", tuple(everything[0]), everything)
    show_table(
        f"{dataset}: {problem.clients:,} clients, d = {problem.model.dim:,}, {settings.rounds} rounds",
        ["mechanism", "answers per client", "bits per answer", "privacy", "loss", "accuracy"],
        [
            [
                label,
                rows[-1]["answers"],
                rows[-1]["bits"] // max(rows[-1]["answers"], 1),
                _privacy_in_words(rows[-1]),
                f"{rows[-1]['loss']:.4g}",
                "" if rows[-1]["accuracy"] is None else f"{rows[-1]['accuracy']:.1%}",
            ]
            for label, rows in histories.items()
        ],
        "privacy: of all answers of the client that answered most. loss: the squared distance for a regression.",
    )
    typer.echo(output / "rounds.csv")


def _privacy_in_words(row: dict[str, Any]) -> str:
    """Return what a client has spent after a round, to show next to the accuracy.

    Examples:
        >>> _privacy_in_words({"epsilon": 36.0, "delta": 1.2e-4}), _privacy_in_words({"epsilon": math.inf})
        ('total ε = 36, δ = 0.00012', 'not private')
    """
    if math.isinf(row["epsilon"]):
        return "not private"
    delta = f", δ = {row['delta']:g}" if row.get("delta") else ""
    return f"total ε = {row['epsilon']:.6g}{delta}"


def _problem(dataset: str, model: str, settings: Any, held_out: int) -> Any:
    from paper.datasets import load
    from paper.training.models import Logistic
    from paper.training.problems import image_problem, regression_problem

    if model not in ("hidden-layer", "logistic"):
        raise typer.BadParameter(f"--model must be hidden-layer or logistic, got {model!r}")
    if dataset == "regression":
        return regression_problem(200, settings.clients, seed=0)
    images = load(dataset)
    if held_out:
        train, test = images.train_images, images.train_labels
        images = replace(
            images,
            train_images=train[:-held_out],
            train_labels=test[:-held_out],
            test_images=train[-held_out:],
            test_labels=test[-held_out:],
        )
    other = Logistic(images.train_images.shape[1], len(images.classes)) if model == "logistic" else None
    return image_problem(images, settings.clients, seed=0, model=other)


def _mechanisms(given: list[str] | None, problem: Any, epsilon: float, settings: Any, answers: Any) -> Any:
    """Return the mechanisms by label."""
    from paper.training.cohorts import Cohorts
    from sstq.accounting.bounds import answers_of

    common = {"dim": problem.model.dim, "epsilon": epsilon, "clip": settings.clip}
    if answers is not None:
        # In few rounds the bias of frames does not average out, so a cohort gets as many frames as it needs.
        common["clients"] = Cohorts(problem.clients, settings.rounds, answers_of(answers)).size
    return {text: _mechanism(text, common) for text in given or ["frameunit"]}


def _gaussian(label: str, epsilon: float, rounds: int, answers: Any) -> Any:
    """Return the estimator of `--mechanism gaussian`; None for all others, which have messages of their own."""
    from paper.training.rounds import gaussian_mean
    from sstq.accounting.bounds import answers_of

    if label != "gaussian":
        return None
    return gaussian_mean(epsilon, 1e-5, rounds if answers is None else answers_of(answers))


def _mechanism(text: str, common: dict[str, Any]) -> Any:
    """Return the mechanism of NAME:ARGUMENT=VALUE,… with those common arguments that it accepts."""
    import inspect

    import sstq
    from sstq.mechanisms import mechanism_class

    name, _, arguments = text.replace("gaussian", "clean").partition(":")
    own: dict[str, Any] = {}
    for pair in filter(None, arguments.split(",")):
        argument, _, value = pair.partition("=")
        own[argument] = int(value) if value.isdecimal() else value
    known = inspect.signature(mechanism_class(name)).parameters
    return sstq.mechanism(name, **{key: value for key, value in common.items() if key in known} | own)


@app.command()
def demo(output: OutputOption = Path("demo")) -> None:
    """Draw the paper's Figure 1 on digits, and learn digits from one private message per person.

    Writes report.html with both pictures and tables, the pictures, and the numbers as JSON.
    """
    from paper.demo import run_demo
    from paper.demo_page import demo_tables, write_demo

    result = run_demo(progress=lambda line: typer.echo(line, err=True))
    for table in demo_tables(result):
        show_table(table.title, table.columns, table.rows, table.caption)
    typer.echo(write_demo(result, output))


@app.command()
def errors(output: OutputOption = Path("errors")) -> None:
    """Measure the error of a mean against the bits of a message, beside the exact prediction."""
    from paper.errors import draw_errors, measure_errors, write_errors

    rows = []
    for row in measure_errors():
        rows.append(row)
        typer.echo(f"{row['label']}: {row['measured']:.3f} measured, {row['predicted']:.3f} predicted", err=True)
    output.mkdir(parents=True, exist_ok=True)
    write_errors(rows, output / "errors.csv")
    draw_errors(rows, output / "errors.png")
    show_table(
        "Error of the mean of 20,000 unit vectors, d = 200, ε = 3",
        ["mechanism", "bits", "measured", "predicted", "of it bias"],
        [
            [row["label"], row["bits"], *(f"{row[name]:.3f}" for name in ("measured", "predicted", "bias"))]
            for row in rows
        ],
    )
    typer.echo(output)


@app.command()
def learn(
    library: Annotated[
        Path, typer.Option(help="The folder of R's packages, which Debian's r-cran-mlbench and r-cran-ggplot2 fill.")
    ] = Path("/usr/lib/R/site-library"),
    table: Annotated[list[str] | None, typer.Option(help="Only this table; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="The number of splits.")] = 3,
    output: OutputOption = Path("learn"),
) -> None:
    """Learn classifiers from one message per person on twelve tables, beside logistic regression without privacy."""
    from paper.tables import TABLES, draw_tables, learn_tables
    from sstq.checks import check_option
    from sstq.files.atomic import write_csv

    names = [check_option("table", name, tuple(TABLES)) for name in table or TABLES]
    rows = []
    for row in learn_tables((1.0, 3.0, 6.0), seeds, library, names):
        rows.append(row)
        typer.echo(f"{row['table']}, total ε = {row['epsilon']:g}: {row['accuracy']:.3f}", err=True)
    output.mkdir(parents=True, exist_ok=True)
    write_csv(output / "learn.csv", list(rows[0]), rows)
    draw_tables(rows, output / "learn.png")
    shown = ("majority", "logistic", "ceiling", "accuracy", "shuffled", "cohorts", "predicted", "balanced")
    means = []
    for first in (row for row in rows if row["seed"] == 0):
        same = [row for row in rows if (row["table"], row["epsilon"]) == (first["table"], first["epsilon"])]
        numbers = (f"{100 * sum(row[name] for row in same) / seeds:.1f}" for name in shown)
        right = sum(row["useful"] == row["planned"] for row in same)
        means.append([first["table"], f"{first['people']:,}", f"{first['epsilon']:g}", *numbers, f"{right} of {seeds}"])
    show_table(
        f"Accuracy in % on people who did not answer, mean of {seeds} splits",
        ["table", "people", "total ε", *shown, "plan right"],
        means,
        "logistic, ceiling: without privacy. shuffled: δ = 1e-6. predicted: what people reported. plan right: whether "
        "“feasible” agrees with a test accuracy above that of the most frequent class by twice its error.",
    )
    right = sum(row["useful"] == row["planned"] for row in rows)
    typer.echo(f"the plan's verdict is right in {right} of {len(rows)} cases")
    typer.echo(output)


@app.command()
def bits() -> None:
    """Compute the exact error of SSTQ against the bit width b at three ε: the abstract's claim."""
    from paper.orders import bit_widths

    show_table(
        "Exact error of one message over d, and what the last bit costs",
        ["variant", "ε", "b", "error/d", "bias²", "× per bit"],
        [
            [
                row["label"],
                row["epsilon"],
                row["bits"],
                f"{row['error']:.3g}",
                f"{row['bias2']:.2g}",
                f"{row['growth']:.2f}",
            ]
            for row in bit_widths()
        ],
    )


@app.command()
def tables() -> None:
    """Measure the orders of the paper's Table 1 on exact errors, and count the bits of Table 2."""
    from paper.orders import measured_orders
    from paper.reproduction.methods import METHODS
    from paper.reproduction.printed import paper_number

    show_table(
        "Table 1: the paper's orders, and exponents of exact errors",
        ["mechanism", "bits per client", "the paper's error", "exponent of d", "exponent of ε", "× per bit"],
        [
            [
                row["label"],
                row["bits"],
                row["order"],
                f"{row['dim']:.2f}",
                f"{row['epsilon']:.2f}",
                "–" if math.isnan(row["bit"]) else f"{row['bit']:.2f}",
            ]
            for row in measured_orders()
        ],
        "d from 1,024 to 4,096 at ε = 1; ε from 0.05 to 0.1; b from 9 to 10.",
    )
    rows = []
    for key in ("clean", "privunit", "vqsgd", "sqkr", "sstq-uniform", "frameunit"):
        cells = []
        for dim in (25_450, 98_666):
            printed = paper_number("bits", f"d = {dim}", key)
            cells += ["" if printed is None else printed.value, METHODS[key].build(dim, 1.0, bits=4).message_bits]
        rows.append([METHODS[key].label, *cells])
    show_table("Table 2: bits per client and round", ["method", "Fashion-MNIST", "ours", "CIFAR-10", "ours"], rows)


@app.command()
def figures(output: OutputOption = Path("docs/figures")) -> None:
    """Draw the pictures of the documentation from the record in experiments/."""
    from paper.page import draw_gallery

    for path in draw_gallery(output):
        typer.echo(path)


def main() -> None:
    """Run the command line; an error in the data is one line."""
    try:
        app(prog_name="python -m paper")
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
