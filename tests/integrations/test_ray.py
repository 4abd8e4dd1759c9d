"""One local Ray with two cores for all; workers are killed for real, by a signal that nothing can catch."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray
from sstq.runs.shards import Shard, encode_shard, plan_shards, unfinished_folder
from typer.testing import CliRunner

import sstq
from sstq.aggregation import StratifiedAggregator
from sstq.cli import app
from sstq.federated.adaptive_clip import AdaptiveClip
from sstq.integrations.ray import add_files, connected, encode_shards
from sstq.integrations.ray.connection import _connect, _start
from sstq.integrations.ray.tasks import results_of
from sstq.lab.training import HiddenLayer, Problem, Server, iid_partition, regression_problem, train
from sstq.lab.training.ray import RayRounds
from tests.patience import PATIENCE

DIM = 12


@pytest.fixture(scope="module", autouse=True)
def two_cores():
    # What is defined in this file goes to the workers as it is: they cannot import it.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with connected(cpus=2):
        yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def write_shards(folder, mechanism, seed, shards=5):
    """Message files of different sizes and both kinds."""
    rng = np.random.default_rng(seed)
    paths = []
    for number in range(shards):
        x = rng.standard_normal((40 + 7 * number, DIM)) / 4
        clients = np.arange(len(x)) + 1000 * number if mechanism.coin == "public" else None
        paths.append(folder / f"{number}.{'parquet' if number % 2 else 'sstq'}")
        sstq.write_messages(paths[-1], mechanism.encode(x, clients=clients))
    return paths


def saved(aggregator, folder):
    """All that an aggregator is, as the bytes of its file."""
    aggregator.save(folder / "saved")
    return (folder / "saved").read_bytes()


def added_here(aggregator, paths):
    for path in paths:
        aggregator.update_from_file(path)
    return aggregator


def added_by_ray(aggregator, paths):
    assert all(added is True for _, added in add_files(aggregator, paths))
    return aggregator


KINDS = {
    "frameunit": lambda: sstq.mechanism("frameunit", dim=DIM, epsilon=4.0).aggregator(),
    "frameunit/frames": lambda: sstq.mechanism("frameunit", dim=DIM, epsilon=4.0, frames=64).aggregator(),
    "sstq": lambda: sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3).aggregator(),
    "sstq/public": lambda: sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3, coin="public").aggregator(),
    "sstq/strata": lambda: StratifiedAggregator(sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)),
    "sqkr": lambda: sstq.mechanism("sqkr", dim=DIM, epsilon=4.0).aggregator(),
    "privunitg": lambda: sstq.mechanism("privunitg", dim=DIM, epsilon=4.0).aggregator(),
    "clean": lambda: sstq.mechanism("clean", dim=DIM).aggregator(),
}


# --- aggregation ---


@pytest.mark.parametrize("kind", KINDS)
def test_aggregation_has_the_bits_of_one_process_in_any_order(kind, tmp_path, seed):
    build = KINDS[kind]
    paths = write_shards(tmp_path, build()._mechanism, seed)
    here = added_here(build(), paths)
    there = added_by_ray(build(), np.random.default_rng(seed).permutation(paths))
    assert type(there) is type(here)
    assert there.mean().estimator == ("strata" if kind in ("sstq/public", "sstq/strata") else "mean")
    np.testing.assert_array_equal(there.mean().value, here.mean().value)
    np.testing.assert_array_equal(there.mean().stderr, here.mean().stderr)
    assert saved(there, tmp_path) == saved(here, tmp_path)


def test_sums_behind_a_trusted_aggregator_are_the_same(tmp_path, seed):
    """Each round has a noise key of its own, so the sums are compared, before the noise."""
    mechanism = sstq.mechanism("csgm", dim=DIM, epsilon=1.0, clients=1000)
    paths = write_shards(tmp_path, mechanism, seed)
    here, there = added_here(mechanism.aggregator(), paths), added_by_ray(mechanism.aggregator(), paths)
    np.testing.assert_array_equal(there._sums, here._sums)
    assert there.count == here.count
    there.mean()
    sstq.write_messages(tmp_path / "late.sstq", mechanism.encode(np.zeros((1, DIM))))
    with pytest.raises(ValueError, match="the round is closed"):
        list(add_files(there, [tmp_path / "late.sstq"]))


def test_a_file_counts_once_and_runs_with_and_without_ray_take_turns(tmp_path, seed):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    paths = write_shards(tmp_path, mechanism, seed)
    everything = saved(added_here(mechanism.aggregator(), paths), tmp_path)
    state = tmp_path / "state"
    added_here(mechanism.aggregator(), paths[:2]).save(state)
    aggregator = mechanism.load_aggregator(state)
    (tmp_path / "copy.sstq").write_bytes(paths[2].read_bytes())
    outcomes = list(add_files(aggregator, [paths[0], paths[2], tmp_path / "copy.sstq", paths[2], paths[3]]))
    assert outcomes == [(0, False), (1, True), (2, False), (3, False), (4, True)]
    aggregator.save(state)
    aggregator = mechanism.load_aggregator(state)
    assert [aggregator.update_from_file(path) for path in paths] == [False] * 4 + [True]
    assert saved(aggregator, tmp_path) == everything


def test_bad_files_are_refused_as_without_ray(tmp_path, seed):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    good = write_shards(tmp_path, mechanism, seed, shards=4)
    damaged, foreign, missing = tmp_path / "damaged.sstq", tmp_path / "foreign.sstq", tmp_path / "missing.sstq"
    damaged.write_bytes(good[0].read_bytes()[:-1])
    sstq.write_messages(foreign, sstq.SSTQ(dim=DIM, epsilon=3.0, bits=3).encode(np.zeros((2, DIM))))
    paths = [good[0], damaged, good[1], missing, foreign, good[2], good[3]]
    expected = []
    for path in (damaged, missing, foreign):
        with pytest.raises((ValueError, OSError)) as caught:
            mechanism.aggregator().update_from_file(path)
        expected.append(caught.value)

    aggregator = mechanism.aggregator()
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (compared in full)
        list(add_files(aggregator, paths))
    assert str(raised.value) == str(expected[0])
    assert saved(aggregator, tmp_path) == saved(added_here(mechanism.aggregator(), good[:1]), tmp_path)

    outcomes = dict(add_files(aggregator, paths, skip_bad=True))
    assert [outcomes[number] for number in (0, 2, 5, 6)] == [False, True, True, True]
    for number, error in zip((1, 3, 4), expected, strict=True):
        assert (type(outcomes[number]), str(outcomes[number])) == (type(error), str(error))
    assert saved(aggregator, tmp_path) == saved(added_here(mechanism.aggregator(), good), tmp_path)


def test_relative_paths_are_the_driver_s(tmp_path, seed, monkeypatch):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    (path,) = write_shards(tmp_path, mechanism, seed, shards=1)
    monkeypatch.chdir(tmp_path)
    added_by_ray(mechanism.aggregator(), [path.name])
    with pytest.raises(FileNotFoundError) as raised:
        list(add_files(mechanism.aggregator(), ["none.sstq"]))
    assert Path(raised.value.filename) == Path.cwd() / "none.sstq"


def test_workers_need_no_folder_of_the_driver_but_those_of_the_files(tmp_path, seed, monkeypatch):
    """The driver is in a folder that the workers do not have."""
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    shards = vector_shards(tmp_path, seed)
    monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path / "elsewhere"))
    assert [report.vectors for report in encode_shards(shards, mechanism)] == [shard.count for shard in shards]
    added_by_ray(mechanism.aggregator(), [shard.messages for shard in shards])


def test_relative_shards_are_the_driver_s(tmp_path, seed, monkeypatch):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    vector_shards(tmp_path, seed, count=1)
    monkeypatch.chdir(tmp_path)
    shards = plan_shards([Path("v0.npy")], Path("out"), DIM)
    assert [report.vectors for report in encode_shards(shards, mechanism)] == [30]
    assert (tmp_path / "out" / "v0.sstq").exists()


def test_tasks_are_begun_a_few_at_a_time():
    begun = 0

    def calls():
        nonlocal begun
        for number in range(30):
            begun += 1
            yield (number,)

    results = results_of(abs, calls())
    assert next(results) == 0
    assert begun == 6
    assert list(results) == list(range(1, 30))


def test_another_version_on_a_worker_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("sstq.integrations.ray.tasks.__version__", "9.9")
    with pytest.raises(ImportError, match=f"has sstq {sstq.__version__}, but the driver has 9.9: install the same"):
        list(results_of(abs, [(1,)]))


def test_connections_that_make_no_sense_are_refused(monkeypatch):
    for arguments in ({"address": "auto"}, {"cpus": 1}):
        with pytest.raises(ValueError, match="already connected to Ray"), connected(**arguments):
            pass
    with connected():
        assert ray.is_initialized()
    assert ray.is_initialized()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'sstq\[ray\]'"), connected():
        pass


class Slow:
    """A Ray that starts at the given try."""

    def __init__(self, starts_at, text="The current node timed out during startup.\nMore."):
        self.tries, self.starts_at, self.text = 0, starts_at, text

    def init(self, **options):
        assert options["address"] == "local"
        self.tries += 1
        if self.tries < self.starts_at:
            raise Exception(self.text)


def test_a_start_that_takes_too_long_is_tried_again():
    slow = Slow(starts_at=3)
    _start(slow, None)
    assert slow.tries == 3
    with pytest.raises(ConnectionError, match=r"Ray did not start: The current node timed out during startup\.$"):
        _start(Slow(starts_at=4), None)
    broken = Slow(starts_at=4, text="no room for the object store")
    with pytest.raises(ConnectionError, match="no room"):
        _start(broken, None)
    assert broken.tries == 1


class NeverJoined:
    """A Ray that must not be asked: it would try for minutes."""

    def init(self, **options):
        pytest.fail("nothing listens there")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_port_at_which_nothing_listens_is_an_error_at_once(scheme):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConnectionError, match=f"no Ray is running at '{address}': .*refused"):
        _connect(NeverJoined(), address, None)


# --- encoding ---


def vector_shards(folder, seed, count=4):
    rng = np.random.default_rng(seed)
    for number in range(count):
        np.save(folder / f"v{number}.npy", rng.standard_normal((30 + number, DIM)))
    unfinished_folder(folder / "out").mkdir(parents=True)
    return plan_shards(sorted(folder.glob("v*.npy")), folder / "out", DIM)


def contents(shards, mechanism):
    batches = [batch for shard in shards for batch in sstq.read_messages(shard.messages, mechanism)]
    return [batch.to_bytes() for batch in batches]


@pytest.mark.parametrize("kind", ["frameunit", "sstq", "sstq/public", "privunitg", "clean"])
def test_seeded_encoding_has_the_bits_of_one_process(kind, tmp_path, seed):
    mechanism = KINDS[kind]()._mechanism
    (tmp_path / "here").mkdir()
    here, there = vector_shards(tmp_path / "here", seed), vector_shards(tmp_path, seed)
    total = sum(shard.count for shard in here)
    clients = np.arange(total, dtype=np.uint64) if mechanism.coin == "public" else None
    for shard in here:
        ids = None if clients is None else clients[shard.first : shard.first + shard.count]
        encode_shard(shard, mechanism, np.random.default_rng(seed), clients=ids)
    reports = list(encode_shards(there, mechanism, np.random.default_rng(seed), clients=clients))
    assert sum(report.vectors for report in reports) == total
    assert contents(there, mechanism) == contents(here, mechanism)


def test_a_shard_that_is_refused_is_an_error_and_the_others_before_it_are_there(tmp_path, seed):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    shards = vector_shards(tmp_path, seed)
    rows = np.load(shards[2].vectors)
    rows[3, 1] = np.inf
    np.save(shards[2].vectors, rows)
    with pytest.raises(ValueError, match=r"v2.npy: vectors must be finite, got inf in row 3, column 1"):
        list(encode_shards(shards, mechanism))
    assert [shard.messages.exists() for shard in shards[:3]] == [True, True, False]


# --- the command line ---


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "mechanism.json"
    path.write_text(sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3).to_json())
    return path


def test_the_commands_give_the_same_with_ray(tmp_path, spec, seed):
    for shard in vector_shards(tmp_path, seed):
        shard.vectors.with_suffix(".bad").write_bytes(b"nonsense")
    vectors = sorted(tmp_path.glob("v*.npy"))
    for engine in ("local", "ray"):
        options = ["-m", spec, "--engine", engine]
        shards = ["--shards", "parquet", "--seed", 3, "--report"]
        result = run("encode", *vectors, "-o", tmp_path / engine, *shards, *options)
        assert "local report: 126 vectors" in result.stderr
        again = run("encode", *vectors, "-o", tmp_path / engine, *shards, *options)
        assert "4 of 4 message files already existed" in again.stderr
        assert not unfinished_folder(tmp_path / engine).exists()
    mechanism = sstq.from_json(spec.read_text())
    here, there = (plan_shards(vectors, tmp_path / engine, DIM, kind="parquet") for engine in ("local", "ray"))
    assert contents(there, mechanism) == contents(here, mechanism)

    files = [*sorted((tmp_path / "local").glob("*.parquet")), tmp_path / "v0.bad"]
    texts = []
    for engine in ("local", "ray"):
        refused = run("aggregate", *files, "-m", spec, "-o", tmp_path / "r" / engine, "--engine", engine, code=1)
        skipped = run(
            "aggregate", *files, files[0], "-m", spec, "-o", tmp_path / "r" / engine, "--engine", engine, "--skip-bad",
            code=1,
        )  # fmt: skip
        texts.append([refused.stderr, skipped.stderr, skipped.stdout])
    assert texts[0] == texts[1]
    assert "is not a message file" in texts[1][0]
    for name in ("state.npz", "mean.npy", "stderr.npy", "summary.json"):
        assert (tmp_path / "r" / "ray" / name).read_bytes() == (tmp_path / "r" / "local" / name).read_bytes()


def test_wrong_usage_of_engines(tmp_path, spec):
    np.save(tmp_path / "x.npy", np.zeros((1, DIM)))
    encode = ["encode", tmp_path / "x.npy", "-m", spec, "-o", tmp_path / "out"]
    assert "--engine ray needs --shards" in run(*encode, "--engine", "ray", code=2).stderr
    assert "--shards must be" in run(*encode, "--shards", "csv", code=2).stderr
    assert "--engine must be 'local' or 'ray', got 'dask'" in run(*encode, "--engine", "dask", code=2).stderr
    assert "--address needs --engine ray" in run(*encode, "--address", "auto", code=2).stderr


def program(*arguments):
    """The command in a process of its own, as a user starts it."""
    command = [Path(sys.executable).parent / "sstq", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_a_program_joins_this_ray_and_leaves_it_running(tmp_path, spec, seed):
    mechanism = sstq.from_json(spec.read_text())
    paths = write_shards(tmp_path, mechanism, seed)
    address = ray.get_runtime_context().gcs_address
    here = program("aggregate", *paths, "-m", spec, "-o", tmp_path / "here")
    there = program(
        "aggregate", *paths, "-m", spec, "-o", tmp_path / "there", "--engine", "ray", "--address", address
    )  # fmt: skip
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == here.stdout
    assert (tmp_path / "there" / "state.npz").read_bytes() == (tmp_path / "here" / "state.npz").read_bytes()
    assert list(results_of(abs, [(-1,)])) == [1]


def test_a_program_starts_a_ray_of_its_own_quietly_and_stops_it(tmp_path, spec, seed):
    paths = write_shards(tmp_path, sstq.from_json(spec.read_text()), seed)
    done = program("aggregate", *paths, "-m", spec, "-o", tmp_path / "out", "--engine", "ray")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"count\t{40 * 5 + 7 * 10}"


# --- workers that are killed, after what needs living ones: Ray takes seconds to start others ---


def die_once(marker):
    """Kill this process without warning, the first time."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_in_the_middle_of_a_file_loses_and_doubles_nothing(tmp_path, seed):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    paths = write_shards(tmp_path, mechanism, seed)
    plain = type(mechanism.aggregator())

    class Mortal(plain):
        def _add(self, messages):
            super()._add(messages)
            if len(messages) == 54:
                die_once(tmp_path / f"killed-{len(messages)}")

    there = added_by_ray(Mortal(mechanism), paths)
    assert (tmp_path / "killed-54").exists()
    assert saved(there, tmp_path) == saved(added_here(plain(mechanism), paths), tmp_path)


def test_a_task_that_kills_every_worker_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("sstq.integrations.ray.tasks.RETRIES", 1)

    def deadly(number):
        with open(tmp_path / "tries", "ab") as file:
            file.write(b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildProcessError, match="after 1 retries"):
        list(results_of(deadly, [(0,)]))
    assert (tmp_path / "tries").read_bytes() == b"xx"


class MortalShard(Shard):
    """Its reader kills the process once in the middle of encoding, when half of it has been written."""

    def open(self, dim):
        file = super().open(dim)

        def halves(size):
            rows = np.concatenate([piece[0] for piece in file.read(size)])
            yield rows[: len(rows) // 2], []
            assert list(unfinished_folder(self.messages.parent).glob(f".*-{self.messages.name}.*"))
            die_once(self.vectors.with_suffix(".killed"))
            yield rows[len(rows) // 2 :], []

        return replace(file, read=halves)


def test_a_worker_that_is_killed_while_it_encodes_leaves_nothing_and_one_version_comes_out(tmp_path, seed):
    mechanism = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=3)
    shards = vector_shards(tmp_path, seed)
    mortal = MortalShard(**vars(shards[1]))
    reports = list(encode_shards([shards[0], mortal, *shards[2:]], mechanism, np.random.default_rng(seed)))
    assert (tmp_path / "v1.killed").exists()
    assert [report.vectors for report in reports] == [shard.count for shard in shards]
    expected = mechanism.encode(np.concatenate([np.load(shard.vectors) for shard in shards]), rng=seed)
    for shard in shards:
        (stored,) = sstq.read_messages(shard.messages, mechanism)
        assert stored.to_bytes() == expected[shard.first : shard.first + shard.count].to_bytes()
    # What the killed one left is in the hidden folder, and nowhere else.
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_file()) == [
        shard.messages.name for shard in shards
    ]
    assert len(list(unfinished_folder(tmp_path / "out").iterdir())) == 1
    before = [shard.messages.read_bytes() for shard in shards]
    assert list(encode_shards(shards, mechanism, np.random.default_rng(seed))) == [None] * len(shards)
    assert [shard.messages.read_bytes() for shard in shards] == before


# --- training, last: its tasks have an environment of their own, for which Ray starts other workers ---


def network(clients=600):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1200, 20), dtype=np.float32)
    y = rng.integers(0, 3, 1200)
    return Problem("noise", HiddenLayer(20, 8, 3), x, y, iid_partition(1200, clients, 0), x[:50], y[:50])


def trained(problem, mechanism, engine, **options):
    options = {"rounds": 3, "batch": 5, "private_seed": 4} | options
    history = list(train(problem, mechanism, Server(rate=0.5, momentum=0.5), engine=engine, **options))
    return [(r.loss, r.train_loss, r.mean_norm, r.parameters.tobytes()) for r in history[1:]]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frameunit", {"epsilon": 4.0}),
        ("sstq", {"epsilon": 4.0, "bits": 3, "coin": "public"}),
        ("privunitg", {"epsilon": 4.0}),
        ("clean", {}),
    ],
)
def test_training_has_the_bits_of_one_process(name, options):
    """600 clients are three groups; the network's matrix products would be rounded otherwise for other groups."""
    problem = network()
    mechanism = sstq.mechanism(name, dim=problem.model.dim, clip=0.5, **options)
    assert trained(problem, mechanism, RayRounds()) == trained(problem, mechanism, None)


def test_training_in_cohorts_has_the_bits_of_one_process():
    """Cohorts of 300 are two groups; the bits about norms are drawn group by group as well."""
    problem = network()
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, clip=0.5, epsilon=4.0)
    options = {"rounds": 4, "participation": 2, "adaptive_clip": AdaptiveClip(epsilon=1.0)}
    assert trained(problem, mechanism, RayRounds(), **options) == trained(problem, mechanism, None, **options)


def test_secret_noise_differs_and_all_else_does_not():
    problem = regression_problem(dim=DIM, clients=300, seed=0)
    private = sstq.mechanism("frameunit", dim=DIM, epsilon=4.0)
    one, two = (trained(problem, private, RayRounds(), rounds=1, private_seed=None) for _ in range(2))
    assert one != two
    clean = sstq.mechanism("clean", dim=DIM)
    runs = [trained(problem, clean, engine, rounds=1, private_seed=None) for engine in (RayRounds(), None)]
    assert runs[0] == runs[1]


def test_an_engine_and_an_estimate_exclude_each_other():
    problem = regression_problem(dim=DIM, clients=10, seed=0)
    with pytest.raises(ValueError, match="must not be given together"):
        next(train(problem, sstq.mechanism("clean", dim=DIM), Server(), 1, engine=RayRounds(), estimate=max))


def test_training_from_the_command_line(tmp_path):
    for engine in ("local", "ray"):
        run(
            "train", "--dataset", "regression", "--dim", DIM, "--clients", 300, "--rounds", 2, "--noise-seed", 1,
            "-o", tmp_path / engine, "--engine", engine,
        )  # fmt: skip
    for name in ("checkpoint.npz", "mechanism.json"):
        read = [(tmp_path / engine / "frameunit" / name).read_bytes() for engine in ("local", "ray")]
        assert read[0] == read[1]


def test_a_worker_that_is_killed_in_a_round_changes_nothing(tmp_path):
    class Mortal(HiddenLayer):
        def gradients(self, parameters, x, y):
            gradients = super().gradients(parameters, x, y)
            if len(x) == 44:
                die_once(tmp_path / "killed")
            return gradients

    problem = network(300)
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=4.0)
    expected = trained(problem, mechanism, None, rounds=2)
    mortal = Problem("noise", Mortal(20, 8, 3), *list(vars(problem).values())[2:])
    assert trained(mortal, mechanism, RayRounds(), rounds=2) == expected
    assert (tmp_path / "killed").exists()
