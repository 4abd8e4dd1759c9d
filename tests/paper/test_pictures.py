"""The pictures of the demo are legible."""

import numpy as np
import pytest

from paper.demo import Crowd, Demo, Year
from paper.demo_page import draw_demo
from sstq.studies import PanelResult
from tests.plots.test_plots import assert_legible


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, instead of files."""
    figures = []
    monkeypatch.setattr(
        "paper.demo_page.save", lambda figure, path: figures.append(figure)
    )
    return figures


@pytest.mark.parametrize(
    "epsilons", [(1.0, 2.0, 4.0, 8.0), pytest.param((4.0,), marks=pytest.mark.soak)]
)
def test_digits(drawn, epsilons):
    """Images without an estimate are drawn, and a crowd as accurate as without privacy hides nothing."""
    images = np.full((10, 64), 0.1)
    unknown = np.vstack([np.full((1, 64), np.nan), images[1:]])
    rows = [
        Crowd(
            epsilon,
            copies,
            1150 * copies,
            14.0,
            2000,
            0.9,
            0.1,
            0.9,
            0.02,
            np.full(10, 0.1),
            unknown,
        )
        for copies in (1, 100)
        for epsilon in epsilons
    ]
    draw_demo(
        Demo(
            images,
            (0.9, 0.02),
            287,
            tuple(rows),
            (),
            simulated=True,
            year=Year(np.zeros((0, 52)), PanelResult("week", [], [], 1.0)),
        ),
        "digits.png",
    )
    assert_legible(drawn[0])
