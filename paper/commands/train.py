"""`sstq train`: simulates private federated training in one process."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import ForceOption, check_output
from sstq.cli.engines import AddressOption, EngineOption, engine
from paper.commands.models import PAPER_MODEL, image_problem_with
from sstq.cli.numbers import as_participation
from sstq.cli.settings import parse_settings
from sstq.cli.terminal import live_line, note, show_table, warn
from paper.commands.train_shuffled import DeltaOption, MessagesOption, TrustOption, check_trust, shuffled_runs
from sstq.cli.usage import check_usage

if TYPE_CHECKING:
    from sstq import Mechanism
    from sstq.accounting import Ledger
    from paper.training import AdaptiveClip, Cohorts, PersonLedgers, Problem, Settings
    from paper.training.rounds import RoundEngine

__all__ = ["train"]

_COLUMNS = (
    "mechanism",
    "number",
    "loss",
    "train_loss",
    "accuracy",
    "clients",
    "answers",
    "bits",
    "epsilon",
    "delta",
    "local_epsilon",
    "clip",
    "mean_norm",
    "seconds",
)
# The default δ of a client's total behind a shuffler.
_DELTA = 1e-6


def train(
    dataset: Annotated[
        str, typer.Option(metavar="digits|fashion-mnist|cifar-10|regression", help="Train on this data set.")
    ] = "digits",
    model: Annotated[
        str,
        typer.Option(
            metavar="hidden-layer|logistic|MODULE:FUNCTION",
            help="Train this model on images: the paper's network, logistic regression, or the PyTorch module that a "
            "function of the image's shape (channels, rows, columns) and the number of classes returns.",
        ),
    ] = PAPER_MODEL,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:ARGUMENT=VALUE,...]",
            help="Send gradients with this mechanism; repeat to compare several. [dim]\\[default: frameunit][/dim]",
        ),
    ] = None,
    epsilon: Annotated[
        float,
        typer.Option(
            help="The ε of one answer; a client's total is this times its answers. With --trust shuffler, the total."
        ),
    ] = 3.0,
    trust: TrustOption = "local",
    delta: DeltaOption = None,
    messages: MessagesOption = None,
    rounds: Annotated[int | None, typer.Option(help="The number of rounds. [dim]\\[default: 100][/dim]")] = None,
    clients: Annotated[int | None, typer.Option(help="The number of clients that hold the examples.")] = None,
    participation: Annotated[
        str | None,
        typer.Option(
            metavar="once|K",
            help="Let each client answer only once, or in K rounds, in cohorts that take turns. "
            "[dim]\\[default: every round][/dim]",
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="The number of examples per gradient.")] = None,
    clip: Annotated[float | None, typer.Option(help="Scale longer gradients down to this norm.")] = None,
    adaptive_clip: Annotated[
        float | None,
        typer.Option(
            metavar="QUANTILE",
            help="Move the clip towards this quantile of the norms (0.5: the median), with one private bit per answer.",
        ),
    ] = None,
    clip_epsilon: Annotated[
        float | None,
        typer.Option(help="The part of --epsilon that this bit spends. [dim]\\[default: a tenth][/dim]"),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="The server's learning rate.")] = None,
    momentum: Annotated[float, typer.Option(help="The server's momentum.")] = 0.0,
    decay: Annotated[float, typer.Option(help="Reduce the rate in round t to rate/(1 + decay·t).")] = 0.0,
    norm_cap: Annotated[
        float | None, typer.Option(help="Scale longer means down to this norm. [dim]\\[default: 10][/dim]")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Give each client few classes (Dirichlet); smaller values are more extreme.")
    ] = None,
    dim: Annotated[int, typer.Option(help="The dimension of the regression.")] = 200,
    seed: Annotated[
        int, typer.Option(help="The seed of partition, start and batches, the same for all mechanisms.")
    ] = 0,
    noise_seed: Annotated[
        int | None, typer.Option(help="Use this seed instead of secret randomness, to repeat a run.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Stop before a client's total ε exceeds this; a ledger (one per client with --participation) "
            "enforces it in later runs as well."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Read the data set from this folder, instead of the cache.")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write results and checkpoints to this folder.")
    ] = Path("training"),
    engine_name: EngineOption = "local",
    address: AddressOption = None,
    force: ForceOption = False,
) -> None:
    """Train a model on examples spread over clients, each of which sends its gradients as private messages.

    The model is the paper's network with one hidden layer of 32 units, a logistic regression or any PyTorch module
    (--model), or a linear regression. With --participation once each client answers in one round only, so
    --epsilon is its total. With --trust shuffler the messages of each round are mixed, slot by slot, before the server
    sees them; --epsilon and --delta are then a client's total for any --participation, and the local ε that it has
    spent if the shuffler cheats is also shown. The defaults are the paper's settings for the data set.
    All mechanisms see the same examples in the same order. To resume an interrupted run, run the same command
    again; with --budget a repeated round is charged again. With --engine ray groups of 256 clients are
    computed in tasks; with --noise-seed, the same processor type and the same number of BLAS threads, the result is the
    same bit for bit as without. Writes rounds.csv, training.png and, for each mechanism, its JSON and a
    checkpoint with the model.

    Example: sstq train --dataset digits --mechanism clean --mechanism frameunit --mechanism sstq:bits=2 --epsilon 4

    Example: sstq train --model logistic --clients 700 --batch 2 --rounds 35 --participation once --epsilon 8 --rate 1

    Example: sstq train --model logistic --clients 1400 --batch 1 --rounds 20 --clip 1 --trust shuffler --epsilon 1
    """
    from sstq.canvas import require_matplotlib
    from paper.plots import draw_training
    from paper.training import Server, settings_for

    require_matplotlib()
    changes = {"clients": clients, "batch": batch, "clip": clip, "rate": rate, "rounds": rounds, "norm_cap": norm_cap}
    with check_usage():
        other_engine = None if engine_name == "local" else engine_name
        shuffled = check_trust(
            trust,
            {"--delta": delta, "--messages": messages},
            {
                "--budget": budget,
                "--adaptive-clip": adaptive_clip,
                "--clip-epsilon": clip_epsilon,
                "--engine": other_engine,
            },
        )
        delta = _DELTA if delta is None else delta
        settings = settings_for(dataset, changes)
        server = Server(settings.rate, settings.norm_cap, momentum, decay)
        problem = _problem(dataset, model, settings, dim, alpha, seed, data)
        cohorts = _cohorts(participation, settings)
        adaptive = _adaptive(adaptive_clip, clip_epsilon, epsilon)
        left = epsilon if adaptive is None else adaptive.left_for_vectors(epsilon)
        if shuffled:
            runs = shuffled_runs(
                mechanism, problem, epsilon, delta, 1 if messages is None else messages, settings, cohorts
            )
        else:
            runs = {text: _build(text, problem, left, settings, cohorts) for text in mechanism or ["frameunit"]}
        if budget is not None:
            _check_budgeted(runs.values(), budget, cohorts, adaptive)
    output.mkdir(parents=True, exist_ok=True)
    # Results may be replaced by those of at least the same mechanisms, which go on from their checkpoints.
    before = {path.parent.name for path in output.glob("*/checkpoint.npz")}
    resumed = bool(before) and before <= {_folder_name(label) for label in runs}
    for name in ("rounds.csv", "training.png"):
        check_output(output / name, force or resumed)
    with engine(engine_name, address) as in_ray:
        rounds_engine = _rounds_in_ray() if in_ray else None
        histories = {
            label: _run(
                label,
                problem,
                built,
                server,
                settings,
                seed,
                noise_seed,
                budget,
                output / _folder_name(label),
                rounds_engine,
                cohorts,
                adaptive,
                delta if shuffled else None,
            )
            for label, built in runs.items()
        }
    _write_rounds([row for rows in histories.values() for row in rows], output / "rounds.csv")
    show_table(
        f"After {settings.rounds} rounds on {dataset}: {_crowd(problem, cohorts)}, d = {problem.model.dim:,}",
        [
            "mechanism",
            "rounds",
            "answers per client",
            "bits per answer",
            "total ε",
            "total δ",
            *(["local ε if the shuffler cheats"] if shuffled else []),
            "loss",
            "accuracy",
            "seconds per round",
        ],
        [_last(label, rows) for label, rows in histories.items()],
        caption="total ε and δ: all answers of the client that answered most, "
        f"{'behind the shuffler' if shuffled else 'by plain addition'}. loss: the squared distance for a regression.",
    )
    if noise_seed is not None:
        warn("NOT PRIVATE: --noise-seed replaced secret randomness, which is for reproducible runs only")
    note(f"wrote {output / 'rounds.csv'}")
    title = f"{problem.name}: {_crowd(problem, cohorts)}, d = {problem.model.dim:,}"
    draw_training(histories, output / "training.png", title=title)
    typer.echo(output / "training.png")


def _problem(
    dataset: str, model: str, settings: Settings, dim: int, alpha: float | None, seed: int, folder: Path | None
) -> Problem:
    from paper.training import regression_problem

    if dataset == "regression":
        if model != PAPER_MODEL:
            raise ValueError("--model cannot be combined with --dataset regression")
        if alpha is not None:
            raise ValueError("--alpha cannot be combined with --dataset regression")
        return regression_problem(dim, settings.clients, seed)
    from paper.datasets import load

    return image_problem_with(model, load(dataset, folder=folder), settings.clients, seed, alpha=alpha)


def _cohorts(participation: str | None, settings: Settings) -> Cohorts | None:
    """Return the schedule of ``--participation``: "once", or a number."""
    from sstq.runs.cohorts import Cohorts, answers_of

    answers = as_participation(participation)
    return None if answers is None else Cohorts(settings.clients, settings.rounds, answers_of(answers))


def _adaptive(quantile: float | None, clip_epsilon: float | None, epsilon: float) -> AdaptiveClip | None:
    from sstq.checks import check_number
    from sstq.runs.adaptive_clip import AdaptiveClip

    if quantile is None:
        if clip_epsilon is not None:
            raise ValueError("--clip-epsilon needs --adaptive-clip, the quantile of the norms")
        return None
    check_number("adaptive_clip", quantile, 0, 1)
    return AdaptiveClip(quantile, epsilon / 10 if clip_epsilon is None else clip_epsilon)


def _crowd(problem: Problem, cohorts: Cohorts | None) -> str:
    """Return the number of clients and how they take part, in words."""
    if cohorts is None:
        return f"{problem.clients:,} clients, all in every round"
    often = "once" if cohorts.answers == 1 else f"{cohorts.answers} times"
    return f"{problem.clients:,} clients in cohorts of {cohorts.size:,}, each answers {often}"


def _build(text: str, problem: Problem, epsilon: float, settings: Settings, cohorts: Cohorts | None) -> Mechanism:
    """Return the mechanism of NAME:ARGUMENT=VALUE,…; ε and the number of clients are passed if it accepts them.

    In few rounds with large ε the bias of frames does not average out, so a cohort gets as many frames as it needs.
    """
    from sstq.planning.comparison import Variant

    name, _, arguments = text.partition(":")
    given = parse_settings(arguments.split(",") if arguments else [], {"dim", "clip", "epsilon"})
    with check_usage():
        variant, clients = Variant(text, name, given), problem.clients if cohorts is None else cohorts.size
        return variant.build(problem.model.dim, epsilon, clients, settings.clip, one_round=cohorts is not None)


def _check_budgeted(
    mechanisms: Iterable[Mechanism], budget: float, cohorts: Cohorts | None, adaptive: AdaptiveClip | None
) -> None:
    """Refuse mechanisms that no ledger accepts, and budgets below one answer, before any training."""
    from sstq.accounting import ledger_price
    from sstq.runs.adaptive_clip import answer_price

    for mechanism in mechanisms:
        ledger_price(mechanism)
        epsilon = answer_price(mechanism, adaptive)
        if cohorts is not None and mechanism.trust != "none" and budget < epsilon:
            raise ValueError(f"budget must be at least the ε of one answer, {epsilon!r}, got {budget!r}")


def _rounds_in_ray() -> RoundEngine:
    from paper.training.ray import RayRounds

    return RayRounds()


def _folder_name(label: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in label)


def _run(
    label: str,
    problem: Problem,
    mechanism: Mechanism,
    server: Any,
    settings: Settings,
    seed: int,
    noise_seed: int | None,
    budget: float | None,
    folder: Path,
    rounds_engine: RoundEngine | None,
    cohorts: Cohorts | None,
    adaptive: AdaptiveClip | None,
    shuffled_delta: float | None,
) -> list[dict[str, Any]]:
    """Train with one mechanism and show every round; rounds of an earlier, interrupted run come first."""
    from sstq.accounting import LedgerError
    from sstq.files.atomic import atomic_file
    from paper.plots.training import privacy_in_words
    from paper.training import train as rounds_of

    folder.mkdir(exist_ok=True)
    with atomic_file(folder / "mechanism.json") as file:
        file.write(mechanism.to_json().encode() + b"\n")
    checkpoint = folder / "checkpoint.npz"
    ledger = _ledger(folder, budget if mechanism.trust != "none" else None, checkpoint, cohorts)
    rows = _read_rounds(folder / "rounds.csv")
    start = time.perf_counter()
    with live_line(label, settings.rounds) as show:
        try:
            for report in rounds_of(
                problem,
                mechanism,
                server,
                settings.rounds,
                batch=settings.batch,
                seed=seed,
                private_seed=noise_seed,
                participation=None if cohorts is None else cohorts.answers,
                trust="local" if shuffled_delta is None else "shuffler",
                delta=_DELTA if shuffled_delta is None else shuffled_delta,
                adaptive_clip=adaptive,
                ledger=ledger,
                checkpoint=checkpoint,
                engine=rounds_engine,
            ):
                row = {name: getattr(report, name) for name in _COLUMNS[1:-1]} | {"mechanism": label}
                row["seconds"] = time.perf_counter() - start
                if rows and report.number == rows[-1]["number"]:
                    # A resumed run repeats the last round, but knows less about it than the run before.
                    row = rows[-1] | {"epsilon": row["epsilon"]}
                rows = [earlier for earlier in rows if earlier["number"] < report.number] + [row]
                _write_rounds(rows, folder / "rounds.csv")
                quality = f"round {report.number} of {settings.rounds}, loss {report.loss:.4g}"
                quality += "" if report.accuracy is None else f", accuracy {report.accuracy:.1%}"
                show(report.number, f"{quality}, {privacy_in_words(row)}, {report.bits:,} bits per client")
        except LedgerError as refusal:
            warn(f"{label} stops after round {rows[-1]['number']}: {refusal}")
    return rows


def _ledger(
    folder: Path, budget: float | None, checkpoint: Path, cohorts: Cohorts | None
) -> Ledger | PersonLedgers | None:
    """Return the ledgers of the budget, if any. The budget of an earlier run also binds this one."""
    from sstq.accounting import Ledger
    from paper.training import PersonLedgers

    account = folder / ("ledger.jsonl" if cohorts is None else "ledgers")
    if budget is None and not account.exists():
        return None
    if checkpoint.exists() and not account.exists():
        raise ValueError(
            f"--budget must be given from the first round on, but {folder} has rounds without; choose another --output"
        )
    return Ledger(account, epsilon=budget) if cohorts is None else PersonLedgers(account, budget)


def _last(label: str, rows: list[dict[str, Any]]) -> list[object]:
    last, count = rows[-1], max(rows[-1]["number"], 1)
    return [
        label,
        last["number"],
        last["answers"],
        f"{last['bits'] // max(last['answers'], 1):,}",
        f"{last['epsilon']:.6g}",
        f"{last['delta']:g}",
        *([] if last["local_epsilon"] is None else [f"{last['local_epsilon']:.4g}"]),
        f"{last['loss']:.4g}",
        "" if last["accuracy"] is None else f"{last['accuracy']:.1%}",
        f"{last['seconds'] / count:.3g}",
    ]


def _write_rounds(rows: list[dict[str, Any]], path: Path) -> None:
    from sstq.files.atomic import write_csv

    write_csv(path, _COLUMNS, rows)


def _read_rounds(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_typed(row) for row in csv.DictReader(file)]


def _typed(row: dict[str, str]) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: float(row[name]) if row.get(name) else None for name in _COLUMNS[1:]}
    whole = {name: int(row[name]) for name in ("number", "clients", "answers", "bits")}
    return numbers | whole | {"mechanism": row["mechanism"]}
