import json
import math

import numpy as np
import pytest

from paper.demo import TRAINED, follow_year, mean_images, run_demo, split_digits
from paper.demo_page import demo_tables, write_demo
from sstq import Estimate
from sstq.learning.features import unit_rows


def test_no_image_is_in_two_parts(seed):
    """Split by image before copying: nobody who checks or tests holds an image that was learned from."""
    digits = split_digits(np.random.default_rng(seed))
    parts = [digits.teach, digits.check, digits.test]
    assert sum(len(labels) for _, labels in parts) == 1437
    rows = np.concatenate([images for images, _ in parts])
    assert len(np.unique(rows, axis=0)) == 1437
    for images, labels in parts:
        assert len(images) == len(labels)
        assert set(labels) == set(range(10))
    again = split_digits(np.random.default_rng(seed + 1))
    assert not np.array_equal(again.test[0], digits.test[0])


def test_mean_images_come_from_the_centre_and_mean_directions():
    """Without noise all that is left is that lengths differ a little between digits."""
    pixels, digits = split_digits(np.random.default_rng(0)).teach
    images = unit_rows(pixels)
    centre = images.mean(axis=0)
    moved = images - centre
    directions = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    truth, means = (
        np.stack([rows[digits == digit].mean(axis=0) for digit in range(10)])
        for rows in (images, directions)
    )
    found = mean_images(Estimate(centre, np.zeros(64), len(images)), means)
    assert np.linalg.norm(found - truth) < 0.05 * np.linalg.norm(truth)


@pytest.mark.slow
def test_prediction_and_accuracy_agree_within_their_errors(seed):
    # Both are of images that nobody learned from, drawn from the same writers. 5.5 joint standard errors leave a
    # false-failure rate below 1e-6 for each of the two comparisons.
    result = run_demo(rng=seed, epsilons=(8.0,), copies=(1, 20), rounds=0)
    for row in result.crowds:
        assert abs(row.predicted - row.accuracy) < 5.5 * math.hypot(
            row.predicted_stderr, row.accuracy_stderr
        )
        assert (
            row.people * row.bits_per_person / 8
            <= row.bytes_sent
            <= row.people * row.bits_per_person / 8 + 4
        )
    one, many = result.crowds
    assert (one.people, many.people) == (1150, 23_000)
    # 287 images are too few to know an accuracy of 90 % better than to 1.7 points, however many people hold each.
    assert many.predicted_stderr > 0.8 * math.sqrt(
        many.predicted * (1 - many.predicted) / 287
    )
    assert many.accuracy > result.exact[0] - 0.1
    assert np.linalg.norm(many.images - result.truth) < 0.3 * np.linalg.norm(
        result.truth
    )
    assert many.shares.sum() == pytest.approx(1)


def test_a_seed_repeats_and_secret_randomness_does_not():
    first, again = (
        run_demo(rng=7, epsilons=(8.0,), copies=(1,), rounds=0) for _ in range(2)
    )
    assert np.array_equal(first.crowds[0].images, again.crowds[0].images)
    assert first.simulated
    secret, other = (run_demo(epsilons=(8.0,), copies=(1,), rounds=0) for _ in range(2))
    assert not secret.simulated
    assert not np.array_equal(secret.crowds[0].images, other.crowds[0].images)


@pytest.mark.slow
def test_page_pictures_and_numbers_are_written(tmp_path):
    result = run_demo(rng=1, epsilons=(0.5, 8.0), copies=(1, 2), rounds=2)
    page = write_demo(result, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 6
    for name in ("figure-1.png", "digits-narrow.png", "year.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [(row["epsilon"], row["copies"]) for row in stored["crowds"]] == [
        (0.5, 1),
        (8, 1),
        (0.5, 2),
        (8, 2),
    ]
    assert list(dict.fromkeys(row["method"] for row in stored["training"])) == list(
        TRAINED
    )
    trained, asked, year = demo_tables(result)
    assert [row[2] for row in trained.rows] == ["not private", *["6"] * 7]
    assert asked.rows[1][2] == "–", (
        "287 answers at ε = 0.5 are off by more than 5 points"
    )
    assert [len(row) for row in year.rows] == [5, 5]
    assert "Made with a seed: not private" in text


def test_a_year_is_smoothed_beside_the_truth(seed):
    """The curves are nearer to the truth than weeks by themselves, and their bands hold in most weeks.

    Weeks that follow each other share an error: in 1 of 300 years a band of 95 % holds in less than 70 % of them. In
    1,500 years at most 2 of 52 weeks were off by more than 4 errors, and no ratio was above 0.82.
    """
    year = follow_year(seed, people=60_000)
    for habit, truth in enumerate(year.truth):
        curve = year.result.curve(item=habit)
        low, high = curve.band(1 - 1e-7)
        error = np.sqrt(np.mean((curve.value - truth) ** 2))
        assert error < np.sqrt(np.mean((curve.raw - truth) ** 2))
        assert np.mean((low <= truth) & (truth <= high)) > 0.9
        # The band is not wide: weeks by themselves have errors of five points.
        assert curve.stderr.mean() < 0.7 * curve.raw_stderr.mean()
    assert sum(year.result.people) == 60_000
