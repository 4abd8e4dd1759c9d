"""The pictures of the experiments, in one style, with one colour per method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.reproduction.lines import Section
from paper.reproduction.methods import METHODS
from paper.reproduction.once import ONCE_LABELS, TRUST_METHODS
from paper.reproduction.printed import paper_number
from sstq.canvas import ACCENT, FAINT, INK, SECOND, label_marks, new_figure, save, tidy

__all__ = ["draw_section"]

_COLOURS = {
    "clean": INK,
    "privunit": "#8c6d31",
    "vqsgd": FAINT,
    "sqkr": "#3c7d3c",
    "sqkr-3": "#7fb77e",
    "sstq-optimized": "#5b2a86",
    "sstq-uniform": "#a06cd5",
    "sstq-metric": "#c98bb9",
    "sstq-metric-sharp": "#d16d9e",
    "sstq-certified": SECOND,
    "sstq-optimal": "#2a8f8f",
    "frameunit": ACCENT,
    "privunitg": "#d99a00",
}
_GRID = "#e5e5e5"
# The paper's numbers are those after so many rounds; shorter runs are not compared with them.
_PAPER_ROUNDS = 100
_PAPER_MARK = {"marker": "D", "markerfacecolor": "white", "markeredgewidth": 1.4, "markersize": 6, "linestyle": ""}

Row = Mapping[str, Any]


def draw_section(section: Section, folder: Path) -> None:
    """Draw the pictures of an experiment to its folder."""
    drawers: dict[str, Callable[[Section], Any]] = {
        "mse": _draw_mse,
        "regression": _draw_regressions,
        "bitwidth": _draw_regressions,
        "once": _draw_once,
        "trust": _draw_trust,
    }
    for name in section.pictures:
        save(drawers.get(Path(name).stem, _draw_images)(section), folder / name)


def _draw_mse(section: Section) -> Any:
    figure = new_figure(9.6, 5.8, layout="constrained")
    axes = figure.subplots()
    for method, rows in _by_method(section.curves).items():
        dims, style = [row["dim"] for row in rows], _style(method)
        axes.plot(dims, [row["mse"] for row in rows], label=METHODS[method].label, **style)
        axes.errorbar(
            dims,
            [row["sampled_mse"] for row in rows],
            yerr=[row["sampled_half_width"] for row in rows],
            fmt=".",
            color=style["color"],
            markersize=4,
            capsize=2,
            linewidth=1,
        )
        for row in rows:
            _mark_paper(axes, row["dim"], paper_number("mse", f"d = {row['dim']}", method), style["color"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("dimension d")
    axes.set_ylabel("E‖x̂ − x‖², C = 0.2")
    _finish(axes)
    _legend(figure, axes, "lines: exact; dots: simulated with 95 % interval; diamonds: the paper's numbers")
    return figure


def _draw_regressions(section: Section) -> Any:
    settings = list(dict.fromkeys(row["setting"] for row in section.curves))
    figure = new_figure(4.3 * len(settings) + 2.4, 5.0, layout="constrained")
    panels = figure.subplots(1, len(settings), squeeze=False)[0]
    for axes, setting in zip(panels, settings, strict=True):
        for (method, scaling), rows in _by_method_and_scaling(section.curves, setting).items():
            style = _style(method) | ({"linestyle": ":"} if scaling == "norm" else {})
            label = METHODS[method].label if scaling == "clip" else None
            # Most of this width comes from the length of θ*, which all methods of a seed share.
            _band(axes, rows, "loss", style, label, alpha=0.04)
            if scaling == "clip" and method != "vqsgd" and rows[-1]["round"] >= _PAPER_ROUNDS:
                _mark_paper(axes, rows[-1]["round"], paper_number(section.name, setting, method), style["color"])
        axes.set_yscale("log")
        shown = [row["loss"] for row in section.curves if row["setting"] == setting and row["method"] != "vqsgd"]
        # vqSGD diverges and leaves the picture; the interesting part is among the others.
        axes.set_ylim(0.9 * min(shown), 1.1 * max(shown))
        axes.set_title(setting, fontsize=11, color=INK)
        axes.set_xlabel("round")
        _finish(axes)
    panels[0].set_ylabel("‖θ − θ*‖²")
    _legend(figure, panels[0], "dotted: noise by each client's own norm (not private); diamonds: the paper's numbers")
    return figure


def _draw_images(section: Section) -> Any:
    figure = new_figure(14.4, 5.2, layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    marks: list[tuple[float, float, str]] = []
    for method, rows in _by_method(section.curves).items():
        style = _style(method)
        _band(left, rows, "train_loss", style, METHODS[method].label)
        _band(middle, rows, "accuracy", style, None)
        last = rows[-1]
        bits = last["bits"] / max(last["round"], 1)
        half = last["accuracy_half_width"]
        right.errorbar(
            [bits],
            [last["accuracy"]],
            yerr=None if math.isnan(half) else [half],
            fmt="o",
            color=style["color"],
            capsize=3,
        )
        if last["round"] >= _PAPER_ROUNDS:
            _mark_paper(middle, last["round"], paper_number(section.name, "accuracy", method), style["color"])
        marks.append((bits, last["accuracy"], METHODS[method].label))
    ordinary = [row["train_loss"] for row in section.curves if row["method"] != "vqsgd"]
    if ordinary:
        # vqSGD diverges; the others share a narrow band, which is the interesting part.
        left.set_ylim(0.95 * min(ordinary), 1.15 * max(ordinary))
    left.set_ylabel("cross-entropy of the round's batches")
    middle.set_ylabel("test accuracy, per cent")
    right.set_ylabel("test accuracy at the end, per cent")
    for axes in (left, middle):
        axes.set_xlabel("round")
    right.set_xlabel("bits a client sends in a round")
    right.set_xscale("log")
    right.set_xlim(min(mark[0] for mark in marks) / 2, 150 * max(mark[0] for mark in marks))
    for axes in (left, middle, right):
        _finish(axes)
    label_marks(right, marks, width=4.4, height=4.0)
    total = max(row["epsilon"] for row in section.curves if not math.isinf(row["epsilon"]))
    privacy = f"total ε = {total:g} per client at the end (Clean: not private)"
    _legend(figure, left, f"{privacy}; bands: 95 % interval over seeds; diamonds: the paper's numbers")
    return figure


_ONCE_COLOURS = {
    "groupunit": ACCENT,
    "ball": SECOND,
    "privunitg": _COLOURS["privunitg"],
    "sstq": _COLOURS["sstq-optimized"],
    "alone": "#3c7d3c",
    "shuffled": "#2a7f5f",
    "shuffled-16": "#174f3a",
    "central": FAINT,
    "none": INK,
}


def _draw_once(section: Section) -> Any:
    figure = new_figure(8.6, 5.6, layout="constrained")
    axes = figure.subplots()
    for method, rows in _by_method(_first_dataset(section)).items():
        if method in _ONCE_COLOURS:
            _accuracies(axes, method, [row for row in rows if row["epsilon"] >= 1], ONCE_LABELS[method])
    axes.set_xlabel("total ε per person")
    axes.set_ylabel("test accuracy, per cent")
    axes.set_xlim(left=0)
    _finish(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    figure.suptitle("everybody answers once; bars: 95 % interval over seeds", fontsize=9, color=FAINT)
    return figure


_TRUST_NAMES = {
    "groupunit": "nobody is trusted (local)",
    "shuffled": "a shuffler, one message of 4 bytes",
    "shuffled-16": "a shuffler, 16 messages",
    "central": "the server (central Gaussian)",
    "none": "no privacy",
}


def _draw_trust(section: Section) -> Any:
    """Draw accuracy against total ε, by trust."""
    figure = new_figure(8.2, 4.4, layout="constrained")
    axes = figure.subplots()
    curves = _by_method(_first_dataset(section))
    for method in TRUST_METHODS:
        _accuracies(axes, method, sorted(curves[method], key=lambda row: row["epsilon"]), _TRUST_NAMES[method])
    epsilons = sorted({row["epsilon"] for row in section.curves if math.isfinite(row["epsilon"])})
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_xlabel("total ε per person (δ = 10⁻⁶ with a shuffler or a trusted server, else 0)")
    axes.set_ylabel("test accuracy, per cent")
    _finish(axes)
    axes.legend(title="who is trusted", loc="lower right", frameon=False, fontsize=9, alignment="left")
    return figure


def _first_dataset(section: Section) -> list[Row]:
    return [row for row in section.curves if row["dataset"] == section.curves[0]["dataset"]]


def _accuracies(axes: Any, method: str, rows: Sequence[Row], label: str) -> None:
    """Draw one method's accuracies against ε with their intervals; a horizontal line without privacy."""
    colour = _ONCE_COLOURS[method]
    if method == "none":
        axes.axhline(rows[0]["accuracy"], color=colour, linestyle="--", linewidth=1.2, label=label)
        return
    half = [row["accuracy_half_width"] for row in rows]
    axes.errorbar(
        [row["epsilon"] for row in rows],
        [row["accuracy"] for row in rows],
        yerr=None if any(map(math.isnan, half)) else half,
        color=colour,
        marker="o",
        markersize=4,
        capsize=2,
        linewidth=2.4 if method == "groupunit" else 1.5,
        label=label,
    )


def _by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["method"], []).append(row)
    return groups


def _by_method_and_scaling(rows: Sequence[Row], setting: str) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["setting"] == setting:
            groups.setdefault((row["method"], row["scaling"]), []).append(row)
    return groups


def _style(method: str) -> dict[str, Any]:
    return {
        "color": _COLOURS[method],
        "linestyle": "--" if method == "clean" else "-",
        "linewidth": 1.5 if METHODS[method].from_paper else 2.2,
    }


def _band(
    axes: Any, rows: Sequence[Row], name: str, style: dict[str, Any], label: str | None, alpha: float = 0.15
) -> None:
    x, y = [row["round"] for row in rows], [row[name] for row in rows]
    axes.plot(x, y, label=label, **style)
    half = [row[f"{name}_half_width"] for row in rows]
    if not any(map(math.isnan, half)):
        low, high = ([value + sign * width for value, width in zip(y, half, strict=True)] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=style["color"], alpha=alpha, linewidth=0)


def _mark_paper(axes: Any, x: float, paper: Any, colour: str) -> None:
    if paper is not None:
        axes.plot([x], [paper.value], markeredgecolor=colour, zorder=5, clip_on=False, **_PAPER_MARK)


def _finish(axes: Any) -> None:
    axes.grid(which="major", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)


def _legend(figure: Any, axes: Any, note: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.suptitle(note, fontsize=9, color=FAINT)
