"""Pictures of studies show what the results say."""

import numpy as np

from sstq.studies import BoundsResult, Panel, WordsResult


def test_words_have_a_bar_each_and_their_share():
    words = tuple(f"word {i}" for i in range(30))
    shares = np.linspace(0.05, 0.01, 30)
    figure = WordsResult(
        words, shares, np.full(30, 0.001), (0.1, 0.01), 1000, 2.0, 0.01
    ).plot(most=20)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(words[:20])
    np.testing.assert_allclose(
        [bar.get_width() for bar in axes.patches], 100 * shares[:20]
    )
    assert "10 more not shown" in axes.get_title()


def test_nothing_found_is_said():
    none = np.array([])
    figure = WordsResult((), none, none, (1.0, 0.0), 1000, 2.0, 0.01).plot()
    assert [text.get_text() for text in figure.axes[0].texts] == ["no string was found"]


def test_bounds_are_written_at_the_ends():
    (axes,) = (
        BoundsResult({"a": (-1.5, 203_014.5)}, {"a": 0.0}, {"a": 0.1}, 10, 1.0)
        .plot()
        .axes
    )
    assert [text.get_text() for text in axes.texts] == ["-1.5", "203,014"]


def test_curves_have_their_band_and_the_truth():
    import sstq

    weeks = [np.full(500, week % 2) for week in range(4)]
    result = Panel(sstq.Frequencies(2, 4.0), periods=4).simulate(weeks, 1)
    figure = result.plot(items=[0, 1], truth=[np.zeros(4), np.ones(4)])
    assert len(figure.axes) == 2
    curve = result.curve(item=1)
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[1].get_lines()}
    np.testing.assert_array_equal(drawn["smoothed"], curve.value)
    np.testing.assert_array_equal(drawn["truth"], np.ones(4))
    np.testing.assert_array_equal(drawn["each week by itself"], curve.raw)
