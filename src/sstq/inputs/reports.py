"""What the owner of the data is told and nobody else: counts of values that were moved, dropped or missed."""

from collections import Counter
from dataclasses import dataclass, field

_SHOWN_LABELS = 5
_LONGEST_LABEL = 40


class LocalWarning(UserWarning):
    """What the owner of the data should know of them, and nobody else: keep it local.

    Examples:
        >>> issubclass(LocalWarning, UserWarning)
        True
    """


class ClippedWarning(LocalWarning):
    """Many vectors of a batch are longer than clip. It depends on the data: keep it local.

    Examples:
        >>> issubclass(ClippedWarning, UserWarning)
        True
    """


class UnknownLabelWarning(LocalWarning):
    """Values of a column are none of the labels of its question. It depends on the data: keep it local.

    Examples:
        >>> issubclass(UnknownLabelWarning, UserWarning)
        True
    """


@dataclass
class LocalReport:
    """Local counts: vectors, vectors longer than clip, and representations that missed the certificate.

    A missed certificate makes estimates slightly biased; privacy is unaffected. The counts depend on the data: keep
    them local.

    Attributes:
        vectors: the rows that were encoded.
        clipped: those longer than clip.
        missed: representations that missed the certificate.
        answered: the rows that a device read.
        replaced: those with a vector that cannot be encoded, in whose place the zero vector is sent.
        values: the values of each column of a survey, without those that are missing.
        beyond: how many of them were beyond the bounds, and were moved to them.
        unreadable: how many of them a device could not read; they count as no answer.
        unlabelled: how many of them have labels that the question does not have.
        unknown: how often each label was met that a question does not have; it counts as no answer.

    Examples:
        >>> import numpy as np, sstq
        >>> report = LocalReport()
        >>> messages = sstq.FrameUnit(dim=2, epsilon=1.0).encode(np.array([[3.0, 4.0], [0.1, 0.2]]), report=report)
        >>> report.vectors, report.clipped
        (2, 1)
    """

    vectors: int = 0
    clipped: int = 0
    missed: int = 0
    answered: int = 0
    replaced: int = 0
    values: Counter[str] = field(default_factory=Counter)
    beyond: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    unlabelled: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, other: "LocalReport") -> None:
        """Add what another report counted while data were read."""
        self.answered += other.answered
        self.replaced += other.replaced
        self.values.update(other.values)
        self.beyond.update(other.beyond)
        self.unreadable.update(other.unreadable)
        self.unlabelled.update(other.unlabelled)
        for column, labels in other.unknown.items():
            self.unknown.setdefault(column, Counter()).update(labels)

    def warnings(self) -> list[UserWarning]:
        """What the owner of the data should know about the columns.

        Examples:
            >>> report = LocalReport(values=Counter(os=4), beyond=Counter(os=2))
            >>> print(report.warnings()[0])
            2 of 4 values of 'os' (50 %) are beyond its bounds and were moved to them. This line depends on the data...
        """
        warnings: list[UserWarning] = []
        if self.replaced:
            problem = f"{self.replaced} of {self.answered} vectors cannot be encoded"
            warnings.append(
                LocalWarning(
                    f"{problem}; zero vectors are sent in their place. {_LOCAL}"
                )
            )
        for column, count in self.beyond.items():
            if count:
                problem = f"{self._share(count, column)} are beyond its bounds and were moved to them"
                warnings.append(ClippedWarning(f"{problem}. {_LOCAL}"))
        for column, count in self.unreadable.items():
            problem = (
                f"{self._share(count, column)} cannot be read and count as no answer"
            )
            warnings.append(LocalWarning(f"{problem}. {_LOCAL}"))
        for column, labels in self.unknown.items():
            problem = (
                f"{self._share(self.unlabelled[column], column)} have labels that are none of its own and count as "
                f"no answer, such as {_seen(labels)}"
            )
            warnings.append(UnknownLabelWarning(f"{problem}. {_LOCAL}"))
        return warnings

    def _share(self, count: int, column: str) -> str:
        total = self.values[column]
        return f"{count} of {total} values of {column!r} ({100 * count / total:.3g} %)"


_LOCAL = "This line depends on the data: keep it local"


def _seen(labels: Counter[str]) -> str:
    """The most frequent ones, and what to do if they are several in one."""
    seen = [label for label, _ in labels.most_common(_SHOWN_LABELS)]
    shown = ", ".join(map(_shortened, seen))
    if any(";" in label for label in seen):
        return f'{shown}; if people have several labels, make the question a MultiChoice ("type": "multichoice")'
    return shown


def _shortened(label: str) -> str:
    return repr(
        label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"
    )
