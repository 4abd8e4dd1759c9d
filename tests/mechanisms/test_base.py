"""What every mechanism does in one place: slots, reports, checks of messages, finished estimates, expected errors."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import sstq
from sstq.aggregation import Estimate
from sstq.mechanisms.base import ClippedWarning, ExpectedError, LocalReport

BOUNDS = {"age": (0.0, 110.0), "bmi": (10.0, 60.0)}
MECHANISM = sstq.FrameUnit(4, 2.0)
# Without a frame, whose bias would be in all errors.
PLAIN = sstq.VqSGD(4, 2.0)


@pytest.mark.parametrize("one", [MECHANISM, PLAIN, sstq.SQKR(4, 2.0)])
def test_a_report_counts_people_once_and_those_who_were_clipped(one):
    rows = np.array([[3.0, 0, 0, 0], [0.1, 0, 0, 0], [0, 2.0, 0, 0]])
    for slots in (1, 3):
        report = LocalReport()
        messages = one.replace(messages=slots).encode(rows, report=report)
        assert (report.vectors, report.clipped) == (3, 2)
        assert len(messages) == 3 * slots


def test_the_owner_is_warned_of_vectors_and_of_columns():
    with pytest.warns(ClippedWarning, match="100 % of the vectors are longer"):
        MECHANISM.encode(np.ones((30, 4)))
    survey = sstq.Survey(2.0, {"os": sstq.Choice(["mac", "win"])})
    report = LocalReport()
    with pytest.warns(UserWarning, match="none of its own"):
        survey.encode({"os": ["mac", "Mac"]}, report=report)
    assert report.unknown["os"] == {"Mac": 1}


def test_a_seed_marks_messages_and_bytes_are_not_marked():
    messages = MECHANISM.encode(np.ones(4), rng=1)
    assert messages.simulated
    assert not MECHANISM.encode(np.ones(4)).simulated
    read = MECHANISM.messages_from_bytes(messages.to_bytes(), 1)
    assert not read.simulated


def test_messages_that_are_never_sent_are_refused():
    class Picky(sstq.FrameUnit):
        def check_messages(self, messages):
            raise ValueError("nobody sends it")

    picky = Picky(4, 2.0)
    messages = picky.encode(np.ones(4))
    with pytest.raises(ValueError, match="nobody sends it"):
        picky.messages_from_bytes(messages.to_bytes(), 1)
    with pytest.raises(ValueError, match="nobody sends it"):
        picky.messages_from_columns(messages.columns, simulated=False)
    with pytest.raises(ValueError, match="of another mechanism"):
        picky.decode(PLAIN.encode(np.ones(4)))


def test_bias_is_in_the_error_of_every_coordinate():
    class Biased(sstq.FrameUnit):
        def bias_of_mean(self, count):
            return 0.6, 2, "take more frames"

    mechanism = Biased(4, 2.0)
    estimate = Estimate(np.zeros(4), np.full(4, 0.4), 100, note="noted")
    found = mechanism.finished(estimate)
    # The bias is a norm: its square is shared among the coordinates.
    np.testing.assert_allclose(found.stderr, math.hypot(0.4, 0.3))
    assert (found.frame_bias, found.bias_directions) == (0.6, 2)
    assert found.note == "take more frames; noted"
    one = replace(estimate, count=1)
    assert mechanism.finished(one).frame_bias == 0.0


def test_estimates_with_bounds_are_in_the_units_of_the_columns():
    class Unbiased(sstq.FrameUnit):
        def bias_of_mean(self, count):
            return 0.0, 1, ""

    estimate = Estimate(np.zeros(2), np.full(2, 0.1), 100)
    found = Unbiased(2, 2.0, bounds=BOUNDS).finished(estimate)
    np.testing.assert_allclose(found.value, [55.0, 35.0])
    np.testing.assert_allclose(found.stderr, 0.1 * math.sqrt(2) * np.array([55, 25]))


def test_a_mean_as_long_as_clip_is_told():
    long = Estimate(np.array([0.9, 0.4, 0.0, 0.0]), np.full(4, 0.02), 1000)
    assert "use a larger clip" in PLAIN.finished(long).note
    assert PLAIN.finished(replace(long, note="noted")).note.startswith("noted; ")
    # Shorter by more than its error, or with an error that tells nothing.
    short = replace(long, value=np.array([0.5, 0.4, 0.0, 0.0]))
    assert not PLAIN.finished(short).note
    assert not PLAIN.finished(replace(long, stderr=np.full(4, 0.2))).note


def test_expected_errors_of_rows_and_of_clients():
    x = np.array([0.5, 0.0, 0.0, 0.0])
    one = PLAIN.expected_mse(x)
    assert PLAIN.expected_mse(x, clients=10).total == pytest.approx(one.total / 10)
    assert PLAIN.expected_mse([x] * 10).total == pytest.approx(one.total / 10)
    assert PLAIN.expected_mse([x] * 10, clients=10).total == pytest.approx(
        one.total / 10
    )
    for clients in (1, 9, 11):
        with pytest.raises(ValueError, match="clients must be left out with 10 rows"):
            PLAIN.expected_mse([x] * 10, clients=clients)
    with pytest.raises(ValueError, match="clients must be an integer"):
        PLAIN.expected_mse(x, clients=0)
    with pytest.raises(ValueError, match="at least one row"):
        PLAIN.expected_mse(np.empty((0, 4)))
    several = PLAIN.replace(messages=5)
    assert several.expected_mse(x, clients=10).total == pytest.approx(one.total / 50)
    # What clipping cuts off is bias: of ten people one has 3 instead of 1.
    rows = np.zeros((10, 4))
    rows[0, 0] = 3.0
    assert PLAIN.expected_mse(rows).bias2 == pytest.approx(0.2**2)
    assert isinstance(one, ExpectedError)


def test_whole_vectors_are_not_counted_and_have_no_law():
    mechanism = sstq.PrivUnitG(4, 2.0)
    with pytest.raises(ValueError, match="hardly two are equal"):
        _ = mechanism.counted_layout
    with pytest.raises(ValueError, match="no integer weights to audit"):
        mechanism.law()
    assert MECHANISM.counted_layout is MECHANISM.layout
    assert MECHANISM.law().size == 2 * MECHANISM.frame_size


def test_sizes_with_and_without_groups():
    groups = sstq.GroupUnit(4, 2.0, groups=3)
    assert (groups.estimate_dim, groups.coordinates) == (12, 4)
    assert (MECHANISM.estimate_dim, MECHANISM.coordinates) == (4, 4)
    assert MECHANISM.with_seed(5) == sstq.FrameUnit(4, 2.0, frame_seed=5)
    frequencies = sstq.Frequencies(5, 2.0)
    assert frequencies.with_seed(5) is frequencies or frequencies.seed_option


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bounds": [["age", 0.0, 110.0]]}, "bounds must have one pair per column"),
        ({"bounds": [["age", 1.0, 1.0], ["bmi", 10.0, 60.0]]}, "low < high"),
        ({"clip": -1.0}, "clip must be"),
        ({"epsilon": 1.5}, "above epsilon"),
    ],
)
def test_what_strangers_wrote_is_checked(changes, problem):
    data = json.loads(sstq.FrameUnit(2, 2.0, bounds=BOUNDS).to_json())
    with pytest.raises(ValueError, match=problem):
        sstq.from_json(json.dumps(data | changes))
