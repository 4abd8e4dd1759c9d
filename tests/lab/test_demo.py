import json
import sys

import numpy as np
import pytest

from sstq import LocalReport
from sstq.lab.demo import CLASSES, CLIP, DIM, IMAGES, MID_GREY, choose_mechanism, load_images, run_demo, save_results
from sstq.lab.plots import draw_digits
from sstq.plots import draw_channel

EPSILONS = (1.0, 2.0, 4.0, 8.0)


def relative_variance(mechanism, rows, seed):
    """Variance over squared mean of ‖error of the mean of these rows‖², from the mechanism's own messages.

    For n independent errors z with covariance Σ it is 2·tr(Σ²)/tr(Σ)² plus Var‖z‖²/(n·(E‖z‖²)²). Sampling can only
    make the estimate of tr(Σ²) larger on average.
    """
    held = np.repeat(rows, 100, axis=0)
    errors = mechanism.decode(mechanism.encode(held, rng=seed)) - held
    covariance = errors.T @ errors / len(errors)
    norms = np.sum(errors**2, axis=1)
    return 2 * np.sum(covariance**2) / np.trace(covariance) ** 2 + norms.var() / norms.mean() ** 2 / len(rows)


def test_measured_errors_are_the_predicted_ones(seed):
    # The ratio (measured/predicted)², averaged over crowds and ε, sums 8·10·64 nearly Gaussian squares: 5.5 standard
    # errors leave a false-failure rate below 1e-6.
    copies = (1, 4)
    result = run_demo(rng=seed, epsilons=EPSILONS, copies=copies)
    ratios = [(row.measured / row.predicted) ** 2 for row in result.rows]
    pixels, digits = load_images()
    a_class = pixels[digits == 0] - MID_GREY
    a_row = sum(relative_variance(choose_mechanism(epsilon), a_class, seed + 1) for epsilon in EPSILONS) / CLASSES
    spread = a_row * len(copies)
    tolerance = 5.5 * np.sqrt(spread) / len(ratios)
    assert tolerance < 0.2  # so the test has power: a factor of two in the variance cannot pass
    assert abs(np.mean(ratios) - 1) < tolerance


def test_a_larger_crowd_is_better_and_predicted_so():
    result = run_demo(rng=3, epsilons=(4.0,), copies=(1, 25))
    one, many = result.rows
    assert one.clients == IMAGES
    assert many.clients == 25 * IMAGES
    assert many.predicted == pytest.approx(one.predicted / 5, rel=1e-3)
    assert one.images.shape == result.truth.shape == (CLASSES, DIM)


def test_the_public_bound_holds_for_every_image_and_nothing_is_clipped():
    pixels, _ = load_images()
    assert pixels.shape == (IMAGES, DIM)
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert np.sqrt(DIM) * MID_GREY == CLIP
    report = LocalReport()
    choose_mechanism(2.0).encode(pixels - MID_GREY, rng=1, report=report)
    assert (report.vectors, report.clipped) == (IMAGES, 0)


def test_bits_are_chosen_from_one_to_four_and_counted_in_bytes():
    result = run_demo(rng=1, epsilons=EPSILONS, copies=(1,))
    chosen = [choose_mechanism(epsilon).bits for epsilon in EPSILONS]
    assert chosen == sorted(chosen)
    pixels, digits = load_images()
    for row, bits in zip(result.rows, chosen, strict=True):
        assert row.message_bits == 8 + bits
        assert row.bytes_sent == sum(-(-int(count) * row.message_bits // 8) for count in np.bincount(digits))
        assert row.bytes_as_floats == 4 * pixels.size
        assert row.privacy_loss <= row.epsilon


def test_a_seed_repeats_and_secret_randomness_does_not():
    first, again = (run_demo(rng=7, epsilons=(8.0,), copies=(1,)) for _ in range(2))
    assert np.array_equal(first.rows[0].images, again.rows[0].images)
    assert first.simulated
    secret, other = (run_demo(epsilons=(8.0,), copies=(1,)) for _ in range(2))
    assert not secret.simulated
    assert not np.array_equal(secret.rows[0].images, other.rows[0].images)


def test_pictures_and_results_are_written(tmp_path):
    result = run_demo(rng=1, epsilons=(2.0, 8.0), copies=(1, 2))
    draw_digits(result, tmp_path / "digits.png")
    draw_channel(choose_mechanism(2.0), tmp_path / "channel.svg")
    save_results(result, tmp_path / "results.json")
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "channel.svg").read_text()
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [row["epsilon"] for row in stored["rows"]] == [2.0, 2.0, 8.0, 8.0]
    assert stored["simulated"] is True


def test_missing_extras_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"sstq\[demo\]"):
        run_demo()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"sstq\[plots\]"):
        draw_channel(choose_mechanism(2.0), tmp_path / "channel.png")
