"""PrivateRegression: least squares from one private message per person."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sstq.aggregation import Estimate
from sstq.array_types import Floats
from sstq.checks import ArgumentError, check_argument, check_number
from sstq.learning.cohorts import CohortEstimator
from sstq.learning.features import MOST_SPREADS, apply_features
from sstq.learning.moments import (
    Bounds,
    bounded_rows,
    explained,
    moment_dim,
    symmetric,
)
from sstq.learning.questions import Kind, Question, checked_bounds
from sstq.learning.report import RegressionReport
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit
from sstq.studies import StudyPlan, register_study

# Rows of d columns in units of their spread are about √d long. Their bound is at least so many times that. Columns of
# yes and no are √3 times as long as bounds let expect, and a shorter bound makes coefficients too large.
_LEAST_BOUND = 1.2
# The bound grows with the people until no row is longer, as long as the ridge is at most this part of a column's mean
# square: a longer bound shrinks the columns beside the noise.
_MOST_RIDGE = 0.25
_Mechanism = FrameUnit | GroupUnit | Frequencies
# Targets are judged within so many standard deviations of their mean.
_JUDGED_SPREADS = 2.5


@register_study
@dataclass(eq=False, repr=False)
class PrivateRegression(RegressorMixin, CohortEstimator):  # type: ignore[misc]
    """Fit a linear regression to people who each send one ε-locally private message of features and target, once.

    The message holds everything that least squares needs: the products of features, a constant and the target with each
    other, as one vector of (d + 2)(d + 3)/2 numbers, by FrameUnit. The ridge is the size of the noise's largest
    eigenvalue: τ·√(2(d + 1)) for a noise of τ per entry. The intercept is not shrunk. Some people do not learn but
    check: they send how large their target is and what the regression leaves of it, both squared, which gives R².

    Args:
        epsilon: the ε of a person's only message, and so the person's total.
        bounds: public ends of the columns: {name: (low, high)}, an array (d, 2), or one pair for all of them.
        public: public rows like `X` of `fit`, which scale the columns if there are no bounds.
        y_bound: a public bound of the target: its magnitude, or its ends (low, high). What is beyond is clipped.
        check_people: the share of people who check.
        random_state: None for the operating system's randomness; a seed makes a simulation reproducible.

    Attributes:
        coef_: the coefficients of the columns, (d,), in their units.
        intercept_: the constant.
        row_bound_: the length that rows of columns in units of their spread may have, at least 1.2·√d; longer ones are
            moved to it, on devices and by `predict`, and if most are longer, `coef_` is too large by as much. The bound
            grows with the people until no row is longer.
        ridge_: the ridge that was added, for columns in units of `row_bound_` times their spread.
        people_: the number of people who answered.
        message_bits_: the bits per message.
        r2_, r2_stderr_: R² as the people who checked reported it, of targets within 2.5 standard deviations of their
            mean, and its standard error; nan before they did. Of heavy tails it is another R² than that of all targets.
        r2_interval_: the ends of its 95 % interval, which is not symmetrical where few people checked.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 100, (50_000, 2))
        >>> y = X @ [0.5, -0.3] + 20
        >>> model = PrivateRegression(epsilon=4.0, bounds=(0, 100), y_bound=(-20, 80), random_state=0).fit(X, y)
        >>> np.round(model.coef_, 1), bool(model.r2_ > 0.8)
        (array([ 0.4, -0.3]), True)
    """

    kind = "regression"

    epsilon: float = 3.0
    _: KW_ONLY
    bounds: Any = None
    public: ArrayLike | None = None
    y_bound: float | tuple[float, float] | None = None
    check_people: float = 0.1
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks have 200 samples: too few people for any private regression.
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> PrivateRegression:
        """Simulate devices and server: encode one message per example, and learn from these alone."""
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=True)
        self._begin(X.shape[1])
        checking = round(
            check_number("check_people", self.check_people, 0, 0.5) * len(X)
        )
        self._teach(X, y, {"errors": checking, "moments": len(X) - checking})
        return self

    def _begin(self, columns: int | None = None) -> None:
        if self.y_bound is None:
            raise ArgumentError(
                "y_bound",
                "must be given, got None: a public bound of the target, or (low, high)",
            )
        ends = np.asarray(self.y_bound, dtype=np.float64)
        low, high = (-ends, ends) if ends.ndim == 0 else ends
        if not low < high:
            raise ArgumentError(
                "y_bound",
                f"must be positive, or (low, high) with low < high, got {self.y_bound!r}",
            )
        self._map = replace(self._scaled_columns(columns), constant=0)
        self._range = ((low + high) / 2, (high - low) / 2)

    @property
    def _cohorts(self) -> dict[str, float]:
        checking = {"errors": self.check_people} if self.check_people else {}
        return {"moments": 1 - self.check_people, **checking}

    def _question(self, cohort: str, people: int, seed: int) -> Question:
        errors = cohort == "errors"
        dim = 2 if errors else moment_dim(self._map.width)
        mechanism = FrameUnit(dim, self.epsilon, clients=people, frame_seed=seed)
        judged: dict[str, Any] = (
            self._judged
            if errors
            else {
                "bounds": checked_bounds(
                    self._row_bound(mechanism, people), *self._range
                )
            }
        )
        return Question(cast(Kind, cohort), mechanism, features=self._map, **judged)

    def _row_bound(self, mechanism: _Mechanism, people: int) -> float:
        """The length that rows may have: the longest that leaves columns above the ridge, if any row can be so long."""
        width = self._map.width
        longest = MOST_SPREADS if self._ranges is None else math.sqrt(3)
        ridge = width * _noise(mechanism, people) * math.sqrt(2 * (width + 1))
        affordable = math.sqrt(_MOST_RIDGE / ridge)
        return math.sqrt(width) * min(max(affordable, _LEAST_BOUND), longest)

    def _take(self, cohort: str, question: Question, estimate: Estimate) -> None:
        if cohort == "errors":
            self._judge(estimate)
        else:
            self._solve(question, estimate)

    def _solve(self, asked: Question, estimate: Estimate) -> None:
        mechanism = asked.mechanism
        people = round(estimate.people)
        matrix = 3 * symmetric(estimate.value)
        products = matrix[:-1, :-1]
        along = matrix[:-1, -1]
        products[-1, -1] = 1.0  # the constant's own, which is known
        noise = _noise(mechanism, people)
        self.ridge_ = noise * math.sqrt(2 * len(products))
        values, vectors = np.linalg.eigh(products)
        positive = (vectors * np.maximum(values, 0)) @ vectors.T
        # with a certain intercept the matrix is regular, however large the noise
        constant = max(positive[-1, -1], 1.0)
        positive += self.ridge_ * np.eye(len(products))
        positive[-1, -1] = constant
        solution = np.linalg.solve(positive, along)
        norm, middle, half = cast(Bounds, asked.bounds)
        self.row_bound_ = norm
        self.coef_ = solution[:-1] * half / norm / self._map.spread
        self.intercept_ = float(
            middle + half * solution[-1] - self.coef_ @ self._map.centre
        )
        self.people_ = people
        self.message_bits_ = mechanism.message_bits
        self.r2_ = self.r2_stderr_ = math.nan
        self.r2_interval_ = (-math.inf, 1.0)
        # Noise may leave nothing of the variance; a target's spread is rarely below a twentieth of its range.
        mean = float(np.clip(along[-1], -1, 1))
        spread = _JUDGED_SPREADS * math.sqrt(max(matrix[-1, -1] - mean**2, 0.01))
        scores = [(solution[None, :-1] / spread, (solution[-1:] - mean) / spread)]
        bounds = (norm, middle + half * mean, half * spread)
        self._judged = {"bounds": bounds, "scores": scores}

    def _judge(self, estimate: Estimate) -> None:
        self.r2_, self.r2_stderr_, *ends = explained(estimate.value, estimate.stderr)
        self.r2_interval_ = (ends[0], min(ends[1], 1.0))
        self.people_ += round(estimate.people)
        if not self.r2_interval_[0] > 0:
            measured = "too few people checked to tell R²,"
            if math.isfinite(self.r2_):
                measured = f"R² = {self.r2_:.2f}, between {ends[0]:.2f} and {self.r2_interval_[1]:.2f},"
            warnings.warn(
                f"this regression is not shown to be better than the mean: {measured} at a total ε of {self.epsilon:g} "
                f"and {self.people_:,} people; ask more people, send fewer features or pass a larger epsilon",
                stacklevel=3,
            )

    def conclude(self) -> RegressionReport:
        """Return the coefficients, and how much they explain; the model itself is this estimator."""
        return RegressionReport(
            coef=self.coef_,
            intercept=self.intercept_,
            r2=self.r2_,
            r2_interval=self.r2_interval_,
            people=self.people_,
            epsilon=self.epsilon,
        )

    def plan(self, people: int) -> StudyPlan:
        """Tell the noise of the mean products of columns and target, which a ridge of √(2(d + 1)) times it drowns."""
        people = check_argument("people", people, of="clients")
        sizes = self.cohort_sizes(people)
        width = self._map.width
        mechanism = self._question("moments", people, 0).mechanism
        noise = _noise(mechanism, max(1, sizes.get("moments", 0)))
        # A column of the length that rows have has this mean square.
        square = 1 / self._row_bound(mechanism, max(1, sizes.get("moments", 0))) ** 2
        problem = (
            ""
            if noise * math.sqrt(2 * (width + 1)) < square
            else "the noise is larger than columns vary"
        )
        return StudyPlan(
            people,
            sizes,
            noise / square,
            "the noise of a mean product over that of a column",
            problem,
        )

    def predict(self, X: ArrayLike) -> Floats:
        """Predict the targets, (n,)."""
        check_is_fitted(self, "coef_")
        columns = self._map
        rows = apply_features(columns, apply_features(None, self._known_rows(X)))
        moved = self.row_bound_ * bounded_rows(rows, self.row_bound_)
        predicted: Floats = (
            np.asarray(columns.centre) + moved * columns.spread
        ) @ self.coef_ + self.intercept_
        return predicted


def _noise(mechanism: _Mechanism, people: int) -> float:
    """The standard error of the mean of one product."""
    return 3 * math.sqrt(mechanism.typical_error(people).total / mechanism.dim)
