"""Questions: everything that a device needs to answer once, published as JSON.

The device's features have length 1, the centre is subtracted, the directions are applied, and the result has length 1
again. The mechanism encodes it as one message, together with the label if the question asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.accounting import Ledger
from sstq.array_types import Floats, Ints
from sstq.checks import check_number, check_option
from sstq.files.strict_json import JsonObject
from sstq.inputs.cells import cells_of
from sstq.inputs.plain_numbers import plain_numbers
from sstq.learning.features import (
    FeatureMap,
    features_from_dict,
    features_to_dict,
    mapped_features,
    unit_rows,
)
from sstq.learning.moments import Bounds, error_vectors, moment_rows, symmetric_vectors
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit
from sstq.mechanisms.answers import answer
from sstq.mechanisms.base import Mechanism
from sstq.mechanisms.registry import from_document
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike
from sstq.studies.facts import as_json
from sstq.studies.questions import Document, check_identifier, require

_FORMAT = "sstq-question"
_VERSION = 2
_LARGEST = 1e30
Kind = Literal["centre", "classes", "check", "recall", "moments", "errors"]
# The mechanism of each kind, and how many classifiers or regressions the question may judge.
_KINDS: dict[str, tuple[type[Mechanism], range]] = {
    "centre": (FrameUnit, range(1)),
    "classes": (GroupUnit, range(1)),
    "check": (Frequencies, range(1, 9)),
    "recall": (Frequencies, range(1, 2)),
    "moments": (FrameUnit, range(1)),
    "errors": (FrameUnit, range(1, 2)),
}
Scores = tuple[Floats, Floats]
"""The coefficients, (classes, p), and the intercepts, (classes,), of a classifier."""


@dataclass(frozen=True, eq=False)
class Question(Document):
    """A question to a cohort of people, each of whom sends one message.

    Attributes:
        kind: "centre" for the mean of the features, "classes" for the features and the private label, "check" for
            which of some classifiers are right, "recall" for the label and whether a classifier is right, "moments" for
            products of features and a target, "errors" for the squared error of a regression.
        mechanism: the mechanism of the message: `GroupUnit` for classes, `Frequencies` for check and recall,
            `FrameUnit` otherwise.
        directions: (p, D), applied to unit features after the centre is subtracted; None for the features themselves.
        centre: the centre of the features, (D,); None for zero.
        features: the public map; None if devices apply their own map first.
        classes: the labels, in the order of the mechanism's groups or of the classifier's scores.
        bounds: for moments and errors, the bound of the norm of the features, the middle of the target's range and half
            its length; what is beyond is clipped.
        scores: what to judge: coefficients (classes, p) and intercepts (classes,) of classifiers, or of the one
            regression, as of one class.
        study: the identifier of the study, where a person answers once per study; None for once per question.
    """

    kind: Kind
    mechanism: FrameUnit | GroupUnit | Frequencies
    directions: Floats | None = None
    centre: Floats | None = None
    features: FeatureMap = None
    classes: Sequence[Any] = ()
    bounds: Bounds | None = None
    scores: Sequence[Scores] = ()
    study: str | None = None

    def __post_init__(self) -> None:
        if self.study is not None:
            check_identifier(self.study)
        kind = self.kind
        mechanism = self.mechanism
        judged = len(self.scores)
        wanted, fitting = _KINDS[check_option("kind", kind, tuple(_KINDS))]
        require(
            isinstance(mechanism, wanted),
            f"mechanism must be {wanted.__name__} for {kind!r}, got {mechanism!r}",
        )
        of_targets = kind in ("moments", "errors")
        require(
            (self.bounds is not None) == of_targets,
            f"bounds must be given exactly for targets, not for {kind!r}",
        )
        require(
            judged in fitting,
            f"scores must be given exactly to judge them, got {judged} for {kind!r}",
        )
        self._check_arrays()
        self._check_labels()

    @property
    def _groups(self) -> int:
        """The number of classes that the message or the scores tell apart; 0 without any."""
        if self.scores:
            return len(self.scores[0][0])
        return self.mechanism.groups or 0

    def _check_arrays(self) -> None:
        """Refuse arrays of another shape, and numbers whose results would overflow."""
        groups = self._groups
        width = self._width
        columns = width if self.directions is None else self.directions.shape[-1]
        arrays = [(self.directions, (width, columns)), (self.centre, (columns,))]
        for coef, intercept in self.scores:
            arrays += [(coef, (groups, width)), (intercept, (groups,))]
        for numbers, shape in arrays:
            # Within these, no example's result overflows, where a server could place a threshold.
            fine = numbers is None or (
                numbers.shape == shape and bool(np.all(np.abs(numbers) <= _LARGEST))
            )
            limits = f"numbers up to {_LARGEST:g} in magnitude, here an array of shape {shape}"
            require(fine, f"directions, centre and scores must be {limits}")

    def _check_labels(self) -> None:
        """Refuse labels unless they are as many as the message or the scores tell apart."""
        groups = self._groups
        if self.kind in ("check", "recall"):
            outcomes = 2 ** len(self.scores) if self.kind == "check" else 2 * groups
            categories = self.mechanism.estimate_dim
            require(
                categories == outcomes,
                f"categories must be {outcomes}, got {categories}",
            )
        if self.kind == "errors":
            require(
                (groups, self.mechanism.dim) == (1, 2),
                "scores must be of one regression and dim must be 2",
            )
            groups = 0
        labels = [plain_label(label) for label in self.classes]
        require(
            len(self._places) == len(labels) == groups,
            f"classes must be {groups} different labels, got {labels!r}",
        )

    @cached_property
    def _places(self) -> dict[Any, int]:
        """The place of every label."""
        return {plain_label(label): place for place, label in enumerate(self.classes)}

    @property
    def _width(self) -> int:
        """The number of features along the directions."""
        return self.scores[0][0].shape[1] if self.scores else self.mechanism.dim

    def vectors(self, X: ArrayLike, y: ArrayLike | None = None) -> Floats:
        """Return what the mechanism encodes, (n, dim); it is not private yet and never leaves the device.

        Rows that cannot be computed are nan. Only shapes and types are refused, which do not depend on private values.
        """
        # Whatever overflows is replaced later; a warning that becomes an error would be a refusal.
        with np.errstate(all="ignore"):
            mapped = mapped_features(self.features, X)
            if self.bounds is not None:
                targets = plain_numbers(_one_per_row(y, len(mapped), "numbers")).astype(
                    np.float64
                )
                rows = moment_rows(mapped, targets, self.bounds)
                return (
                    error_vectors(rows, *self.scores[0])
                    if self.scores
                    else symmetric_vectors(rows)
                )
            rows = self.unit_features(unit_rows(mapped))
            return self._outcomes(rows, y) if self.scores else rows

    def unit_features(self, rows: Floats) -> Floats:
        """Return unit features minus the centre, along the directions, scaled to length 1 again; zeros stay."""
        width = self._width if self.directions is None else self.directions.shape[1]
        if rows.shape[1] != width:
            raise ValueError(f"X must have {width} features, got {rows.shape[1]}")
        moved = rows if self.centre is None else rows - self.centre
        return unit_rows(
            moved if self.directions is None else moved @ self.directions.T
        )

    def _outcomes(self, rows: Floats, y: ArrayLike | None) -> Floats:
        """Which of the classifiers are right, as one number; or the label, and whether the only one is."""
        labels = self.labels(y, len(rows))
        # A label that is none of the classes is one that no classifier knows.
        right = np.array(
            [
                (rows @ coef.T + intercept).argmax(axis=1) == labels
                for coef, intercept in self.scores
            ]
        )
        if self.kind == "check":
            return np.asarray(2.0 ** np.arange(len(right)) @ right)[:, None]
        return np.where(labels < 0, np.nan, 2 * labels + right[0])[:, None]

    def labels(self, y: ArrayLike | None, count: int) -> Ints:
        """Return the index of each of `count` labels among the classes; -1 for any other label."""
        given = _one_per_row(y, count, "labels")
        return np.array(
            [_place(label, self._places) for label in given.tolist()], dtype=np.int64
        )

    def encode(
        self, X: ArrayLike, y: ArrayLike | None = None, rng: RngLike = None
    ) -> Messages:
        """Encode one message per example, whatever the data are: who refuses would tell the server something.

        Features that are not finite become the zero vector. An unknown label becomes the zero vector of a class drawn
        uniformly, and an outcome drawn uniformly where outcomes are asked for.

        Args:
            X: examples, as the feature map takes them; features (n, D) if the question has no map.
            y: their labels or targets, unless the question is about the centre.
            rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        """
        examples = plain_numbers(X)
        if not examples.size:  # a device without an example answers as well
            people = max(1, len(examples))
            nothing = np.full((people, self.mechanism.dim), np.nan)
            unknown = [-1] * people if self.kind == "classes" else None
            return answer(self.mechanism, nothing, unknown, rng)
        vectors = self.vectors(X, y)
        groups = self.labels(y, len(vectors)) if self.kind == "classes" else None
        return answer(self.mechanism, vectors, groups, rng)

    def encode_each(self, values: Sequence[Any], rng: RngLike = None) -> Messages:
        """Return one private message per value: a pair of features and label, or target; any other is no example."""
        pairs: list[Any] = [_pair(one) for one in values]
        examples: Any = [features for features, _ in pairs]
        labels: Any = [label for _, label in pairs]
        try:
            return self.encode(examples, labels, rng)
        except Exception:
            # Nothing was drawn yet. One by one, whatever cannot be used is no example.
            source = None if rng is None else np.random.default_rng(rng)
            if len(pairs) == 1:
                return self.encode([], None, source)
            return Messages.concatenate(
                [self.encode_each([pair], source) for pair in pairs]
            )

    @property
    def purpose(self) -> str:
        """A person answers one question per study, or once a document that names no study."""
        if self.study is not None:
            return super().purpose
        return f"question {hashlib.sha256(self.to_json().encode()).hexdigest()}"

    def to_dict(self) -> JsonObject:
        """Return the document as JSON values."""
        content: JsonObject = {"format": _FORMAT, "version": _VERSION}
        content |= {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {
            "mechanism": json.loads(self.mechanism.to_json()),
            "features": features_to_dict(self.features),
            "classes": list(self._places),
        }
        if self.study is None:
            del content["study"]
        document: JsonObject = as_json(content)
        return document

    @classmethod
    def read(cls, data: JsonObject) -> Question:
        """Read a document of this format."""
        return cls(
            data["kind"],
            cast(
                FrameUnit | GroupUnit | Frequencies,
                from_document(data["mechanism"]),
            ),
            _array(data["directions"]),
            _array(data["centre"]),
            features_from_dict(data["features"]),
            data["classes"],
            None if data["bounds"] is None else checked_bounds(*data["bounds"]),
            [
                (np.array(coef, float), np.array(intercept, float))
                for coef, intercept in data["scores"]
            ],
            data.get("study"),
        )

    @classmethod
    def from_json(cls, text: str, features: FeatureMap = None) -> Question:
        """Read a question from its `to_json`; ValueError for anything else.

        Args:
            text: the JSON.
            features: your own map, if the question names none of the built-in ones.
        """
        question = super().from_json(text)
        require(
            None in (question.features, features),
            "features must be left out: the question names its own map",
        )
        return question if features is None else replace(question, features=features)


def encode(
    X: ArrayLike,
    y: ArrayLike | None,
    document: str,
    *,
    most_epsilon: float,
    ledger: Ledger | None = None,
    rng: RngLike = None,
    features: FeatureMap = None,
) -> Messages:
    """Answer the published JSON of a question on a device: one private message per example, whatever the data are.

    Args:
        X: examples; on a device there is one.
        y: their labels or targets; None for a question about the centre.
        document: the question's JSON, `Question.to_json()`.
        most_epsilon: the most ε that an example's messages may cost together, if somebody can link them. A document
            that asks for more is refused: that depends on the document alone.
        ledger: the person's ledger, charged before anything is encoded; then X must be one example.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        features: your own map, if the question names none of the built-in ones. If it raises an error, so does
            `encode`: make it return nan instead.

    Examples:
        >>> from sstq.mechanisms import GroupUnit
        >>> asked = Question("classes", GroupUnit(4, 3.0, groups=2), classes=("cat", "dog"))
        >>> len(encode([[1.0, 2.0, 0.0, 1.0]], ["cat"], asked.to_json(), most_epsilon=3.0))
        1
    """
    question = Question.from_json(document, features)
    several: Any = X
    if ledger is not None and (not hasattr(several, "__len__") or len(several) > 1):
        raise ValueError("X must be one example with a ledger, got several")
    question.pay(most_epsilon, ledger)
    return question.encode(X, y, rng)


def _array(numbers: Any) -> Floats | None:
    return None if numbers is None else np.array(numbers, float)


def _pair(value: Any) -> tuple[Any, Any]:
    """The features and the label of a value; none for what is no pair."""
    try:
        features, label = value if isinstance(value, tuple | list) else ()
    except Exception:
        return [], None
    return features, label


def _place(label: Any, places: Mapping[Any, int]) -> int:
    try:
        return places.get(plain_label(label), -1)
    except Exception:
        return -1


def checked_bounds(norm: Any, middle: Any, half: Any) -> Bounds:
    """The bound of the norm of the features, the middle of the target's range and half its length."""
    return (
        check_number("x_bound", norm, 1e-100, 1e100),
        check_number("y_bound", middle, -1e100, 1e100),
        check_number("y_bound", half, 1e-100, 1e100),
    )


def _one_per_row(y: ArrayLike | None, count: int, what: str) -> NDArray[Any]:
    given = (
        y
        if isinstance(y, np.ndarray)
        else np.fromiter(() if y is None else cells_of(y), dtype=object)
    )
    if given.ndim != 1 or len(given) != count:
        raise ValueError(
            f"y must be {count} {what}, one per row of X, got an array of shape {given.shape}"
        )
    return given


def plain_label(label: Any) -> Any:
    """Convert a label to JSON: NumPy's numbers and strings become Python's, and whole floats become integers."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int | str | float):
        raise ValueError(f"labels must be integers or strings, got {label!r}")
    return value
