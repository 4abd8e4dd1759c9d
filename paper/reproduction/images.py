"""The paper's network on Fashion-MNIST and CIFAR-10 (Figure 1): accuracy, loss, and accuracy against bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from paper.reproduction.jobs import Job
from paper.reproduction.lines import (
    DIFFERS,
    NOT_COMPARED,
    Line,
    Results,
    Section,
    grouped,
    interval,
    judge,
)
from paper.reproduction.methods import Scale, find_method
from paper.reproduction.printed import PaperNumber, paper_number
from paper.training.problems import SETTINGS

_BITS = 4
_POINTS = 2.0
_CLEAN_MOVES = "Moves with the start of the network; the paper has one start, which lies within the range of ours."
_SHRUNK = "A possible reason: the clamp of K = 2 shortens every mean by a fifth, which slows the learning down."
_AT_CHANCE = 15.0
_TITLES = {"fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10"}
_PAPER_ROUNDS = 100


def image_jobs(kind: str, scale: Scale) -> list[Job]:
    """Return one job per seed and method, seed by seed, so that an interrupted run has complete seeds."""
    return [
        Job(
            kind,
            method,
            seed,
            scale.bits or _BITS,
            scale.rounds_of(kind),
            epsilon=scale.job_epsilon,
            clients=scale.clients,
        )
        for seed in range(scale.seeds)
        for method in scale.methods_of(kind)
    ]


def image_section(kind: str, scale: Scale, results: Results) -> Section:
    """Compare final accuracies and losses, and the gaps to Clean, with the paper's."""
    groups = grouped(image_jobs(kind, scale), lambda job: job.method)
    clean = [_accuracy(results[job]) for job in groups["clean"]]
    lines = [
        _accuracy_line(kind, scale, results, group, clean) for group in groups.values()
    ]
    lines += [_loss_line(kind, results, group) for group in groups.values()]
    if scale.seeds > 1:
        lines += [
            line
            for group in groups.values()
            for line in _seed_0_lines(kind, results, group)
        ]
    text = _text(kind, scale)
    curves = [row for group in groups.values() for row in _curve(results, group)]
    return Section(kind, _TITLES.get(kind, kind), text, lines, (f"{kind}.png",), curves)


_TEXT = """
One hidden layer of 32 rectified units; {clients} clients with disjoint random parts of the training set, batches of 64,
gradients clipped to C = 0.1, ε = {epsilon:g} per message, b = {bits}, server cap 10, {rounds} rounds, so a total of
ε = {total:g} for every client; {seeds} seed(s), each with its own partition, start and batches, which all methods
share. Weights start from N(0, 2/inputs), pixels are in [0, 1]: the paper does not say, and this meets its loss of
Clean.

The accuracy of Clean itself moves with the start, so what is compared is the gap to Clean of the same seed, subtracted
from the paper's Clean. Agreement means within {points:g} points. Losses are those of the last round's batches; the
paper reads them off its figure, and they are not judged.
"""


def _text(kind: str, scale: Scale) -> str:
    rounds = scale.rounds_of(kind)
    text = _TEXT.format(
        clients=scale.clients or SETTINGS[kind].clients,
        bits=scale.bits or _BITS,
        rounds=rounds,
        epsilon=scale.epsilon,
        total=rounds * scale.epsilon,
        seeds=scale.seeds,
        points=_POINTS,
    )
    if rounds < _PAPER_ROUNDS:
        text += f"\n\nQUICK: {rounds} rounds instead of {_PAPER_ROUNDS}, so nothing here is compared with the paper."
    return text


def _accuracy_line(
    kind: str, scale: Scale, results: Results, group: list[Job], clean: list[float]
) -> Line:
    method = group[0].method
    finals = [_accuracy(results[job]) for job in group]
    mean, half = interval(finals)
    gaps = [reference - final for reference, final in zip(clean, finals, strict=True)]
    gap, gap_half = interval(gaps)
    paper = paper_number(kind, "accuracy", method)
    base = paper_number(kind, "accuracy", "clean")
    compared = mean if base is None or method == "clean" else base.value - gap
    setting = f"accuracy at a total ε of {group[0].count * scale.epsilon:g} (Clean: not private)"
    line = Line(
        setting,
        method,
        find_method(method).label,
        mean,
        half,
        scale.seeds,
        compared,
        paper,
    )
    if group[0].count < _PAPER_ROUNDS:
        return replace(line, verdict=NOT_COMPARED if paper else "")
    verdict = judge(compared, paper, absolute=_POINTS)
    if method == "clean":
        return replace(
            line, verdict=verdict, remark=_CLEAN_MOVES if verdict == DIFFERS else ""
        )
    remark = (
        f"Gap to Clean {gap:.1f}"
        + (f" ± {gap_half:.1f}" if scale.seeds > 1 else "")
        + " points"
    )
    if paper is None or base is None:
        return replace(line, remark=f"{remark}.")
    remark = f"{remark}, the paper's {base.value - paper.value:.1f}."
    if verdict == DIFFERS:
        remark = f"{remark} {_reason(method, gaps, mean, paper)}"
    return replace(line, verdict=verdict, remark=remark)


def _reason(method: str, gaps: list[float], mean: float, paper: PaperNumber) -> str:
    """Why a gap differs, as far as we can tell."""
    if max(mean, paper.value) < _AT_CHANCE:
        return (
            "Both are at the level of guessing, so the gap only says how good Clean is."
        )
    seeds = f"Single seeds of ours range from {min(gaps):.1f} to {max(gaps):.1f}; the paper has one seed."
    is_shrunk = (
        find_method(method).arguments.get("kashin") == "paper" and mean < paper.value
    )
    return f"{seeds} {_SHRUNK}" if is_shrunk else seeds


def _loss_line(
    kind: str, results: Results, group: list[Job], setting: str = "loss"
) -> Line:
    method = group[0].method
    mean, half = interval([results[job]["train_loss"][-1] for job in group])
    paper = paper_number(kind, "loss", method)
    verdict = NOT_COMPARED if paper else ""
    label = find_method(method).label
    return Line(setting, method, label, mean, half, len(group), mean, paper, verdict)


def _seed_0_lines(kind: str, results: Results, group: list[Job]) -> list[Line]:
    """One seed, as the paper has: how far single seeds go, so its numbers are not judged again."""
    method = group[0].method
    final = _accuracy(results[group[0]])
    paper = paper_number(kind, "accuracy", method)
    verdict = NOT_COMPARED if paper else ""
    label = find_method(method).label
    accuracy = Line(
        "seed 0: accuracy", method, label, final, math.nan, 1, final, paper, verdict
    )
    return [accuracy, _loss_line(kind, results, group[:1], "seed 0: loss")]


def _curve(results: Results, group: list[Job]) -> list[dict[str, Any]]:
    found = [results[job] for job in group]
    rows = []
    epsilon = math.inf if group[0].method == "clean" else group[0].message_epsilon
    for number in range(group[0].count + 1):
        accuracy, accuracy_half = interval(
            [100 * result["accuracy"][number] for result in found]
        )
        # A round's loss is that of its batches before the step; round 0 has none.
        loss, loss_half = interval(
            [result["train_loss"][max(number, 1)] for result in found]
        )
        rows.append(
            {
                "method": group[0].method,
                "round": number,
                "bits": number * found[0]["message_bits"],
                "epsilon": number * epsilon if number else 0.0,
                "accuracy": accuracy,
                "accuracy_half_width": accuracy_half,
                "train_loss": loss,
                "train_loss_half_width": loss_half,
            }
        )
    return rows


def _accuracy(result: Any) -> float:
    return 100 * float(result["accuracy"][-1])
