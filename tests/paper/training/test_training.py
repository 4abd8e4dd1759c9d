from dataclasses import replace

import numpy as np
import pytest

import sstq
from paper.training import (
    HiddenLayer,
    LeastSquares,
    Problem,
    Server,
    dirichlet_partition,
    iid_partition,
    private_mean,
    regression_problem,
    train,
)
from sstq.accounting import Ledger, LedgerError


def blobs(clients=20, seed=0):
    """Three classes of points in the plane that a small network tells apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 900)
    centres = np.array([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    x = (centres[labels] + 0.5 * rng.standard_normal((900, 2))).astype(np.float32)
    return Problem("blobs", HiddenLayer(2, 8, 3), x, labels, iid_partition(900, clients, seed), x, labels)


def run(problem, mechanism, rounds=30, **options):
    server = options.pop("server", Server(rate=0.5))
    return list(train(problem, mechanism, server, rounds, **({"batch": 16} | options)))


def clean(problem, clip=1.0):
    return sstq.mechanism("clean", dim=problem.model.dim, clip=clip)


@pytest.mark.parametrize(("examples", "clients"), [(10, 3), (100, 100), (1000, 7)])
def test_parts_are_disjoint_and_all_there_is(examples, clients, seed):
    labels = np.random.default_rng(seed).integers(0, 4, examples)
    for parts in (iid_partition(examples, clients, seed), dirichlet_partition(labels, clients, 0.2, seed)):
        assert len(parts) == clients
        assert min(map(len, parts)) >= 1
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(examples))


def test_a_small_alpha_gives_clients_few_classes(seed):
    labels = np.repeat(np.arange(10), 1000)
    spread = [
        np.mean([len(np.unique(labels[part])) for part in dirichlet_partition(labels, 20, alpha, seed)])
        for alpha in (0.05, 100.0)
    ]
    assert spread[0] < 5 < 9 < spread[1]


def test_batches_are_of_a_clients_own_examples_and_the_same_for_all():
    problem = blobs(clients=60)
    x, _ = problem.batches(16, seed=1, round_number=5)
    assert x.shape == (60, 16, 2)
    for client, part in enumerate(problem.parts):
        own = {tuple(row) for row in problem.x[part]}
        assert all(tuple(row) in own for row in x[client])
    again, _ = problem.batches(16, seed=1, round_number=5)
    np.testing.assert_array_equal(again, x)
    other, _ = problem.batches(16, seed=1, round_number=6)
    assert np.any(other != x)


def test_training_without_privacy_learns_and_reports():
    problem = blobs()
    history = run(problem, clean(problem), rounds=60)
    assert [report.number for report in history] == list(range(61))
    assert history[0].accuracy < 0.7 < 0.95 < history[-1].accuracy
    assert history[-1].loss < history[0].loss
    assert history[-1].bits == 60 * 32 * problem.model.dim
    assert np.isnan(history[0].train_loss)
    assert history[1].train_loss == pytest.approx(history[0].loss, rel=0.2)


@pytest.mark.parametrize("name", sorted(set(sstq.list_mechanisms()) - {"clean", "groupunit"}))
def test_every_mechanism_trains(name):
    problem = regression_problem(dim=6, clients=40, seed=1, examples=400)
    options = {"clients": 40} if "csgm" in name else {}
    if name != "turboquant":
        options["epsilon"] = 4.0
    history = run(problem, sstq.mechanism(name, dim=6, **options), rounds=3, private_seed=1)
    assert len(history) == 4
    assert np.isfinite(history[-1].loss)


@pytest.mark.slow
def test_private_training_comes_close_to_clean(seed):
    """ε = 8 and 500 clients: the noise moves the loss by a few per cent; the bound is generous, no seed fails it."""
    problem = regression_problem(dim=10, clients=500, seed=2, examples=2000)
    without = run(problem, clean(problem), rounds=40)[-1].loss
    mechanism = sstq.mechanism("frameunit", dim=10, epsilon=8.0, frames=256)
    private = run(problem, mechanism, rounds=40, private_seed=seed)[-1].loss
    assert private < without + 0.3 * run(problem, clean(problem), rounds=0)[0].loss


def test_all_but_the_noise_is_a_function_of_the_seed():
    problem = blobs()
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=4.0)
    runs = [run(problem, mechanism, rounds=4, seed=1, private_seed=p)[-1].parameters for p in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.any(runs[0] != runs[2])
    secret = [run(problem, mechanism, rounds=2, seed=1)[-1].parameters for _ in range(2)]
    assert np.any(secret[0] != secret[1])


def test_every_round_has_a_frame_of_its_own_unless_told_otherwise(monkeypatch):
    problem = blobs()
    mechanism, seeds = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=4.0), []

    def watching(this_round, *rest):
        seeds.append(this_round.frame.seed)
        return private_mean(this_round, *rest)

    monkeypatch.setattr("paper.training.rounds.private_mean", watching)
    run(problem, mechanism, rounds=3)
    assert seeds == [sstq.mix_seed(0, number) for number in (1, 2, 3)]
    seeds.clear()
    run(problem, mechanism, rounds=2, fresh_frames=False)
    assert seeds == [0, 0]


def test_the_mean_behind_a_public_coin_is_that_of_the_clients(seed):
    """One z-test of 4 coordinates at 6 standard errors: false failures below 1e-8."""
    mechanism = sstq.SSTQ(dim=4, epsilon=8.0, bits=3, coin="public")
    x = np.tile(np.float32([0.5, -0.5, 0.1, 0.0]), (5000, 1))
    mean = private_mean(mechanism, x, 3, np.random.default_rng(seed))
    error = mechanism.expected_mse(x[0], clients=5000)
    assert np.all(np.abs(mean - x[0]) < 6 * error.total**0.5)


def test_a_run_that_was_cut_short_goes_on_to_the_same_end(tmp_path):
    problem = blobs()
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=4.0)
    options = {"private_seed": 3, "server": Server(rate=0.3, momentum=0.5)}
    whole = run(problem, mechanism, rounds=6, **options)
    path = tmp_path / "checkpoint"
    run(problem, mechanism, rounds=3, checkpoint=path, **options)
    rest = run(problem, mechanism, rounds=6, checkpoint=path, **options)
    assert [report.number for report in rest] == [3, 4, 5, 6]
    np.testing.assert_array_equal(rest[-1].parameters, whole[-1].parameters)
    with pytest.raises(ValueError, match="another training"):
        run(problem, clean(problem), checkpoint=path)
    for other in (
        {"server": Server(rate=0.2)},
        {"batch": 5},
        {"seed": 1},
        {"private_seed": 4},
        {"private_seed": None},
        {"fresh_frames": False},
        {"estimate": exact},
    ):
        with pytest.raises(ValueError, match=f"another training, which differs in {next(iter(other))}$"):
            run(problem, mechanism, checkpoint=path, **(options | other))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="damaged"):
        run(problem, mechanism, checkpoint=path)


def exact(_mechanism, gradients, _number, _rng):
    return gradients.mean(axis=0, dtype=np.float64)


class Network(HiddenLayer):
    """As a model of a user's own, which may have a description and may not."""

    description = None


def test_a_checkpoint_is_for_the_same_data_and_model(tmp_path):
    problem, path = blobs(), tmp_path / "checkpoint"
    mechanism = clean(problem)
    run(problem, mechanism, rounds=1, checkpoint=path)
    # Parts of other lengths, with the same examples in the same order.
    moved = [problem.parts[0], *np.split(np.concatenate(problem.parts[1:3]), [1]), *problem.parts[3:]]
    for name, other in (
        ("parts", {"parts": problem.parts[::-1]}),
        ("parts", {"parts": moved}),
        ("x", {"x": problem.x[::-1]}),
        ("y", {"y": problem.y[::-1]}),
        ("y", {"y": problem.y.astype(np.int32)}),
        ("problem", {"name": "other"}),
        ("model", {"model": HiddenLayer(2, 8, 3, "he")}),
        ("model", {"model": Network(2, 8, 3)}),
    ):
        changed = replace(problem, **other)
        with pytest.raises(ValueError, match=f"another training, which differs in {name}$"):
            run(changed, mechanism, rounds=2, checkpoint=path)
    # What is only tested on, and views of the same numbers, change nothing.
    same = replace(problem, x=np.asfortranarray(problem.x), test_x=problem.x[:5], test_y=problem.y[:5])
    assert [report.number for report in run(same, mechanism, rounds=2, checkpoint=path)] == [1, 2]


def test_a_checkpoint_of_a_regression_is_for_its_truth(tmp_path):
    problem = regression_problem(dim=6, clients=4, seed=0, examples=40)
    run(problem, clean(problem), rounds=1, checkpoint=tmp_path / "c")
    other = replace(problem, model=LeastSquares(np.nextafter(problem.model.truth, np.float32(9))))
    with pytest.raises(ValueError, match=r"differs in model$"):
        run(other, clean(problem), checkpoint=tmp_path / "c")


def test_checksums_of_data_are_for_checkpoints_only(monkeypatch):
    def forbidden(_problem):
        raise AssertionError

    monkeypatch.setattr("paper.training.rounds.facts_of_problem", forbidden)
    assert len(run(blobs(), clean(blobs()), rounds=1)) == 2


def test_a_checkpoint_of_an_older_format_is_refused(tmp_path):
    np.savez(tmp_path / "old.npz", format="sstq-training-1", identity="blobs 51")
    with pytest.raises(ValueError, match="format is sstq-training-1, expected sstq-training-3"):
        run(blobs(), clean(blobs()), checkpoint=tmp_path / "old.npz")


def test_a_checkpoint_that_unfolds_is_refused(tmp_path):
    path = tmp_path / "c.npz"
    run(blobs(), clean(blobs()), rounds=1, checkpoint=path)
    with np.load(path) as archive:
        stored = dict(archive)
    np.savez_compressed(path, **stored)
    with pytest.raises(ValueError, match="not a checkpoint: it is compressed"):
        run(blobs(), clean(blobs()), checkpoint=path)


def test_a_round_that_is_done_again_is_charged_again(tmp_path, monkeypatch):
    """The power fails after a round was paid and before its state was saved."""
    problem = blobs()
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=2.0)
    ledger, options = Ledger(tmp_path / "ledger", epsilon=20.0), {"checkpoint": tmp_path / "c", "rounds": 3}

    def fails(*_arguments):
        raise OSError("the power fails")

    reports = train(problem, mechanism, Server(), 3, batch=16, ledger=ledger, checkpoint=tmp_path / "c")
    assert [next(reports).number for _ in range(2)] == [0, 1]
    with monkeypatch.context() as patched:
        patched.setattr("paper.training.rounds.save_state", fails)
        with pytest.raises(OSError, match="the power fails"):
            next(reports)
    assert ledger.spent == 4.0
    again = run(problem, mechanism, server=Server(), ledger=ledger, **options)
    # The second message about the same data counts from the first report on.
    assert [(report.number, report.epsilon) for report in again] == [(1, 4.0), (2, 6.0), (3, 8.0)]
    assert ledger.spent == 8.0
    # A training that is finished costs nothing more.
    run(problem, mechanism, server=Server(), ledger=ledger, **options)
    assert ledger.spent == 8.0


def test_a_budget_cannot_begin_in_the_middle_of_a_training(tmp_path):
    problem = blobs()
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=2.0)
    run(problem, mechanism, server=Server(), rounds=2, checkpoint=tmp_path / "c")
    ledger = Ledger(tmp_path / "ledger", epsilon=20.0)
    with pytest.raises(ValueError, match=r"ledger must hold the 2 rounds of the checkpoint \(ε = 4\), got .*ε = 0:"):
        run(problem, mechanism, server=Server(), rounds=3, checkpoint=tmp_path / "c", ledger=ledger)
    assert not ledger.entries


def test_delta_adds_up():
    problem = regression_problem(dim=6, clients=4, seed=0, examples=40)
    mechanism = sstq.mechanism("csgm", dim=6, epsilon=1.0, delta=1e-6, clients=4)
    reports = run(problem, mechanism, server=Server(), rounds=3)
    assert [report.delta for report in reports] == [0.0, 1e-6, 2e-6, 3e-6]
    assert reports[-1].epsilon == 3.0


def test_a_ledger_is_for_pure_privacy(tmp_path):
    problem = regression_problem(dim=6, clients=4, seed=0, examples=40)
    mechanism = sstq.mechanism("csgm", dim=6, epsilon=1.0, clients=4)
    ledger = Ledger(tmp_path / "ledger", epsilon=20.0)
    with pytest.raises(ValueError, match="a ledger adds up pure ε"):
        next(train(problem, mechanism, Server(), 1, ledger=ledger))
    assert not ledger.entries


def test_the_ledger_is_charged_before_anything_is_sent_and_ends_the_training(tmp_path):
    problem = blobs()
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=2.0)
    ledger = Ledger(tmp_path / "ledger", epsilon=5.0)
    reports = train(problem, mechanism, Server(), 10, batch=4, ledger=ledger)
    assert [next(reports).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LedgerError):
        next(reports)
    assert ledger.spent == 4.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rate": 0.5}, -0.5 * np.array([3.0, 4.0])),
        ({"rate": 0.5, "norm_cap": 1.0}, -0.5 * np.array([0.6, 0.8])),
        ({"rate": 0.5, "decay": 1.0, "norm_cap": None}, -0.25 * np.array([3.0, 4.0])),
        ({"rate": 1.0, "momentum": 0.5, "norm_cap": None}, -np.array([3.5, 4.0])),
    ],
)
def test_the_servers_step(options, expected):
    velocity = np.array([1.0, 0.0]) if "momentum" in options else np.zeros(2)
    parameters, _ = Server(**options).step(np.zeros(2), np.array([3.0, 4.0]), velocity, round_number=1)
    np.testing.assert_allclose(parameters, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "rate must"),
        ({"momentum": 1.0}, "momentum must"),
        ({"norm_cap": -1.0}, "norm_cap must"),
    ],
)
def test_bad_servers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Server(**options)


def test_bad_arguments_are_refused():
    problem = regression_problem(dim=6, clients=4, seed=0, examples=40)
    with pytest.raises(ValueError, match="must have dim = 6, the model's parameters"):
        run(problem, sstq.mechanism("clean", dim=7))
    with pytest.raises(ValueError, match="rounds must be"):
        run(problem, sstq.mechanism("clean", dim=6), rounds=-1)
    with pytest.raises(ValueError, match="clients must be"):
        regression_problem(dim=6, clients=41, seed=0, examples=40)
    assert isinstance(problem.model, LeastSquares)


def test_another_estimate_of_the_mean_takes_the_place_of_the_private_one(seed):
    problem = regression_problem(dim=6, clients=10, seed=seed, examples=100)
    mechanism = sstq.mechanism("privunitg", dim=6, epsilon=1.0)

    plain = run(problem, clean(problem, clip=100.0), rounds=5, seed=seed)
    replaced = run(problem, mechanism, rounds=5, seed=seed, estimate=exact)
    assert replaced[-1].loss == pytest.approx(plain[-1].loss, rel=1e-4)
