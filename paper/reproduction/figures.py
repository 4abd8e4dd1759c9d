"""The pictures of the experiments, in one style, with one colour per method."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.reproduction.jobs import MSE_CLIP
from paper.reproduction.lines import Section, grouped
from paper.reproduction.methods import EPSILON, find_method
from paper.reproduction.once import ONCE_LABELS, TRUST_METHODS
from paper.reproduction.printed import paper_number
from paper.theory import least_unbiased_mse
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

COLOURS = {
    "clean": INK,
    "privunit": "#8c6d31",
    "vqsgd": FAINT,
    "sqkr": "#3c7d3c",
    "sqkr-3": "#7fb77e",
    "sstq-optimized": "#5b2a86",
    "sstq-uniform": "#a06cd5",
    "sstq-metric": "#c98bb9",
    "sstq-metric-sharp": "#d16d9e",
    "sstq-laplace": "#8f3f6b",
    "sstq-certified": SECOND,
    "sstq-optimal": "#2a8f8f",
    "frameunit": ACCENT,
    "privunitg": "#d99a00",
}
# They differ without colour.
_MARKS = dict(zip(COLOURS, "oPXDdsv^<>*phH", strict=True))
_GRID = "#e5e5e5"
# In inches: print of nine points is then as large as a phone's.
PHONE_WIDTH = 3.8
# An interval of fewer seeds is too wide to say anything.
_LEAST_SEEDS = 3
# The paper's numbers are those after so many rounds; shorter runs are not compared with them.
_PAPER_ROUNDS = 100
# A regression that ends this many times further away than it began diverges.
_DIVERGED = 1.35
_PAPER_MARK = {
    "marker": "D",
    "markerfacecolor": "white",
    "markeredgewidth": 1.4,
    "markersize": 6,
    "linestyle": "",
}

Row = Mapping[str, Any]


def draw_section(section: Section, folder: Path) -> None:
    """Draw the pictures of an experiment to its folder."""
    drawers: dict[str, Callable[[Section], Any]] = {
        "mse": lambda section: draw_mse(section.curves),
        "regression": lambda section: draw_regressions(section.name, section.curves),
        "bitwidth": lambda section: draw_regressions(section.name, section.curves),
        "once": _draw_once,
        "trust": _draw_trust,
    }
    for name in section.pictures:
        drawer = drawers.get(Path(name).stem)
        save(
            drawer(section)
            if drawer
            else draw_networks({section.name: section.curves}),
            folder / name,
        )


def draw_mse(rows: Sequence[Row]) -> Any:
    """Draw the paper's Figure 2: the error of one message against the dimension."""
    figure = new_figure(9.6, 5.8)
    axes = figure.subplots()
    for method, own in _by_method(rows).items():
        dims = [row["dim"] for row in own]
        style = _style(method)
        axes.plot(
            dims, [row["mse"] for row in own], label=find_method(method).label, **style
        )
        axes.errorbar(
            dims,
            [row["sampled_mse"] for row in own],
            yerr=[row["sampled_half_width"] for row in own],
            fmt=".",
            color=style["color"],
            markersize=4,
            capsize=2,
            linewidth=1,
        )
        for row in own:
            _mark_paper(
                axes,
                row["dim"],
                paper_number("mse", f"d = {row['dim']}", method),
                style["color"],
            )
    dims = sorted({row["dim"] for row in rows})
    least = [least_unbiased_mse(dim, EPSILON, clip=MSE_CLIP) for dim in dims]
    axes.plot(
        dims,
        least,
        color=INK,
        linestyle=(0, (1, 2)),
        linewidth=1.2,
        label="least of all without bias",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("dimension d")
    axes.set_ylabel("E‖x̂ − x‖², C = 0.2")
    _finish(axes)
    _legend(
        figure,
        axes,
        "lines: exact; dots: simulated with 95 % interval; diamonds: the paper's numbers",
    )
    return figure


def draw_regressions(experiment: str, rows: Sequence[Row]) -> Any:
    """Draw the paper's Figure 3 or 4: a column per setting, with what diverges in a panel above the others."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    figure = new_figure(4.3 * len(settings) + 1.2, 6.4)
    panels = figure.subplots(
        2, len(settings), squeeze=False, height_ratios=(1, 2.2), sharex=True
    )
    for (above, below), setting in zip(panels.T, settings, strict=True):
        shown = [row for row in rows if row["setting"] == setting]
        limit = _DIVERGED * shown[0]["loss"]
        lowest = limit
        highest = limit
        for (method, scaling), own in grouped(
            shown, lambda row: (row["method"], row["scaling"])
        ).items():
            style = _style(method) | ({"linestyle": ":"} if scaling == "norm" else {})
            paper = (
                paper_number(experiment, setting, method) if scaling == "clip" else None
            )
            lowest, highest = (
                pick(end, own[-1]["loss"])
                for pick, end in ((min, lowest), (max, highest))
            )
            for axes in (above, below):
                label = find_method(method).label if scaling == "clip" else None
                _band(axes, own, "loss", style, label, "gap_half_width")
                if (
                    paper
                    and own[-1]["round"] >= _PAPER_ROUNDS
                    and (paper.value > limit) == (axes is above)
                ):
                    _mark_paper(axes, own[-1]["round"], paper, style["color"])
        above.set_ylim(limit, 1.1 * highest)
        if highest == limit:
            above.set_yticks([])
            above.text(
                0.5,
                0.5,
                "nothing diverges",
                transform=above.transAxes,
                ha="center",
                color=FAINT,
            )
        below.set_ylim(0.85 * lowest, limit)
        above.set_title(setting, fontsize=11, color=INK)
        below.set_xlabel("round")
        _finish(above)
        _finish(below)
    panels[1, 0].set_ylabel("‖θ − θ*‖²")
    panels[0, 0].set_ylabel("what diverges")
    note = (
        "bands: 95 % interval of the difference to Clean with the same seed; "
        "dotted: noise by each client's own norm (not private); diamonds: the paper's numbers"
    )
    _legend(figure, panels[1, 0], note)
    return figure


_DATASETS = {
    "fashion-mnist": "Fashion-MNIST, d = 25,450",
    "cifar-10": "CIFAR-10, d = 98,666",
}


def draw_networks(
    experiments: Mapping[str, Sequence[Row]], *, narrow: bool = False
) -> Any:
    """Draw the paper's Figure 1: loss and accuracy by round, and accuracy against bits.

    Args:
        experiments: the rounds of each data set, by its name.
        narrow: for a phone, panels below each other instead of a row per data set.
    """
    from matplotlib.ticker import LogLocator

    count = len(experiments)
    if narrow:
        figure = new_figure(PHONE_WIDTH, 2.9 * 3 * count + 1.0)
        grid = figure.subplots(3 * count, 1).reshape(count, 3)
    else:
        figure = new_figure(11.4, 4.0 * count + 1.0)
        grid = figure.subplots(count, 3, squeeze=False)
    for (name, rows), panels in zip(experiments.items(), grid, strict=True):
        loss, accuracy, bits = panels
        for method, own in _by_method(rows).items():
            style = _style(method)
            _band(loss, own, "train_loss", style, None)
            _band(accuracy, own, "accuracy", style, None)
            last = own[-1]
            sent = last["bits"] / max(last["round"], 1)
            half = last["accuracy_half_width"]
            bits.errorbar(
                [sent],
                [last["accuracy"]],
                yerr=None if math.isnan(half) else [half],
                fmt=_MARKS.get(method, "o"),
                color=style["color"],
                markersize=8,
                capsize=3,
                label=find_method(method).label,
            )
            marked = (
                (loss, last["round"], "loss"),
                (accuracy, last["round"], "accuracy"),
                (bits, sent, "accuracy"),
            )
            for axes, x, setting in marked if last["round"] >= _PAPER_ROUNDS else ():
                _mark_paper(
                    axes, x, paper_number(name, setting, method), style["color"]
                )
        loss.set_yscale("log")
        loss.yaxis.set_major_formatter("{x:g}")
        loss.yaxis.set_minor_formatter("{x:g}")
        loss.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        loss.set_ylabel("cross-entropy of the round's batches")
        accuracy.set_ylabel("test accuracy, per cent")
        bits.set_ylabel("test accuracy at the end, per cent")
        loss.set_xlabel("round")
        accuracy.set_xlabel("round")
        bits.set_xlabel("bits per client and round")
        bits.set_xscale("log")
        accuracy.set_title(_DATASETS.get(name, name), fontsize=11, color=INK)
        for axes in panels:
            _finish(axes)
    total = max(
        row["epsilon"]
        for rows in experiments.values()
        for row in rows
        if not math.isinf(row["epsilon"])
    )
    note = f"total ε = {total:g} per client at the end (Clean: not private)"
    if any(
        not math.isnan(row["accuracy_half_width"])
        for rows in experiments.values()
        for row in rows
    ):
        note += "; bands: 95 % interval over seeds; diamonds: the paper's numbers"
    _legend(figure, figure.axes[2], note, columns=2 if narrow else 4)
    return figure


def draw_training(histories: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Draw the loss, and the accuracy if there is one, of every mechanism by round."""
    names = ["loss", "accuracy"]
    if any(row["accuracy"] is None for rows in histories.values() for row in rows):
        names = ["loss"]
    figure = new_figure(4.6 * len(names) + 0.6, 4.2)
    for axes, name in zip(
        figure.subplots(1, len(names), squeeze=False)[0], names, strict=True
    ):
        for label, rows in histories.items():
            total = rows[-1]["epsilon"]
            privacy = "not private" if math.isinf(total) else f"total ε = {total:.6g}"
            axes.plot(
                [row["number"] for row in rows],
                [row[name] for row in rows],
                color=_colour(label),
                label=f"{label}, {privacy}",
            )
        axes.set_xlabel("round")
        axes.set_ylabel(
            "test accuracy" if name == "accuracy" else "loss on the test examples"
        )
        _finish(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8.5,
    )
    save(figure, path)


_ONCE_COLOURS = {
    "groupunit": ACCENT,
    "ball": SECOND,
    "privunitg": COLOURS["privunitg"],
    "sstq": COLOURS["sstq-optimized"],
    "alone": "#3c7d3c",
    "shuffled": "#2a7f5f",
    "shuffled-16": "#174f3a",
    "central": FAINT,
    "none": INK,
    "logistic": INK,
}


def _draw_once(section: Section) -> Any:
    figure = new_figure(8.6, 5.6)
    axes = figure.subplots()
    for method, rows in _by_method(section.curves).items():
        if method in _ONCE_COLOURS:
            _accuracies(
                axes,
                method,
                [row for row in rows if row["epsilon"] >= 1],
                ONCE_LABELS[method],
            )
    axes.set_xlabel("total ε per person")
    axes.set_ylabel("test accuracy, per cent")
    axes.set_xlim(left=0)
    _finish(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8.5,
    )
    counts = sorted({row["seeds"] for row in section.curves})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    note = "; bars: 95 % interval" if counts[-1] >= _LEAST_SEEDS else ""
    figure.suptitle(
        f"everybody answers once; mean of {seeds} seeds{note}", fontsize=9, color=FAINT
    )
    return figure


_TRUST_NAMES = {
    "groupunit": "nobody is trusted (local)",
    "shuffled": "a shuffler, one message of 4 bytes",
    "shuffled-16": "a shuffler, 16 messages",
    "central": "the server (central Gaussian)",
    "none": "all: the same linear method",
    "logistic": "all: logistic regression",
}


def _draw_trust(section: Section) -> Any:
    """Draw accuracy against total ε, by trust."""
    figure = new_figure(8.2, 4.4)
    axes = figure.subplots()
    curves = _by_method(section.curves)
    for method in TRUST_METHODS:
        _accuracies(
            axes,
            method,
            sorted(curves[method], key=lambda row: row["epsilon"]),
            _TRUST_NAMES[method],
        )
    epsilons = sorted(
        {row["epsilon"] for row in section.curves if math.isfinite(row["epsilon"])}
    )
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_xlabel(
        "total ε per person (δ = 10⁻⁶ with a shuffler or a trusted server, else 0)"
    )
    axes.set_ylabel("test accuracy, per cent")
    _finish(axes)
    axes.legend(
        title="who is trusted",
        loc="lower right",
        frameon=False,
        fontsize=9,
        alignment="left",
    )
    return figure


def _accuracies(axes: Any, method: str, rows: Sequence[Row], label: str) -> None:
    """Draw one method's accuracies against ε with their intervals; a horizontal line without privacy."""
    colour = _ONCE_COLOURS[method]
    if method in ("none", "logistic"):
        style = "--" if method == "none" else ":"
        axes.axhline(
            rows[0]["accuracy"],
            color=colour,
            linestyle=style,
            linewidth=1.2,
            label=label,
        )
        return
    half = [row["accuracy_half_width"] for row in rows]
    axes.errorbar(
        [row["epsilon"] for row in rows],
        [row["accuracy"] for row in rows],
        yerr=None
        if any(map(math.isnan, half)) or rows[0]["seeds"] < _LEAST_SEEDS
        else half,
        color=colour,
        marker="o",
        markersize=4,
        capsize=2,
        linewidth=2.4 if method == "groupunit" else 1.5,
        label=label,
    )


def _by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return grouped(rows, lambda row: str(row["method"]))


def _colour(method: str) -> str:
    """The method's colour; one that follows from its name for a mechanism that the paper's figures do not have."""
    return COLOURS.get(method) or f"C{zlib.crc32(method.encode()) % 10}"


def _style(method: str) -> dict[str, Any]:
    return {
        "color": _colour(method),
        "linestyle": "--" if method in ("clean", "privunitg") else "-",
        "linewidth": 1.5 if find_method(method).from_paper else 2.2,
    }


def _band(
    axes: Any,
    rows: Sequence[Row],
    name: str,
    style: dict[str, Any],
    label: str | None,
    width: str | None = None,
) -> None:
    """Draw a line with the band of `width`, which is half an interval."""
    x = [row["round"] for row in rows]
    y = [row[name] for row in rows]
    axes.plot(x, y, label=label, **style)
    half = [row.get(width or f"{name}_half_width", math.nan) for row in rows]
    if not any(map(math.isnan, half)):
        low, high = (
            [value + sign * width for value, width in zip(y, half, strict=True)]
            for sign in (-1, 1)
        )
        axes.fill_between(x, low, high, color=style["color"], alpha=0.08, linewidth=0)


def _mark_paper(axes: Any, x: float, paper: Any, colour: str) -> None:
    if paper is not None:
        axes.plot(
            [x],
            [paper.value],
            markeredgecolor=colour,
            zorder=5,
            clip_on=False,
            **_PAPER_MARK,
        )


def _finish(axes: Any) -> None:
    axes.grid(which="major", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)


def _legend(figure: Any, axes: Any, note: str, columns: int = 4) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9 if columns > 2 else 8,
        columnspacing=1,
        handletextpad=0.4,
    )
    figure.suptitle(note, fontsize=9, color=FAINT)
