"""PrivateRegression: coefficients within their noise, a deployment, scikit-learn's manners, and bad input."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from sstq.learning import PrivateRegression, encode

pytestmark = pytest.mark.slow

TRUE = np.array([0.6, -0.4, 0.2])
UNIT = {"bounds": (-0.6, 0.6), "y_bound": 1.0}


def people(count, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (count, 3)) / np.sqrt(3)
    return X, X @ TRUE + 0.1 + 0.05 * rng.standard_normal(count)


def test_a_deployment_learns_from_messages_alone(seed):
    X, y = people(100_000, seed)
    server = PrivateRegression(6.0, bounds=[(-0.6, 0.6)] * 3, y_bound=1.0)
    raw = encode(X, y, server.question(len(X)), most_epsilon=20.0).to_bytes()
    server.learn(server.asked.mechanism.messages_from_bytes(raw, len(X)))
    assert server.score(X, y) > 0.5
    with pytest.raises(ValueError, match="call question first"):
        server.learn(None)


def test_few_people_get_a_flat_answer_not_a_wild_one(seed):
    X, y = people(50, seed)
    model = PrivateRegression(0.5, **UNIT, check_people=0, random_state=seed).fit(X, y)
    assert np.all(np.abs(model.predict(X)) < 5)


def test_coefficients_are_close_and_people_report_how_much_is_explained(seed):
    X, y = people(200_000, seed)
    model = PrivateRegression(
        4.0, bounds=(-0.6, 0.6), y_bound=(-1, 1), random_state=seed
    ).fit(X, y)
    # The noise per moment is about 0.005; over the spread 1/9 of a feature that is 0.05 per coefficient. Six of them.
    np.testing.assert_allclose(model.coef_, TRUE, atol=0.3)
    assert model.intercept_ == pytest.approx(0.1, abs=0.1)
    assert model.score(X, y) > 0.5
    assert model.r2_stderr_ < 0.2
    # Six standard errors: fails for one seed in 10⁸; targets beyond 2.5 standard deviations hardly matter here.
    assert abs(model.r2_ - model.score(X, y)) < 6 * model.r2_stderr_ + 0.05


def test_with_many_people_no_row_is_moved_and_columns_of_yes_and_no_are_told_right(
    seed,
):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (200_000, 2)).astype(float)
    true = np.array([0.4, -0.3])
    y = X @ true + 0.1 * rng.standard_normal(len(X))
    model = PrivateRegression(
        6.0, bounds=(0, 1), y_bound=(-1, 1), random_state=seed
    ).fit(X, y)
    assert model.row_bound_ == pytest.approx(np.sqrt(2 * 3))
    # Each is off by 2 %, and shrunk by at most as much; rows moved to 1.2·√d would have them 44 % too large.
    np.testing.assert_allclose(model.coef_ / true, 1, atol=0.2)


def test_predictions_move_long_rows_as_devices_do(seed):
    X, y = people(5000, seed)
    model = PrivateRegression(3.0, **UNIT, check_people=0, random_state=seed).fit(X, y)
    # Few people: the shortest bound. A corner is √3 times as long as rows that bounds let expect.
    assert model.row_bound_ == pytest.approx(1.2 * np.sqrt(3))
    corner = np.array([[0.6, -0.6, 0.6]])
    moved = corner * 1.2 / np.sqrt(3)
    assert model.predict(corner) == pytest.approx(model.predict(moved))
    inner = corner / 3
    whole = model.coef_ @ inner[0] + model.intercept_
    assert model.predict(inner) == pytest.approx([whole])
    device = model.ask("errors", 100).vectors(np.vstack([corner, moved]), [0.1, 0.1])
    np.testing.assert_allclose(device[0], device[1])


def test_columns_are_scaled_by_bounds_or_public_rows():
    X, y = people(5000, 1)
    units = np.array([1.0, 1024.0, 2.0**-10])
    options = {"check_people": 0, "random_state": 3}
    one = PrivateRegression(4.0, public=X[:500], y_bound=1, **options).fit(X, y)
    two = PrivateRegression(4.0, public=X[:500] * units, y_bound=100, **options).fit(
        X * units, 100 * y
    )
    np.testing.assert_allclose(two.coef_ * units, 100 * one.coef_)
    assert two.intercept_ == pytest.approx(100 * one.intercept_)


@pytest.mark.filterwarnings("error:this regression is not shown")
def test_a_regression_worse_than_the_mean_warns():
    """With fixed seeds: noise makes one in about forty look better than the mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 5))
    y = rng.uniform(-1, 1, 400)
    with pytest.raises(UserWarning, match="not shown to be better than the mean"):
        PrivateRegression(1.0, bounds=(-1, 1), y_bound=1, random_state=0).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_it_is_an_estimator():
    check_estimator(
        PrivateRegression(20.0, bounds=(-10, 10), y_bound=10, check_people=0),
        on_skip=None,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 100}, "epsilon must be"),
        ({"y_bound": -1}, "y_bound must be"),
        ({"y_bound": None}, "y_bound must be given"),
        ({"bounds": None}, "columns need a scale"),
        ({"y_bound": (1, 0)}, "low < high"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PrivateRegression(**UNIT | options).fit(*people(20, 0))


def test_bad_targets_are_refused():
    model = PrivateRegression(3.0, bounds=[(-1, 1)] * 3, y_bound=1.0)
    model.question(10)
    with pytest.raises(ValueError, match="y must be 2 numbers"):
        model.asked.encode(np.ones((2, 3)), [1.0])
    with pytest.raises(ValueError, match="infinity"):
        PrivateRegression(3.0, **UNIT).fit(np.ones((2, 3)), [1.0, np.inf])
