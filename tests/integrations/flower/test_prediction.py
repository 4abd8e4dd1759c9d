import math

import pytest

import sstq
from sstq.integrations.flower.prediction import outlook, predicted_error
from sstq.mechanisms.trial_vectors import typical_vector


@pytest.mark.parametrize("frames", [1, 4])
def test_the_closed_form_of_frameunit_is_the_average_over_frames(frames):
    """Exact errors of 40 frame seeds. Their means scatter by a few per cent in bias², and by less in variance."""
    used = sstq.mechanism("frameunit", dim=200, epsilon=4.0, clip=0.5, frames=frames)
    seeds = [used.with_seed(seed) for seed in range(40)]
    exact = [each.expected_mse(typical_vector(200, 0.5), clients=7) for each in seeds]
    found = predicted_error(used, 7)
    assert found.bias2 == pytest.approx(sum(each.bias2 for each in exact) / 40, rel=0.1)
    assert found.variance == pytest.approx(sum(each.variance for each in exact) / 40, rel=0.02)


def test_a_mechanism_without_a_closed_form_has_no_prediction(monkeypatch):
    used = sstq.mechanism("sstq", dim=8, epsilon=1.0)

    def refuse(*_, **__):
        raise ValueError("there is no closed form")

    monkeypatch.setattr(type(used), "expected_mse", refuse)
    assert math.isnan(predicted_error(used, 3).total)
    assert outlook(used, 3) == "n = 3, d = 8: error unknown"


def test_as_many_nodes_as_the_outlook_names_are_enough():
    used = sstq.mechanism("sstq", dim=300, epsilon=1.0, clip=0.1)
    text = outlook(used, 10)
    nodes = int(text.split("about ")[1].split()[0].replace(",", ""))
    # Two digits of the number, so within 5 %.
    assert math.sqrt(predicted_error(used, nodes).total) == pytest.approx(0.1, rel=0.05)
    assert "needed" not in outlook(used, 2 * nodes)


def test_a_bias_beyond_clip_is_said_with_its_remedy():
    used = sstq.mechanism("frameunit", dim=384, epsilon=8.0, clip=2.0)
    text, frames = outlook(used, 1000).split(": pass frames=")
    assert text == "n = 1,000, d = 384: error 3.2 × clip; its bias alone is 3.2 × clip, which more nodes do not reduce"
    better = sstq.mechanism("frameunit", dim=384, epsilon=8.0, clip=2.0, frames=int(frames))
    assert "bias" not in outlook(better, 1000)
