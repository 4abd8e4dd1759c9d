"""The chance of a classifier: constants of the record, and right as often as the page says."""

import csv

import numpy as np
import pytest

from paper import chance
from paper.r_tables import R_TABLES
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
    assert len(rows) == 600
    assert len({row["table"] for row in rows}) == 49
    shares = (
        np.mean([chance.is_useful(row) for row in rows]),
        chance.right_of_others(rows, chance.evidence_of_plan),
        chance.right_of_others(rows),
        chance.right_in_hindsight(rows),
    )
    assert [round(96 * share) for share in shares] == [59, 62, 75, 90]
    answers = {}
    for row in rows:
        cell = row["table"], row["people"], row["epsilon"]
        answers.setdefault(cell, set()).add(chance.is_useful(row))
    twice = [one for (table, *_), one in answers.items() if table not in R_TABLES]
    assert np.mean([len(one) > 1 for one in twice]) == pytest.approx(1 / 8, abs=0.01)


def test_where_it_is_sure_it_is_right_in_91_of_96(rows):
    """In 35 % of the cells, of tables that it was not fitted to, as docs/learning.md says."""
    said, right = chance.sure_of_others(rows)
    assert round(100 * said) == 35
    assert round(96 * right) == 91


def test_chances_are_as_frequent_as_they_say(rows):
    """Of tables that it was not fitted to, in five bins: as docs/learning.md says."""
    chances, useful = chance.chances_of_others(rows)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (low <= chances) & (chances < low + 0.2)
        assert inside.sum() > 60
        assert useful[inside].mean() == pytest.approx(chances[inside].mean(), abs=0.045)


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


def test_predictions_are_fair_on_tables_of_r(rows):
    """The mean of predicted less true accuracy, of the printed error, as docs/learning.md says."""
    own = [row for row in rows if row["table"] in R_TABLES]
    assert len(own) == 184
    off = np.array([float(row["predicted"]) - float(row["accuracy"]) for row in own])
    printed = np.mean([float(row["predicted_stderr"]) for row in own])
    assert off.mean() / printed == pytest.approx(-0.06, abs=0.005)
    assert off.std(ddof=1) / np.sqrt(184) / printed == pytest.approx(0.10, abs=0.005)


def test_the_thresholds_are_where_the_chance_is_nine_tenths_and_one_tenth(rows):
    for row in rows[:8]:
        classes = int(row["classes"])
        found = plan(2, 3000, 3.0, classes=classes)
        known = {"noise": found.noise, "majority": found.useful_below}
        assert np.dot(chance.evidence_of(known), _CHANCE) == pytest.approx(np.log(9))
        known["majority"] = found.useless_above
        assert np.dot(chance.evidence_of(known), _CHANCE) == pytest.approx(-np.log(9))
        known["majority"] = 1 / classes
        logit = np.log(found.chance / (1 - found.chance))
        assert np.dot(chance.evidence_of(known), _CHANCE) == pytest.approx(logit)


def test_a_table_is_learned(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2000).astype(str)
    X = rng.standard_normal((2000, 2)) + 3 * (y == "1")[:, None]
    monkeypatch.setattr(chance, "read_keel", lambda _name: (X, y))
    monkeypatch.setattr(chance, "read_r_table", lambda _name: (X, y))
    assert len(list(chance.measure_all(["cells"], [1000]))) == 2
    rows = list(chance.measure_all(["banana"], [1000, 5000], 1))
    assert [row["different"] for row in rows] == [1000, 1000, 1300, 1300]
    assert all(row["accuracy"] > 0.6 for row in rows if row["epsilon"] == 3)
