import json
import math

import numpy as np
import pytest

from paper.datasets import load
from paper.demo import HELD, draw_demo, mean_images, run_demo, save_results
from sstq import Estimate
from sstq.learning.features import unit_rows


def test_mean_images_come_from_the_centre_and_mean_directions():
    """Without noise all that is left is that lengths differ a little between digits."""
    digits = load("digits").train_labels
    images = unit_rows(load("digits").train_images)
    centre = images.mean(axis=0)
    moved = images - centre
    directions = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    truth, means = (
        np.stack([rows[digits == digit].mean(axis=0) for digit in range(10)]) for rows in (images, directions)
    )
    found = mean_images(Estimate(centre, np.zeros(64), HELD), means)
    assert np.linalg.norm(found - truth) < 0.05 * np.linalg.norm(truth)


@pytest.mark.slow
def test_a_crowd_learns_nearly_as_much_as_without_privacy(seed):
    # Predicted and measured accuracy differ by their standard errors and by what test images are harder: they are by
    # other writers, and without privacy 4 % fewer are right. 5.5 standard errors leave a false-failure rate below 1e-6.
    result = run_demo(rng=seed, epsilons=(8.0,), copies=(1, 20))
    one, many = result.rows
    assert (one.people, many.people) == (HELD, 20 * HELD)
    for row in result.rows:
        sampling = row.predicted_stderr**2 + row.accuracy * (1 - row.accuracy) / result.tested
        assert abs(row.predicted_accuracy - row.accuracy) < 5.5 * math.sqrt(sampling) + 0.08
    assert result.exact_accuracy > 0.8
    assert many.accuracy > result.exact_accuracy - 0.1
    assert np.linalg.norm(many.images - result.truth) < 0.3 * np.linalg.norm(result.truth)
    assert many.shares.sum() == pytest.approx(1)


def test_test_images_are_held_by_nobody_and_bytes_are_counted():
    result = run_demo(rng=1, epsilons=(4.0,), copies=(1,))
    (row,) = result.rows
    assert (row.people, result.tested) == (HELD, 360)
    assert row.people * row.bits_per_person / 8 <= row.bytes_sent <= row.people * row.bits_per_person / 8 + 4
    assert row.images.shape == result.truth.shape == (10, 64)


def test_a_seed_repeats_and_secret_randomness_does_not():
    first, again = (run_demo(rng=7, epsilons=(8.0,), copies=(1,)) for _ in range(2))
    assert np.array_equal(first.rows[0].images, again.rows[0].images)
    assert first.simulated
    secret, other = (run_demo(epsilons=(8.0,), copies=(1,)) for _ in range(2))
    assert not secret.simulated
    assert not np.array_equal(secret.rows[0].images, other.rows[0].images)


@pytest.mark.slow
def test_picture_and_results_are_written(tmp_path):
    result = run_demo(rng=1, epsilons=(1.0, 8.0), copies=(1, 2))
    draw_demo(result, tmp_path / "digits.png")
    save_results(result, tmp_path / "results.json")
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [(row["epsilon"], row["copies"]) for row in stored["rows"]] == [(1, 1), (8, 1), (1, 2), (8, 2)]
    assert stored["simulated"] is True
