"""Questions: everything that a device needs to answer once, published as JSON.

The device's features have length 1, the centre is subtracted, the directions are applied, and the result has length 1
again. The mechanism encodes it as one message, together with the label if the question asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.checks import check_number, check_option
from sstq.files.strict_json import read_json
from sstq.learning.features import (
    FeatureMap,
    Floats,
    apply_features,
    features_from_dict,
    features_to_dict,
    unit_rows,
)
from sstq.learning.moments import moment_vectors
from sstq.mechanisms import FrameUnit, GroupUnit, from_json
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike

__all__ = ["Question", "encode"]

_FORMAT, _VERSION = "sstq-question", 1
Kind = Literal["centre", "classes", "check", "moments"]
_KINDS: tuple[Kind, ...] = ("centre", "classes", "check", "moments")


@dataclass(frozen=True, eq=False)
class Question:
    """A question to a cohort of people, each of whom sends one message.

    Attributes:
        kind: "centre" for the mean of the features, "classes" for the features and the private label, "check" for
            whether a classifier is right, "moments" for products of features and a target.
        mechanism: the mechanism of the message; `GroupUnit` for classes, `FrameUnit` otherwise.
        directions: (p, D), applied to unit features after the centre is subtracted; None for the features themselves.
        centre: the centre of the features, (D,); None for zero.
        features: the public map; None if devices apply their own map first.
        classes: the labels, in the order of the mechanism's groups or of the classifier's scores.
        bounds: the bounds of the norm of the features and of the target, for moments; larger ones are clipped.
        scores: the classifier to check: coefficients (classes, p) and intercepts (classes,).

    Examples:
        >>> from sstq.mechanisms import GroupUnit
        >>> asked = Question("classes", GroupUnit(4, 3.0, groups=2), classes=("cat", "dog"))
        >>> len(encode([[1.0, 2.0, 0.0, 1.0]], ["dog"], asked.to_json()).to_bytes())
        2
    """

    kind: Kind
    mechanism: FrameUnit | GroupUnit
    directions: Floats | None = None
    centre: Floats | None = None
    features: FeatureMap = None
    classes: Sequence[Any] = ()
    bounds: tuple[float, float] | None = None
    scores: tuple[Floats, Floats] | None = None
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_option("kind", self.kind, _KINDS)
        if not isinstance(self.mechanism, GroupUnit if self.kind == "classes" else FrameUnit):
            raise ValueError(f"mechanism must fit a question of kind {self.kind!r}, got {self.mechanism!r}")
        if (self.bounds is None) == (self.kind == "moments"):
            raise ValueError(f"bounds must be given exactly for kind 'moments', got {self.bounds!r} for {self.kind!r}")
        if (self.scores is None) == (self.kind == "check"):
            raise ValueError(f"scores must be given exactly for kind 'check', got kind {self.kind!r}")
        groups, dim = self.mechanism.groups or 0, self.mechanism.dim
        if self.scores is not None:
            (groups, dim), count = self.scores[0].shape, len(self.scores[1])
            if count != groups or self.mechanism.dim != 1:
                raise ValueError(f"scores must have one intercept per class, and dim must be 1, got {count}, {dim}")
        labels = [plain_label(label) for label in self.classes]
        places = {label: place for place, label in enumerate(labels)}
        if len(places) != len(labels) or len(labels) != groups:
            raise ValueError(f"classes must be {groups} different labels, got {labels!r}")
        if self.directions is not None and len(self.directions) != dim:
            raise ValueError(
                f"directions must be {dim}, as the mechanism or the scores have, got {len(self.directions)}"
            )
        if self.centre is not None and self.directions is not None and len(self.centre) != self.directions.shape[1]:
            raise ValueError(f"centre must have {self.directions.shape[1]} numbers, got {len(self.centre)}")
        object.__setattr__(self, "_places", places)

    def vectors(self, X: ArrayLike, y: ArrayLike | None = None) -> Floats:
        """Return what the mechanism encodes, (n, dim); it is not private yet and never leaves the device."""
        found = apply_features(self.features, X)
        if self.bounds is not None:
            return moment_vectors(found, _targets(y, len(found)), self.bounds)
        refuse_zero_rows(found)
        rows = self.unit_features(unit_rows(found))
        if self.scores is None:
            return rows
        right = (rows @ self.scores[0].T + self.scores[1]).argmax(axis=1) == self.labels(y, len(rows))
        return np.where(right, 1.0, -1.0)[:, None]

    def unit_features(self, rows: Floats) -> Floats:
        """Return unit features minus the centre, along the directions, scaled to length 1 again; zeros stay."""
        width = self.mechanism.dim if self.directions is None else self.directions.shape[1]
        if rows.shape[1] != width:
            raise ValueError(f"X must have {width} features, got {rows.shape[1]}")
        moved = rows if self.centre is None else rows - self.centre
        return unit_rows(moved if self.directions is None else moved @ self.directions.T)

    def labels(self, y: ArrayLike | None, count: int) -> NDArray[np.int64]:
        """Return the index of each label among the classes; ValueError for an unknown label."""
        return label_places(y, self._places, count)

    def encode(self, X: ArrayLike, y: ArrayLike | None = None, rng: RngLike = None) -> Messages:
        """Encode one message per example; everything is checked before anything is sampled.

        Args:
            X: examples, as the feature map takes them; features (n, D) if the question has no map.
            y: their labels or targets, unless the question is about the centre.
            rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        """
        vectors = self.vectors(X, y)
        if self.kind == "classes":
            return self.mechanism.encode(vectors, rng=rng, groups=self.labels(y, len(vectors)))
        return self.mechanism.encode(vectors, rng=rng)

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785)."""
        import rfc8785

        def listed(values: Floats | None) -> Any:
            return None if values is None else values.tolist()

        text = {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": self.kind,
            "mechanism": json.loads(self.mechanism.to_json()),
            "directions": listed(self.directions),
            "centre": listed(self.centre),
            "features": features_to_dict(self.features),
            "classes": list(self._places),
            "bounds": None if self.bounds is None else list(self.bounds),
            "scores": None if self.scores is None else [listed(part) for part in self.scores],
        }
        return rfc8785.dumps(text).decode()

    @classmethod
    def from_json(cls, text: str, features: FeatureMap = None) -> Question:
        """Read a question from its `to_json`; ValueError for anything else.

        Args:
            text: the JSON.
            features: your own map, if the question names none of the built-in ones.
        """
        data = read_json(text)
        if not isinstance(data, dict) or (data.pop("format", None), data.pop("version", None)) != (_FORMAT, _VERSION):
            raise ValueError(f"format must be {_FORMAT!r}, version {_VERSION}, but this JSON is something else")
        names = {"kind", "mechanism", "directions", "centre", "features", "classes", "bounds", "scores"}
        if set(data) != names:
            raise ValueError(f"the question must have {sorted(names)}, got {sorted(data)}")
        described = features_from_dict(data["features"])
        if described is not None and features is not None:
            raise ValueError("features must be left out: the question names its own map")
        for name, count in (("bounds", 2), ("scores", 2), ("classes", None)):
            value = data[name]
            if value is not None and (not isinstance(value, list) or (count and len(value) != count)):
                raise ValueError(f"{name} must be a list{f' of {count}' if count else ''}, got {value!r}")
        bounds, scores = data["bounds"], data["scores"]
        return cls(
            data["kind"],
            cast(FrameUnit | GroupUnit, from_json(json.dumps(data["mechanism"]))),
            None if data["directions"] is None else _numbers("directions", data["directions"], 2),
            None if data["centre"] is None else _numbers("centre", data["centre"], 1),
            features if described is None else described,
            tuple(data["classes"] or ()),
            None if bounds is None else checked_bounds(*bounds),
            None if scores is None else (_numbers("scores", scores[0], 2), _numbers("scores", scores[1], 1)),
        )


def encode(
    X: ArrayLike,
    y: ArrayLike | None,
    document: str,
    *,
    rng: RngLike = None,
    features: FeatureMap = None,
) -> Messages:
    """Encode one private message per example on a device, from the published JSON of a question.

    Args:
        X: examples; on a device there is one.
        y: their labels or targets; None for a question about the centre.
        document: the question's JSON, `Question.to_json()`.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        features: your own map, if the question names none of the built-in ones.

    Examples:
        >>> from sstq.mechanisms import GroupUnit
        >>> asked = Question("classes", GroupUnit(4, 3.0, groups=2), classes=("cat", "dog"))
        >>> len(encode([[1.0, 2.0, 0.0, 1.0]], ["cat"], asked.to_json()))
        1
    """
    return Question.from_json(document, features).encode(X, y, rng)


def refuse_zero_rows(found: Floats, name: str = "features") -> None:
    """Raise ValueError for a row of zeros, which has no direction."""
    zero = np.flatnonzero(~found.any(axis=1))
    if len(zero):
        raise ValueError(f"{name} must not all be zero, got zeros in row {zero[0]}")


def label_places(y: ArrayLike | None, places: Mapping[Any, int], count: int) -> NDArray[np.int64]:
    """Return the index of each of `count` labels; ValueError for an unknown label."""
    given = np.asarray([] if y is None else y)
    if given.ndim != 1 or len(given) != count:
        raise ValueError(f"y must be {count} labels, one per row of X, got an array of shape {given.shape}")
    found = np.array([places.get(plain_label(label), -1) for label in given.tolist()], dtype=np.int64)
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        row = unknown[0]
        raise ValueError(f"y must be among the classes {list(places)}, got {given.tolist()[row]!r} in row {row}")
    return found


def checked_bounds(norm: Any, target: Any) -> tuple[float, float]:
    """The bounds of the norm of the features and of the target."""
    return check_number("x_bound", norm, 1e-100, 1e100), check_number("y_bound", target, 1e-100, 1e100)


def _targets(y: ArrayLike | None, count: int) -> Floats:
    targets = np.asarray([] if y is None else y)
    if targets.ndim != 1 or len(targets) != count:
        raise ValueError(f"y must be {count} numbers, one per row of X, got an array of shape {targets.shape}")
    values = targets.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"y must be finite, got {values[~np.isfinite(values)][0]}")
    return values


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


def _numbers(name: str, value: Any, axes: int) -> Floats:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from error
    if array.ndim != axes or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers in {axes} dimensions, got shape {array.shape}")
    return array
