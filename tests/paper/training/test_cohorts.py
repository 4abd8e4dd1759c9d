"""Training in cohorts, with a ledger per person and a clip that adapts."""

import numpy as np
import pytest

import sstq
from paper.training import AdaptiveClip, Cohorts, PersonLedgers, Server, train
from sstq.accounting import Ledger

from .test_training import blobs, clean, run


def frameunit(problem, epsilon=8.0, **options):
    return sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=epsilon, frames=16, **options)


def test_who_answers_once_has_spent_one_answer(tmp_path):
    problem = blobs(clients=60)
    mechanism = frameunit(problem)
    history = run(problem, mechanism, rounds=12, participation="once", ledger=PersonLedgers(tmp_path, 8.0))
    assert [report.clients for report in history] == [0] + [5] * 12
    assert {report.epsilon for report in history[1:]} == {8.0}
    assert {report.answers for report in history[1:]} == {1}
    assert history[-1].bits == mechanism.message_bits
    assert sorted(Ledger(path).spent for path in tmp_path.glob("*.jsonl")) == [8.0] * 60


@pytest.mark.parametrize("answers", [1, 2, 5])
def test_the_total_is_that_of_the_answers(answers):
    problem = blobs(clients=60)
    history = run(problem, frameunit(problem, 2.0), rounds=12, participation=answers)
    assert history[-1].epsilon == 2.0 * answers
    assert [report.answers for report in history] == [Cohorts(60, 12, answers).answers_after(n) for n in range(13)]


def test_the_members_of_a_round_are_those_of_the_schedule(monkeypatch):
    problem, seen = blobs(clients=30), []
    chosen = type(problem).chosen

    def spy(self, batch, seed, number, members=None):
        seen.append(members.tolist())
        return chosen(self, batch, seed, number, members)

    monkeypatch.setattr(type(problem), "chosen", spy)
    run(problem, clean(problem), rounds=6, participation="once", seed=3)
    assert seen == [Cohorts(30, 6).members(3, number).tolist() for number in range(1, 7)]


def test_cohorts_learn_at_a_total_of_one_answer(seed):
    """600 people in 40 cohorts of 15, once at ε = 8: far beyond a guess, which has 1/3.

    The error of all rounds' mean is 0.125 of clip, so that training without noise, which reaches 0.999, loses little:
    200 runs gave at least 0.983. With 5.6 times the variance (ε = 3) 60 runs gave at least 0.954, and the squares of 51
    nearly normal errors exceed 5 times their mean less than once in 1e20 runs.
    """
    problem = blobs(clients=600)
    history = run(problem, frameunit(problem), rounds=40, batch=1, participation="once", private_seed=seed)
    assert history[-1].epsilon == 8.0
    assert history[-1].accuracy > 0.7


def test_a_run_that_was_cut_short_goes_on_with_the_same_cohorts(tmp_path):
    problem = blobs(clients=60)
    options = {"participation": 2, "private_seed": 5, "adaptive_clip": AdaptiveClip(epsilon=1.0)}
    whole = run(problem, frameunit(problem), rounds=12, **options)
    begun = train(problem, frameunit(problem), Server(rate=0.5), 12, batch=16, checkpoint=tmp_path / "c", **options)
    assert [next(begun).number for _ in range(6)] == list(range(6))
    rest = run(problem, frameunit(problem), rounds=12, checkpoint=tmp_path / "c", **options)
    assert [report.number for report in rest] == list(range(5, 13))
    np.testing.assert_array_equal(rest[-1].parameters, whole[-1].parameters)
    assert rest[-1].clip == whole[-1].clip
    for changed in ({"participation": 1}, {"adaptive_clip": None}, {"rounds": 24}):
        with pytest.raises(ValueError, match=r"another training, which differs in (participation|adaptive_clip)"):
            run(problem, frameunit(problem), **{"rounds": 12, "checkpoint": tmp_path / "c"} | options | changed)


def test_a_cohort_whose_answers_were_lost_is_not_asked_again(tmp_path, monkeypatch):
    """The power fails after the third cohort has paid and before the state was saved."""
    problem = blobs(clients=60)
    options = {"rounds": 6, "participation": "once", "checkpoint": tmp_path / "c"}

    def fail(state, path):
        if state.round_number == 3:
            raise KeyboardInterrupt
        save(state, path)

    from paper.training import rounds

    save = rounds.save_state
    monkeypatch.setattr(rounds, "save_state", fail)
    with pytest.raises(KeyboardInterrupt):
        run(problem, frameunit(problem), ledger=PersonLedgers(tmp_path / "ledgers", 8.0), **options)
    monkeypatch.undo()
    rest = run(problem, frameunit(problem), ledger=PersonLedgers(tmp_path / "ledgers"), **options)
    assert [report.clients for report in rest] == [0, 0, 10, 10, 10]  # the start, then rounds 3 to 6
    np.testing.assert_array_equal(rest[0].parameters, rest[1].parameters)
    assert {report.epsilon for report in rest} == {8.0}
    assert {Ledger(path).spent for path in (tmp_path / "ledgers").glob("*.jsonl")} == {8.0}


def test_ledgers_of_people_must_be_those_of_the_checkpoint(tmp_path):
    problem = blobs(clients=60)
    options = {"rounds": 6, "participation": "once", "checkpoint": tmp_path / "c"}
    begun = train(problem, frameunit(problem), Server(rate=0.5), batch=16, **options)
    assert [next(begun).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="ledger must hold the 2 rounds of the checkpoint"):
        run(problem, frameunit(problem), ledger=PersonLedgers(tmp_path / "ledgers", 8.0), **options)
    with pytest.raises(ValueError, match="epsilon must be given"):
        PersonLedgers(tmp_path / "none")


def test_one_ledger_stands_for_all_only_where_all_are_alike(tmp_path):
    problem = blobs(clients=60)
    with pytest.raises(ValueError, match="ledger must be PersonLedgers"):
        run(problem, frameunit(problem), ledger=Ledger(tmp_path / "l", 8.0), participation="once")
    with pytest.raises(ValueError, match="ledger must be PersonLedgers"):
        run(problem, frameunit(problem), ledger=PersonLedgers(tmp_path / "ls", 8.0))


def test_the_bit_of_the_clip_is_paid_for_and_sent(tmp_path):
    problem, adaptive = blobs(clients=40), AdaptiveClip(epsilon=0.5)
    mechanism = frameunit(problem, adaptive.left_for_vectors(8.0))
    ledger = Ledger(tmp_path / "ledger", epsilon=24.0)
    history = run(problem, mechanism, rounds=3, adaptive_clip=adaptive, ledger=ledger)
    assert history[-1].epsilon == ledger.spent == 24.0
    assert history[-1].bits == 3 * (mechanism.message_bits + 1)


def test_the_clip_comes_to_the_norms(seed):
    """From a hundredth of the gradients' norms, by the median without noise and with it.

    With 300 bits at ε = 2 per round the share has a standard error of at most 0.038: a step in the wrong direction
    while all norms are above the clip takes 13 of them.
    """
    problem = blobs(clients=300)
    for mechanism in (clean(problem, clip=0.01), frameunit(problem, clip=0.01)):
        adaptive = AdaptiveClip(quantile=0.5, epsilon=2.0, rate=1.0)
        history = run(
            problem, mechanism, rounds=12, batch=3, adaptive_clip=adaptive, private_seed=seed, server=Server(rate=1e-6)
        )
        x, y = problem.batches(3, 0, 1)
        norms = np.linalg.norm(problem.model.gradients(problem.model.initial(0), x, y), axis=1)
        assert np.quantile(norms, 0.1) < history[-1].clip < np.quantile(norms, 0.9)
        assert history[0].clip == history[1].clip == 0.01
