"""`python -m paper train`: a model on examples spread over clients."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from paper.commands.common import (
    ClientsOption,
    DataOption,
    OutputOption,
    RoundsOption,
    show_table,
)
from paper.reproduction.methods import find_method


def train(
    dataset: Annotated[
        str, typer.Option(metavar="digits|fashion-mnist|cifar-10|regression")
    ] = "digits",
    model: Annotated[
        str,
        typer.Option(
            metavar="hidden-layer|logistic",
            help="The paper's network, or a logistic regression.",
        ),
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
        str | None,
        typer.Option(
            metavar="once|K",
            help="Let each client answer in one or K rounds, in cohorts.",
        ),
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
    seed: Annotated[
        int,
        typer.Option(min=0, help="The seed of the parts, the start and the batches."),
    ] = 0,
    start: Annotated[
        str, typer.Option(metavar="he|uniform", help="How the hidden layer starts.")
    ] = "he",
    data: DataOption = None,
    output: OutputOption = Path("training"),
) -> None:
    """Train a model on examples spread over clients, each of which sends its gradients as private messages.

    The defaults are the paper's settings for the data set. All mechanisms see the same examples in the same order.
    Writes rounds.csv and training.png. The column cap_bias is what the server's cap takes from the mean of a round.

    Example: python -m paper train --dataset fashion-mnist --mechanism sstq:bits=2,level=3.6 --mechanism frameunit
    """
    from paper.reproduction.figures import draw_training
    from paper.training.problems import SETTINGS
    from sstq.files.atomic import write_csv

    if dataset not in SETTINGS:
        raise typer.BadParameter(
            f"--dataset must be {' or '.join(SETTINGS)}, got {dataset!r}"
        )
    changes: dict[str, Any] = {
        "rounds": rounds,
        "clients": clients,
        **_read_changes(change or ()),
    }
    chosen = {name: changes.pop(name, None) for name in ("held_out", "dim")}
    settings = replace(
        SETTINGS[dataset],
        **{name: value for name, value in changes.items() if value is not None},
    )
    answers: Any = (
        participation if participation in (None, "once") else int(participation or 0)
    )
    problem = _problem(
        dataset, model, settings, seed=seed, start=start, data=data, **chosen
    )
    run = _Run(problem, settings, epsilon, answers, seed)
    built = _mechanisms(mechanism, problem, epsilon, settings, answers)
    histories = {label: run.history(label, one) for label, one in built.items()}
    output.mkdir(parents=True, exist_ok=True)
    everything = [row for rows in histories.values() for row in rows]
    write_csv(output / "rounds.csv", tuple(everything[0]), everything)
    draw_training(histories, output / "training.png")
    title = f"{dataset}: {problem.clients:,} clients, d = {problem.model.dim:,}, {settings.rounds} rounds"
    _show(title, {label: rows[-1] for label, rows in histories.items()})
    typer.echo(output)


@dataclass(frozen=True)
class _Run:
    """A problem with the settings that all mechanisms share."""

    problem: Any
    settings: Any
    epsilon: float
    answers: Any
    seed: int

    def history(self, label: str, built: Any) -> list[dict[str, Any]]:
        """Train with a mechanism; returns a row per round."""
        from paper.theory import server_cap_bias
        from paper.training.rounds import Server, train

        settings = self.settings
        noise = math.sqrt(built.typical_error(len(self.problem.parts)).variance)
        rows = []
        began = time.perf_counter()
        for report in train(
            self.problem,
            built,
            Server(settings.rate, settings.norm_cap),
            settings.rounds,
            batch=settings.batch,
            seed=self.seed,
            participation=self.answers,
            estimate=_gaussian(label, self.epsilon, settings.rounds, self.answers),
        ):
            row = asdict(report) | {
                "mechanism": label,
                "seconds": time.perf_counter() - began,
                "cap_bias": 0.0,
            }
            if (
                settings.norm_cap is not None
                and report.number
                and not math.isinf(report.epsilon)
            ):
                row["cap_bias"] = server_cap_bias(
                    report.true_norm, noise, built.dim, settings.norm_cap
                )
            if label == "gaussian":
                row |= {"epsilon": self.epsilon, "delta": 1e-5}
            del row["parameters"]
            rows.append(row)
            typer.echo(
                f"{label}: round {report.number}, loss {report.loss:.4g}", err=True
            )
        return rows


def _show(title: str, last: Mapping[str, dict[str, Any]]) -> None:
    """Print the last round of every mechanism."""
    rows = []
    for label, row in last.items():
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
        each = row["bits"] // max(row["answers"], 1)
        rows.append(
            [
                label,
                row["answers"],
                each,
                _privacy_in_words(row),
                f"{row['loss']:.4g}",
                accuracy,
            ]
        )
    show_table(
        title,
        [
            "mechanism",
            "answers per client",
            "bits per answer",
            "privacy",
            "loss",
            "accuracy",
        ],
        rows,
        "privacy: of all answers of the client that answered most. loss: the squared distance for a regression.",
    )


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
            raise typer.BadParameter(
                f"--set must be NAME=VALUE with {', '.join(_SETTINGS)}, got {text!r}"
            )
        try:
            changes[name] = _SETTINGS[name](value)
        except ValueError as error:
            raise typer.BadParameter(
                f"--set {name} must be a number, got {value!r}"
            ) from error
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
        raise typer.BadParameter(
            f"--model must be hidden-layer or logistic, got {model!r}"
        )
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
    other = (
        Logistic(images.train_images.shape[1], len(images.classes))
        if model == "logistic"
        else None
    )
    return image_problem(images, settings.clients, seed=seed, start=start, model=other)


def _mechanisms(
    given: list[str] | None, problem: Any, epsilon: float, settings: Any, answers: Any
) -> Any:
    """Return the mechanisms by label."""
    from paper.training.cohorts import Cohorts
    from sstq.accounting.bounds import answers_of

    common = {"dim": problem.model.dim, "epsilon": epsilon, "clip": settings.clip}
    if answers is not None:
        # In few rounds the bias of frames does not average out, so a cohort gets as many frames as it needs.
        common["clients"] = Cohorts(
            problem.clients, settings.rounds, answers_of(answers)
        ).size
    return {text: _mechanism(text, common) for text in given or ["frameunit"]}


def _gaussian(label: str, epsilon: float, rounds: int, answers: Any) -> Any:
    """Return the estimator of `--mechanism gaussian`; None for all others, which have messages of their own."""
    from paper.training.rounds import gaussian_mean
    from sstq.accounting.bounds import answers_of

    if label != "gaussian":
        return None
    return gaussian_mean(
        epsilon, 1e-5, rounds if answers is None else answers_of(answers)
    )


def _mechanism(text: str, common: dict[str, Any]) -> Any:
    """Return the mechanism of NAME:ARGUMENT=VALUE,… with those common arguments that it accepts."""
    import sstq
    from sstq.mechanisms import mechanism_class

    method = find_method(text.replace("gaussian", "clean"))
    accepted = inspect.signature(mechanism_class(method.name)).parameters
    given = {key: value for key, value in common.items() if key in accepted}
    return sstq.mechanism(method.name, **given | dict(method.arguments))
