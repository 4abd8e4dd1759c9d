"""The command line of the paper's experiments: `python -m paper mse`, `python -m paper train --help`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from paper.reproduction.experiments import EXPERIMENTS
from paper.reproduction.lines import not_compared, write_record
from paper.reproduction.methods import FULL, QUICK, Scale, find_method
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


DataOption = Annotated[Path | None, typer.Option(help="Read the data sets from this folder.")]
RoundsOption = Annotated[int | None, typer.Option(min=1, help="The number of rounds.")]
ClientsOption = Annotated[int | None, typer.Option(min=1, help="The number of clients, the paper's workers W.")]

# What an experiment can change; the options of all experiments are the same.
_CHANGES = {
    "mse": ("bits", "epsilon", "dim", "method"),
    "regression": ("clients", "bits", "epsilon", "rounds", "dim", "method"),
    "bitwidth": ("clients", "bits", "epsilon", "rounds", "method"),
    "fashion-mnist": ("clients", "bits", "epsilon", "rounds", "method"),
    "cifar-10": ("clients", "bits", "epsilon", "rounds", "method"),
    "once": ("epsilon",),
}


def _add_experiment(name: str) -> None:
    def experiment(
        quick: Annotated[bool, typer.Option("--quick", help="Run fewer seeds, dimensions and rounds.")] = False,
        seeds: Annotated[int | None, typer.Option(min=1, help="The number of seeds (5; 1 with --quick).")] = None,
        clients: ClientsOption = None,
        bits: Annotated[int | None, typer.Option(min=1, help="The bit width b of the paper's methods.")] = None,
        epsilon: Annotated[float | None, typer.Option(help="The ε of one message (3).")] = None,
        rounds: RoundsOption = None,
        dim: Annotated[list[int] | None, typer.Option(min=2, help="Only this dimension; repeatable.")] = None,
        method: Annotated[
            list[str] | None,
            typer.Option(metavar="KEY|NAME[:ARGUMENT=VALUE,...]", help="Run these methods instead; repeatable."),
        ] = None,
        processes: Annotated[int | None, typer.Option(min=1, help="The number of processes (the cores).")] = None,
        data: DataOption = None,
        output: OutputOption = Path("reproduction"),
    ) -> None:
        scale = QUICK if quick else FULL
        if seeds is not None:
            scale = replace(scale, seeds=seeds)
        given = {
            "clients": clients,
            "bits": bits,
            "epsilon": epsilon,
            "rounds": rounds,
            "dim": dim,
            "method": method,
        }
        changes = {option: value for option, value in given.items() if value}
        for option in changes:
            if option not in _CHANGES[name]:
                raise typer.BadParameter(f"--{option} means nothing to the experiment {name!r}")
        _reproduce(name, _changed(scale, changes), changes, processes, data, output)

    app.command(
        name,
        help=f"Run the experiment “{name}” and show the paper's numbers beside ours. Run it again to resume it.",
        rich_help_panel="Experiments",
    )(experiment)


for _name in EXPERIMENTS:
    _add_experiment(_name)


def _changed(scale: Scale, changes: Mapping[str, Any]) -> Scale:
    """Return the scale with what the options change."""
    fields: dict[str, Any] = {name: changes[name] for name in ("clients", "bits", "epsilon") if name in changes}
    if "bits" in changes:
        fields["bit_widths"] = (changes["bits"],)
    if "epsilon" in changes:
        fields |= {"once_epsilons": (changes["epsilon"],), "once_small_epsilons": ()}
    if "rounds" in changes:
        fields["rounds"] = tuple((kind, changes["rounds"]) for kind, _ in scale.rounds)
    if "dim" in changes:
        fields |= {"mse_dims": tuple(changes["dim"]), "regression_dims": tuple(changes["dim"])}
    if "method" in changes:
        for method in changes["method"]:
            find_method(method)
        # Trainings are compared with Clean.
        chosen = tuple(dict.fromkeys(("clean", *changes["method"])))
        fields |= {"methods": chosen, "bitwidth_methods": chosen, "image_methods": ()}
    return replace(scale, **fields)


def _named(changes: Mapping[str, Any]) -> str:
    """Name what differs from the paper.

    Examples:
        >>> _named({"clients": 50, "method": ["sqkr", "sstq:bits=6"]})
        'clients = 50, method = sqkr and sstq:bits=6'
    """
    return ", ".join(
        f"{name} = {' and '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in changes.items()
    )


def _reproduce(
    name: str, scale: Scale, changes: Mapping[str, Any], workers: int | None, data: Path | None, output: Path
) -> None:
    jobs = list(dict.fromkeys(EXPERIMENTS[name].jobs(scale)))
    results = output / "results"
    done = sum(read_result(job, results) is not None for job in jobs)
    typer.echo(f"{done} of {len(jobs)} pieces were done before", err=True)

    def finished(job: Any, seconds: float) -> None:
        nonlocal done
        done += 1
        typer.echo(f"{done} of {len(jobs)}: {job.path.with_suffix('')} took {seconds:.1f} s", err=True)

    run_jobs(jobs, results, workers=workers, data=data, finished=finished)
    section = EXPERIMENTS[name].section(scale, {job: read_result(job, results) or {} for job in jobs})
    if set(changes) - {"dim", "method"}:
        section = not_compared(section, f"NOT the paper's settings: {_named(changes)}")
    elif changes:
        section = replace(section, title=f"{section.title} ({_named(changes)})")
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
    epsilon: Annotated[float, typer.Option(help="The ε of one message.")] = 3.0,
    participation: Annotated[
        str | None, typer.Option(metavar="once|K", help="Let each client answer in one or K rounds, in cohorts.")
    ] = None,
    rounds: RoundsOption = None,
    clients: ClientsOption = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="batch, clip, rate, norm_cap, dim (of the regression), or held_out: test on training images.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the parts, the start and the batches.")] = 0,
    start: Annotated[str, typer.Option(metavar="he|uniform", help="How the hidden layer starts.")] = "he",
    data: DataOption = None,
    output: OutputOption = Path("training"),
) -> None:
    """Train a model on examples spread over clients, each of which sends its gradients as private messages.

    The defaults are the paper's settings for the data set. All mechanisms see the same examples in the same order.
    Writes rounds.csv and training.png. The column cap_bias is what the server's cap takes from the mean of a round.

    Example: python -m paper train --dataset fashion-mnist --mechanism sstq:bits=2,level=3.6 --mechanism frameunit
    """
    from paper.reproduction.figures import draw_training
    from paper.theory import server_cap_bias
    from paper.training.problems import SETTINGS
    from paper.training.rounds import Server
    from paper.training.rounds import train as rounds_of
    from sstq.files.atomic import write_csv

    if dataset not in SETTINGS:
        raise typer.BadParameter(f"--dataset must be {' or '.join(SETTINGS)}, got {dataset!r}")
    changes: dict[str, Any] = {"rounds": rounds, "clients": clients, **_read_changes(change or ())}
    chosen = {name: changes.pop(name, None) for name in ("held_out", "dim")}
    settings = replace(SETTINGS[dataset], **{name: value for name, value in changes.items() if value is not None})
    answers: Any = participation if participation in (None, "once") else int(participation or 0)
    problem = _problem(dataset, model, settings, seed=seed, start=start, data=data, **chosen)
    histories = {}
    for label, built in _mechanisms(mechanism, problem, epsilon, settings, answers).items():
        rows = []
        began = time.perf_counter()
        noise = math.sqrt(built.typical_error(len(problem.parts)).variance)
        for report in rounds_of(
            problem,
            built,
            Server(settings.rate, settings.norm_cap),
            settings.rounds,
            batch=settings.batch,
            seed=seed,
            participation=answers,
            estimate=_gaussian(label, epsilon, settings.rounds, answers),
        ):
            row = asdict(report) | {"mechanism": label, "seconds": time.perf_counter() - began, "cap_bias": 0.0}
            if settings.norm_cap is not None and report.number and not math.isinf(report.epsilon):
                row["cap_bias"] = server_cap_bias(report.true_norm, noise, built.dim, settings.norm_cap)
            if label == "gaussian":
                row |= {"epsilon": epsilon, "delta": 1e-5}
            del row["parameters"]
            rows.append(row)
            typer.echo(f"{label}: round {report.number}, loss {report.loss:.4g}", err=True)
        histories[label] = rows
    output.mkdir(parents=True, exist_ok=True)
    everything = [row for rows in histories.values() for row in rows]
    write_csv(output / "rounds.csv", tuple(everything[0]), everything)
    draw_training(histories, output / "training.png")
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
    typer.echo(output)


def _read_changes(given: Sequence[str]) -> dict[str, float]:
    """Read --set NAME=VALUE.

    Examples:
        >>> _read_changes(["batch=32", "clip=0.2"])
        {'batch': 32, 'clip': 0.2}
    """
    changes: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in _SETTINGS:
            raise typer.BadParameter(f"--set must be NAME=VALUE with {', '.join(_SETTINGS)}, got {text!r}")
        try:
            changes[name] = _SETTINGS[name](value)
        except ValueError as error:
            raise typer.BadParameter(f"--set {name} must be a number, got {value!r}") from error
    return changes


_SETTINGS: Mapping[str, Callable[[str], float]] = {
    "batch": int,
    "clip": float,
    "rate": float,
    "norm_cap": float,
    "dim": int,
    "held_out": int,
}


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


def _problem(
    dataset: str,
    model: str,
    settings: Any,
    *,
    seed: int,
    start: str,
    data: Path | None,
    held_out: int | None,
    dim: int | None,
) -> Any:
    from paper.datasets import load
    from paper.training.models import Logistic
    from paper.training.problems import image_problem, regression_problem

    if model not in ("hidden-layer", "logistic"):
        raise typer.BadParameter(f"--model must be hidden-layer or logistic, got {model!r}")
    if dataset == "regression":
        return regression_problem(dim or 200, settings.clients, seed=seed)
    images = load(dataset, data)
    if held_out:
        train = images.train_images
        test = images.train_labels
        images = replace(
            images,
            train_images=train[:-held_out],
            train_labels=test[:-held_out],
            test_images=train[-held_out:],
            test_labels=test[-held_out:],
        )
    other = Logistic(images.train_images.shape[1], len(images.classes)) if model == "logistic" else None
    return image_problem(images, settings.clients, seed=seed, start=start, model=other)


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

    method = find_method(text.replace("gaussian", "clean"))
    accepted = inspect.signature(mechanism_class(method.name)).parameters
    given = {key: value for key, value in common.items() if key in accepted}
    return sstq.mechanism(method.name, **given | dict(method.arguments))


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
    from paper.orders import measured_orders, sqkr_bits
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
        "d from 1,024 to 4,096 at ε = 1; ε from 0.05 to 0.1; b from 9 to 10. SQKR with shared randomness takes k bits: "
        f"{sqkr_bits(4, 65_536, shared=True)} instead of {sqkr_bits(4, 65_536)} for k = 4 and N = 2^16.",
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
def costs() -> None:
    """Measure what a round of 100 clients costs to compute, as ratios of one run."""
    from paper.costs import CLIENTS, DIMS, measure_costs

    for name, dim in DIMS.items():
        show_table(
            f"{name}, d = {dim:,}: encoding {CLIENTS} vectors and estimating their mean",
            ["method", "processor seconds per round", "× the paper's recipe", "of it the representation"],
            [
                [
                    row["label"],
                    f"{row['seconds']:.3g}",
                    f"{row['ratio']:.2g}",
                    f"{row['share']:.0%}" if row["share"] else "",
                ]
                for row in measure_costs(dim)
            ],
            "The paper: 18 s and 65 s per step, 99 % of it the representation; vqSGD 5 to 10 times as fast.",
        )


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
