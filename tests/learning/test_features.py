"""Feature maps: their maths against loops, their JSON, and what they refuse."""

import math

import numpy as np
import pytest

from sstq.learning import FourierFeatures, GradientHistograms, Pixels
from sstq.learning.features import apply_features, features_from_dict, features_to_dict


def slow_gradients(image, cell, angles):
    """One image, one pixel at a time."""
    rows, columns = image.shape
    out = np.zeros((angles + 1, rows // cell, columns // cell))
    for r in range(rows):
        for c in range(columns):
            across = image[r, c + 1] - image[r, c - 1] if 0 < c < columns - 1 else 0.0
            down = image[r + 1, c] - image[r - 1, c] if 0 < r < rows - 1 else 0.0
            place = (math.atan2(down, across) % math.pi) / math.pi * angles
            low = math.floor(place)
            size = math.hypot(across, down)
            out[low % angles, r // cell, c // cell] += size * (low + 1 - place)
            out[(low + 1) % angles, r // cell, c // cell] += size * (place - low)
            out[angles, r // cell, c // cell] += 2 * image[r, c] / cell**2
    return np.sqrt(out).ravel()


@pytest.mark.parametrize(("shape", "cell", "angles"), [((8, 8), 2, 8), ((12, 8), 4, 5)])
def test_gradients_are_those_of_a_loop(seed, shape, cell, angles):
    images = np.random.default_rng(seed).random((3, *shape))
    found = GradientHistograms(shape, cell, angles)(images.reshape(3, -1))
    slow = [
        slow_gradients(image.astype(np.float32).astype(float), cell, angles)
        for image in images
    ]
    # the square root of what float32 leaves of zero
    np.testing.assert_allclose(found, slow, atol=2e-3)


def test_a_grey_image_in_colour_has_the_same_gradients(seed):
    grey = np.random.default_rng(seed).random((4, 8, 8))
    colour = GradientHistograms((3, 8, 8), 4)(np.repeat(grey[:, None], 3, axis=1))
    plain = GradientHistograms((8, 8), 4)(grey)
    np.testing.assert_allclose(colour[:, : 8 * 4], plain[:, : 8 * 4], atol=2e-3)
    assert colour.shape == (4, (8 + 3) * 4)


@pytest.mark.parametrize(
    "features", [GradientHistograms((28, 28)), GradientHistograms((3, 8, 12), 2, 5)]
)
def test_cosines_are_orthonormal_with_low_frequencies_first(features):
    rows, frequency = features.cosines()
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)
    assert np.all(np.diff(frequency) >= 0)
    assert frequency[0] == 0


@pytest.mark.parametrize(
    "features",
    [
        None,
        Pixels(),
        GradientHistograms((3, 32, 32), 8, 6),
        FourierFeatures((0, 1), (1, 2), count=5, seed=3),
    ],
)
def test_descriptions_round_trip(features):
    assert features_from_dict(features_to_dict(features)) == features
    assert features_to_dict(np.tanh) is None


def test_cosines_have_the_gaussian_kernel(seed):
    """⟨f(x), f(z)⟩·2/count is exp(−‖x − z‖²/2D) up to 1/√count: six standard errors, one seed in 10⁸."""
    rows = np.random.default_rng(seed).uniform(-2, 2, (20, 4))
    found = FourierFeatures([0.0] * 4, [1.0] * 4, count=10_000, seed=seed % 2**32)(rows)
    apart = np.sum((rows[:, None] - rows[None]) ** 2, axis=2)
    np.testing.assert_allclose(
        2 * found @ found.T / 10_000, np.exp(-apart / 8), atol=6 / 100
    )


@pytest.mark.parametrize(
    "data", [3, {"name": "deep"}, {"name": "gradients"}, {"name": "pixels", "x": 1}, {}]
)
def test_bad_descriptions_are_refused(data):
    with pytest.raises(ValueError, match="features"):
        features_from_dict(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((28,),), "shape must be"),
        (((28, 0),), "shape must be"),
        (((28, 28), 5), "cell must divide"),
        (((28, 28), 0), "cell must be"),
        (((28, 28), 4, 1), "angles must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GradientHistograms(*arguments)


def test_bad_images_are_refused():
    features = GradientHistograms((4, 4), 2)
    with pytest.raises(ValueError, match="16 pixels"):
        features(np.ones((2, 15)))
    assert np.isnan(features(-np.ones((2, 16)))).any()
    with pytest.raises(ValueError, match="finite"):
        apply_features(features, -np.ones((2, 16)))


def test_features_must_be_finite_rows():
    with pytest.raises(ValueError, match="nan or infinity in row 1"):
        apply_features(None, [[1.0], [np.nan]])
    with pytest.raises(ValueError, match=r"shape \(n, D\)"):
        apply_features(lambda X: X[0], np.ones((2, 2)))
    with pytest.raises(ValueError, match="callable"):
        apply_features(7, np.ones((2, 2)))
