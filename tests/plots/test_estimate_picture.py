"""The picture of an estimate."""

import matplotlib as mpl
import numpy as np
import pytest

import sstq


@pytest.mark.parametrize("dim", [1, 40, 41])
def test_the_picture_has_the_simultaneous_intervals(dim):
    estimate = sstq.Estimate(np.linspace(-1, 1, dim), np.full(dim, 0.1), 500)
    axes = estimate.plot(level=0.9).axes[0]
    half_width = estimate.region(0.9).half_width
    if dim <= 40:
        segments = axes.collections[0].get_segments()
        drawn = np.array([segment[1, 1] - segment[0, 1] for segment in segments]) / 2
        assert len(axes.patches) == dim
        np.testing.assert_allclose(drawn, half_width)
    else:
        corners = axes.collections[0].get_paths()[0].vertices
        assert corners[:, 1].max() == pytest.approx(1 + half_width[-1])


def test_a_picture_takes_labels_and_axes():
    estimate = sstq.Estimate(np.zeros(3), np.ones(3), 500)
    axes = mpl.figure.Figure().subplots()
    assert estimate.plot(labels=["a", "b", "c"], axes=axes) is axes.figure
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="labels must be 3"):
        estimate.plot(labels=["a"])


def test_groups_of_too_few_people_keep_their_place():
    """Half of the groups have nobody: their names are within the axes, and why they have no bar is written there."""
    labels = [f"country {number}" for number in range(6)]
    asked = {
        "country": sstq.Choice(labels),
        "age": sstq.Number(0, 100),
        "age by country": sstq.By("country", "age"),
    }
    survey = sstq.Survey(6.0, asked)
    people = {"country": labels[:3] * 1000, "age": [40.0, 50.0, 60.0] * 1000}
    result = survey.aggregator().update(survey.encode(people, rng=1)).mean()
    unknown = np.isnan(result["age by country"].estimate)
    assert unknown.tolist() == [False, False, False, True, True, True]
    axes = result.plot().axes[-1]
    assert axes.get_xlim() == (-0.6, 5.6)
    written = [text.get_text() for text in axes.texts]
    assert written == ["too few\nanswers"] * 3
    assert [text.xy[0] for text in axes.texts] == [3, 4, 5]
