"""What notebooks show: cards of mechanisms, plans and estimates, and the picture of an estimate."""

import matplotlib as mpl
import numpy as np
import pytest

import sstq
from sstq.plots.canvas import card


def test_a_card_escapes_what_it_shows():
    shown = card("<b>", {"<i>": "a & b"})
    assert "<b>" not in shown
    assert "&lt;i&gt;" in shown
    assert "a &amp; b" in shown


@pytest.mark.parametrize("name", ["sstq", "frameunit", "privunitg", "clean"])
def test_a_mechanism_shows_its_options_and_bits(name):
    mechanism = sstq.mechanism(name, dim=20, epsilon=3.0) if name != "clean" else sstq.Clean(20)
    shown = mechanism._repr_html_()
    assert f"<td>{mechanism.message_bits}</td>" in shown
    assert mechanism.digest()[:16] in shown


def test_a_plan_shows_the_total_epsilon_beside_the_error():
    shown = sstq.plan(dim=300, clients=1000, rounds=2, epsilon=3.0)._repr_html_()
    assert "<tr><th>ε per person</th><td>3</td></tr>" in shown
    assert "× clip" in shown


def test_an_estimate_shows_its_region_and_whether_it_is_simulated():
    estimate = sstq.Estimate(np.zeros(9), np.full(9, 0.1), 500, simulated=True)
    shown = estimate._repr_html_()
    assert "500 (simulated)" in shown
    assert f"± {estimate.region().radius:.3g}" in shown


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
