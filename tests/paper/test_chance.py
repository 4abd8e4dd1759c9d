"""The chance of a classifier: constants of the record, and right as often as the page says."""

import csv

import numpy as np
import pytest

from paper import chance
from sstq.planning import plan
from sstq.planning.plans import _CHANCE


@pytest.fixture(scope="module")
def rows():
    with chance.RECORD.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_the_constants_are_those_of_the_record(rows):
    np.testing.assert_allclose(_CHANCE, chance.fit_chance(rows), atol=5e-4)


def test_how_often_it_is_right_of_tables_that_it_was_not_fitted_to(rows):
    """In 96 cells: as docs/learning.md says."""
    assert len(rows) == 416
    assert len({row["table"] for row in rows}) == 26
    shares = (
        np.mean([chance.is_useful(row) for row in rows]),
        chance.right_of_others(rows, chance.evidence_of_plan),
        chance.right_of_others(rows),
        chance.right_in_hindsight(rows),
    )
    assert [round(96 * share) for share in shares] == [65, 69, 78, 90]
    answers = {}
    for row in rows:
        cell = row["table"], row["people"], row["epsilon"]
        answers.setdefault(cell, set()).add(chance.is_useful(row))
    assert np.mean([len(one) > 1 for one in answers.values()]) == pytest.approx(
        1 / 8, abs=0.01
    )


def test_predictions_are_fair_on_tables():
    """The mean of predicted less true accuracy is 0.01 ± 0.04 of the printed error, as docs/learning.md says."""
    with chance.PREDICTIONS.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 702
    off = np.array([float(row["predicted"]) - float(row["accuracy"]) for row in rows])
    printed = np.mean([float(row["predicted_stderr"]) for row in rows])
    assert off.mean() / printed == pytest.approx(0.01, abs=0.005)
    assert off.std(ddof=1) / np.sqrt(len(rows)) / printed == pytest.approx(
        0.04, abs=0.005
    )


def test_the_threshold_is_where_the_chance_is_one_half(rows):
    for row in rows[:8]:
        classes = int(row["classes"])
        found = plan(2, 3000, 3.0, classes=classes)
        known = {"noise": found.noise, "majority": found.useful_below}
        assert np.dot(chance.evidence_of(known), _CHANCE) == pytest.approx(0, abs=1e-9)
        known["majority"] = 1 / classes
        logit = np.log(found.chance / (1 - found.chance))
        assert np.dot(chance.evidence_of(known), _CHANCE) == pytest.approx(logit)


def test_a_table_is_learned(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2000).astype(str)
    X = rng.standard_normal((2000, 2)) + 3 * (y == "1")[:, None]
    monkeypatch.setattr(chance, "read_keel", lambda _name: (X, y))
    rows = list(chance.measure_all(["banana"], [1000, 5000], 1))
    assert [row["different"] for row in rows] == [1000, 1000, 1300, 1300]
    assert all(row["accuracy"] > 0.6 for row in rows if row["epsilon"] == 3)
