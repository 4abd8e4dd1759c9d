"""Metrics in Prometheus's text format: the counts of this process and of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Metrics", "render"]

Samples = Mapping[tuple[tuple[str, str], ...], float]


@dataclass
class Metrics:
    """The counters of one process since its start; they hold no times and no addresses.

    Attributes:
        uploads: uploads by campaign and HTTP status; the campaign is empty if no campaign has that name.
        folds: rounds of the background thread, by success or failure.
        people: at a shuffler, the people whose envelopes were mixed, dropped or refused, by campaign.
    """

    uploads: Counter[tuple[str, int]] = field(default_factory=Counter)
    folds: Counter[str] = field(default_factory=Counter)
    people: Counter[tuple[str, str]] = field(default_factory=Counter)


def render(families: Iterable[tuple[str, str, str, Samples]]) -> str:
    """Render families of samples, each with its name, type and help, as text.

    Examples:
        >>> print(render([("waiting", "gauge", "Uploads that wait.", {(("campaign", "a"),): 3})]), end="")
        # HELP waiting Uploads that wait.
        # TYPE waiting gauge
        waiting{campaign="a"} 3
    """
    lines = []
    for name, kind, meaning, samples in families:
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        for labels, value in samples.items():
            # Label values are campaign names and statuses: nothing in them needs escaping.
            text = ",".join(f'{label}="{of}"' for label, of in labels)
            lines.append(f"{name}{{{text}}} {value:.17g}" if labels else f"{name} {value:.17g}")
    return "".join(f"{line}\n" for line in lines)
