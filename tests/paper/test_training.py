"""Simulated training: partitions, batches, the loop and cohorts."""

import numpy as np
import pytest

import sstq
from paper.training.cohorts import Cohorts
from paper.training.models import HiddenLayer
from paper.training.problems import Problem, iid_partition, regression_problem
from paper.training.rounds import Server, private_mean, train


def blobs(clients=20, seed=0):
    """Three classes of points in the plane that a small network tells apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 900)
    centres = np.array([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    x = (centres[labels] + 0.5 * rng.standard_normal((900, 2))).astype(np.float32)
    return Problem(
        "blobs",
        HiddenLayer(2, 8, 3),
        x,
        labels,
        iid_partition(900, clients, seed),
        x,
        labels,
    )


def run(problem, mechanism, rounds=30, **options):
    server = options.pop("server", Server(rate=0.5))
    return list(train(problem, mechanism, server, rounds, **({"batch": 16} | options)))


def clean(problem, clip=1.0):
    return sstq.mechanism("clean", dim=problem.model.dim, clip=clip)


def frameunit(problem, epsilon=8.0, **options):
    return sstq.FrameUnit(problem.model.dim, epsilon, frames=16, **options)


def test_batches_are_of_a_clients_own_examples_and_the_same_for_all():
    problem = blobs(clients=60)
    x, _ = problem.batches(16, seed=1, round_number=5)
    assert x.shape == (60, 16, 2)
    for client, part in enumerate(problem.parts):
        own = {tuple(row) for row in problem.x[part]}
        assert all(tuple(row) in own for row in x[client])
    np.testing.assert_array_equal(problem.batches(16, seed=1, round_number=5)[0], x)
    assert np.any(problem.batches(16, seed=1, round_number=6)[0] != x)


def test_training_without_privacy_learns_and_reports():
    problem = blobs()
    history = run(problem, clean(problem), rounds=60)
    assert [report.number for report in history] == list(range(61))
    assert history[0].accuracy < 0.7 < 0.95 < history[-1].accuracy
    assert history[-1].bits == 60 * 32 * problem.model.dim
    assert np.isnan(history[0].train_loss)
    assert history[1].train_loss == pytest.approx(history[0].loss, rel=0.2)


def test_all_but_the_noise_is_a_function_of_the_seed():
    problem = blobs()
    runs = [
        run(problem, frameunit(problem), rounds=4, seed=1, private_seed=p)[
            -1
        ].parameters
        for p in (1, 1, 2)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.any(runs[0] != runs[2])
    secret = [
        run(problem, frameunit(problem), rounds=2, seed=1)[-1].parameters
        for _ in range(2)
    ]
    assert np.any(secret[0] != secret[1])


def test_every_round_has_a_frame_of_its_own(monkeypatch):
    problem = blobs()
    seeds = []
    mechanism = sstq.FrameUnit(problem.model.dim, 4.0)

    def watching(this_round, *rest):
        seeds.append(this_round.frame.seed)
        return private_mean(this_round, *rest)

    monkeypatch.setattr("paper.training.rounds.private_mean", watching)
    run(problem, mechanism, rounds=3)
    assert seeds == [sstq.mix_seed(0, number) for number in (1, 2, 3)]


def test_the_mean_of_a_round_is_that_of_the_clients(seed):
    """One z-test of 4 coordinates at 6 standard errors: false failures below 1e-8."""
    mechanism = sstq.SSTQ(dim=4, epsilon=8.0, bits=3)
    x = np.tile(np.float32([0.5, -0.5, 0.1, 0.0]), (5000, 1))
    mean = private_mean(mechanism, x, 3, np.random.default_rng(seed))
    error = mechanism.expected_mse(x[0], clients=5000)
    assert np.all(np.abs(mean - x[0]) < 6 * error.total**0.5)


def test_bad_arguments_are_refused():
    problem = regression_problem(dim=6, clients=4, seed=0, examples=40)
    with pytest.raises(ValueError, match="must have dim = 6, the model's parameters"):
        run(problem, sstq.mechanism("clean", dim=7))
    with pytest.raises(ValueError, match="rounds must be"):
        run(problem, sstq.mechanism("clean", dim=6), rounds=-1)
    with pytest.raises(ValueError, match="clients must be"):
        regression_problem(dim=6, clients=41, seed=0, examples=40)
    with pytest.raises(ValueError, match="rate must"):
        Server(rate=0.0)


# --- cohorts


@pytest.mark.parametrize("answers", [1, 2, 5])
def test_the_total_is_that_of_the_answers(answers):
    problem = blobs(clients=60)
    mechanism = frameunit(problem, 2.0)
    history = run(problem, mechanism, rounds=12, participation=answers)
    assert history[-1].epsilon == 2.0 * answers
    assert history[-1].bits == answers * mechanism.message_bits
    assert [report.answers for report in history] == [
        Cohorts(60, 12, answers).answers_after(n) for n in range(13)
    ]


def test_cohorts_learn_at_a_total_of_one_answer(seed):
    """600 people in 40 cohorts of 15, once at ε = 8: far beyond a guess, which has 1/3.

    The error of all rounds' mean is 0.125 of clip, so that training without noise, which reaches 0.999, loses little:
    200 runs gave at least 0.983. With 5.6 times the variance (ε = 3) 60 runs gave at least 0.954, and the squares of 51
    nearly normal errors exceed 5 times their mean less than once in 1e20 runs.
    """
    problem = blobs(clients=600)
    history = run(
        problem,
        frameunit(problem),
        rounds=40,
        batch=1,
        participation="once",
        private_seed=seed,
    )
    assert history[-1].epsilon == 8.0
    assert history[-1].accuracy > 0.7
