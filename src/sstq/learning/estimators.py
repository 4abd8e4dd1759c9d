"""scikit-learn's base classes, with an error that names the extra if it is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

try:
    from sklearn.base import BaseEstimator as BaseEstimator
    from sklearn.base import ClassifierMixin as ClassifierMixin
    from sklearn.base import RegressorMixin as RegressorMixin
    from sklearn.base import clone as clone
    from sklearn.utils.multiclass import check_classification_targets as check_classification_targets
    from sklearn.utils.validation import check_is_fitted as check_is_fitted
    from sklearn.utils.validation import validate_data as validate_data
except ImportError as error:
    raise ImportError("private estimators need scikit-learn 1.6 or later: pip install 'sstq[learning]'") from error


def generator_of(random_state: Any) -> np.random.Generator | None:
    """Return the generator of a `random_state`; None for the operating system's randomness."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state must be None, an integer ≥ 0 or a generator, got {random_state!r}")
    return np.random.default_rng(int(random_state))


def public_seed(rng: np.random.Generator | None) -> int:
    """Draw the public seed of frames."""
    return int((rng or np.random.default_rng()).integers(2**63))


def known_rows(estimator: Any, X: ArrayLike) -> ArrayLike:
    """Return examples to predict, checked against those of `fit`; a deployment has seen none."""
    if not hasattr(estimator, "n_features_in_"):
        return X
    checked: ArrayLike = validate_data(estimator, X, reset=False, allow_nd=True, dtype="numeric")
    return checked
