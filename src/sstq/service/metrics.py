"""Metrics in the text format of Prometheus: what this process counted, and what the database holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Metrics", "render"]

Samples = Mapping[tuple[tuple[str, str], ...], float]


@dataclass
class Metrics:
    """What one process counts since its start; there is no time and no address in it.

    Attributes:
        uploads: by campaign and status of the answer; the campaign is empty where there is none of that name.
        folds: how often the background task was through, and how often it failed.
        people: at a shuffler, whose envelopes were mixed, dropped or refused, by campaign.
    """

    uploads: Counter[tuple[str, int]] = field(default_factory=Counter)
    folds: Counter[str] = field(default_factory=Counter)
    people: Counter[tuple[str, str]] = field(default_factory=Counter)


def render(families: Iterable[tuple[str, str, str, Samples]]) -> str:
    """Families of samples, each with its name, type and help, as text.

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
            # Values of labels are names of campaigns and statuses: nothing in them needs an escape.
            text = ",".join(f'{label}="{of}"' for label, of in labels)
            lines.append(f"{name}{{{text}}} {value:.17g}" if labels else f"{name} {value:.17g}")
    return "".join(f"{line}\n" for line in lines)
