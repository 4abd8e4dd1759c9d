"""Draws the means of public groups, each with its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sstq.canvas import ACCENT, FAINT, INK, new_figure, save, tidy

if TYPE_CHECKING:
    from _typeshed import StrPath

    from sstq.aggregation.groups import GroupMean

_LONGEST = 24


def draw_groups(means: Sequence[GroupMean], path: StrPath, *, column: str, epsilon: float, groups: int) -> None:
    """Draw the norm of each mean with its region, one row per group, to a .png, .svg or .pdf.

    The true norm is within a bar with at least the probability of the region. Groups that stand out set the
    scale; a mean beyond it is drawn as a triangle at the edge.

    Args:
        means: the groups to draw.
        path: the file to write.
        column: the name of the labels, such as "country".
        epsilon: the ε of a message.
        groups: the total number of groups, of which `means` are those with the most clients.
    """
    figure = new_figure(7.6, 1.6 + 0.24 * len(means), layout="constrained")
    axes = figure.subplots()
    reach = [group.norm + group.radius for group in means if not group.mark] or [group.norm for group in means]
    edge = 1.25 * max(reach)
    for place, group in enumerate(means):
        colour = ACCENT if not group.mark else FAINT
        bar = [[min(group.norm, group.radius)], [group.radius]]
        shown = {"color": colour, "markerfacecolor": colour if not group.mark else "white", "capsize": 2.5}
        if group.norm < edge:
            axes.errorbar(group.norm, place, xerr=bar if math.isfinite(group.radius) else None, fmt="o", **shown)
        else:
            axes.plot(edge, place, ">", color=colour, markerfacecolor="white", clip_on=False)
    axes.plot([], [], "o", color=ACCENT, label="stands out from its error")
    axes.plot([], [], "o", color=FAINT, markerfacecolor="white", label="marked")
    labels = [f"{_shorten(group.label)}  ({group.estimate.count:,})" for group in means]
    axes.set_yticks(range(len(means)), labels, fontsize=8.5)
    axes.set_ylim(len(means) - 0.4, -0.6)
    axes.set_xlim(0, edge)
    level = f"{100 * means[0].level:g} %"
    axes.set(
        xlabel=f"norm of the mean, with its {level} region", ylabel=f"{_shorten(column)} (clients)", axisbelow=True
    )
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    some = f"the {len(means)} of {groups:,} groups with the most clients" if groups > len(means) else f"{groups} groups"
    title = f"One mean per {_shorten(column)}, ε = {epsilon:g} per message\n{some}"
    axes.set_title(title, color=INK, fontsize=10.5)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    tidy(axes)
    save(figure, path)


def _shorten(label: str) -> str:
    """Shorten and escape a label; a dollar sign would begin a formula."""
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in label)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return text.replace("$", r"\$")
