"""`sstq bench`: its clock, its references, its reports, and the command."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from benchmarks import theory
from benchmarks.speed import (
    Measured,
    Remark,
    Result,
    Run,
    compare,
    fastest,
    harness,
    machine,
    measurements,
    processes,
    profile,
    read_run,
    suite,
    write_run,
)
from benchmarks.speed.harness import in_turns, seconds_of
from benchmarks.speed.processes import installed_bytes, requirements, run_python
from benchmarks.speed.references import (
    aligned_zeros,
    foreign_transform,
    kronecker_transform,
    numpy_butterflies,
    paper_in_numpy,
    paper_representation,
)
from sstq.cli import app
from sstq.files.atomic import atomic_file
from sstq.frames.kashin import represent
from sstq.mechanisms import mechanism_class
from tests.kernels.reference import butterflies


def test_the_least_time_of_turns_counts_with_the_spread_of_the_repeats(monkeypatch):
    # The clock before and after every call: once each that does not count, then a takes 3, 2, 4 and b takes 10, 10, 20
    # seconds, in turns that go backwards and forwards.
    times = iter([0, 1, 1, 2, 10, 20, 20, 23, 23, 25, 25, 35, 35, 55, 55, 59])
    monkeypatch.setattr(harness.time, "perf_counter", lambda: next(times))
    calls = []
    a, b = fastest(lambda: calls.append("a"), lambda: calls.append("b"), repeats=3)
    assert "".join(calls) == "ab" + "ba" + "ab" + "ba"
    assert (a, b) == (2, 10)
    assert (a.spread, b.spread) == (0.5, 0.0)


def test_clocks_of_their_own_take_turns():
    calls = []

    def clock(name, seconds):
        calls.append(name)
        return seconds.pop(0)

    taken = in_turns(partial(clock, "a", [9, 1, 2]), partial(clock, "b", [9, 3, 4]), repeats=2)
    assert "".join(calls) == "ab" + "ba" + "ab"
    assert taken == [[1, 2], [3, 4]]


def test_what_is_computed_from_times_keeps_their_spread():
    ours, other = Measured(2.0, 0.1), Measured(6.0, 0.05)
    for value, expected, spread in (
        (other / ours, 3.0, 0.15),
        (1e3 * ours, 2000.0, 0.1),
        (ours * 5, 10.0, 0.1),
        (8 / ours / 2, 2.0, 0.1),
    ):
        assert value == expected
        assert value.spread == pytest.approx(spread)
        assert Result("", value, "×").spread == value.spread
    assert Result("", 3.0, "×").spread is None


@pytest.mark.parametrize("bits", [0, 1, 5, 6, 7, 13])
def test_reference_transforms(bits, seed):
    x = np.random.default_rng(seed).integers(-8, 9, size=1 << bits).astype(np.float32)
    exact = butterflies(x)  # in double precision; there is no rounding of small integers
    np.testing.assert_array_equal(kronecker_transform(np.stack([x, 2 * x])), [exact, 2 * exact])
    in_numpy = x.copy()
    numpy_butterflies(in_numpy)
    np.testing.assert_array_equal(in_numpy, exact)


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
def test_the_other_library_transforms_wherever_rows_lie(offset, seed):
    pytest.importorskip("fht_cpu")
    x = np.random.default_rng(seed).integers(-8, 9, size=(3, 1 << 7)).astype(np.float32)
    rows = aligned_zeros(*x.shape, offset=offset)
    assert rows.ctypes.data % 64 == offset
    assert rows.shape == x.shape
    assert not rows.any()
    rows[:] = x
    foreign_transform()(rows)
    np.testing.assert_array_equal(rows, [butterflies(row) for row in x])


def test_another_library_that_is_missing_or_broken_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "fastest", lambda *calls, repeats: [Measured(1.0) for _ in calls])

    def remarks():
        lines = list(measurements.transform(quick=True))
        assert not any("fht-cpu" in line.what for line in lines if isinstance(line, Result))
        return [line.text for line in lines if isinstance(line, Remark)]

    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.speed.references.find_spec", lambda _: None)
        assert remarks() == ["not measured: fht-cpu is not installed (pip install fht-cpu)"]
    (tmp_path / "fht_cpu.py").write_text("raise RuntimeError('compiled for an abacus')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fht_cpu", raising=False)
    (remark,) = remarks()
    assert "fht-cpu is installed but cannot be used" in remark
    assert "abacus" in remark


def test_the_other_library_is_measured_on_cache_lines_and_off_them(monkeypatch):
    pytest.importorskip("fht_cpu")
    seen = set()

    def spying(x, num_threads):
        seen.add(x.ctypes.data % 64)
        assert num_threads == 1

    monkeypatch.setattr("fht_cpu.fht", spying)
    monkeypatch.setattr(measurements, "range", lambda *_: [12], raising=False)
    lines = {line.what: line for line in measurements.transform(quick=True)}
    assert seen == {0, 16}
    assert lines["N = 2^12: fht-cpu"].target == 1.1
    assert lines["N = 2^12: fht-cpu, as NumPy allocates"].target is None
    assert "16 bytes" in lines["N = 2^12: fht-cpu, as NumPy allocates"].note


def test_the_paper_in_numpy_is_the_recipe_that_the_kernels_run(seed):
    mechanism = sstq.SSTQ(dim=300, epsilon=3.0, bits=4, kashin="paper", clip=0.5)
    x = np.random.default_rng(seed).standard_normal(300).astype(np.float32)
    x *= 0.5 / np.linalg.norm(x)
    y = paper_representation(mechanism, x)
    expected, _ = represent(mechanism.frame, mechanism.kashin, 2 * x[None])
    # Single precision: 31 rounds of two transforms of ten levels each, 2^-24 each time.
    np.testing.assert_allclose(y / mechanism.bound, expected[0], atol=1e-4)
    index, code = paper_in_numpy(mechanism, x, np.random.default_rng(seed))
    assert 0 <= index < mechanism.frame.size
    assert 0 <= code < 16


def test_the_paper_in_numpy_wants_its_frame():
    with pytest.raises(ValueError, match="frame must be 'hadamard', got 'fourier'"):
        paper_representation(sstq.SSTQ(dim=8, epsilon=1.0, frame="fourier"), np.zeros(8, np.float32))


RESULTS = {
    "sorting": [Result("ints", Measured(2.0, 0.01), "µs", note="few"), Result("size", 7.0, "MiB")],
    "adding": [Result("floats", Measured(4.0, 0.3), "×", target=3.0)],
}


def test_a_run_can_be_written_and_read_again(tmp_path):
    run = replace(Run.of_now(RESULTS, quick=True), complete=False)
    write_run(run, tmp_path / "bench.json")
    again = read_run(tmp_path / "bench.json")
    assert again == run
    assert (again.quick, again.complete) == (True, False)
    assert again.results["sorting"][0].spread == 0.01
    assert again.results["sorting"][1].spread is None
    for fact in ("processor", "cores", "threads", "vector width", "numba", "sstq", "python"):
        assert again.machine[fact]


def test_cores_are_not_threads(monkeypatch):
    monkeypatch.delenv("SSTQ_THREADS", raising=False)
    cores = machine.machine_facts()["cores"]
    assert machine.machine_facts()["threads"] == cores
    monkeypatch.setenv("SSTQ_THREADS", str(cores + 1))
    facts = machine.machine_facts()
    assert (facts["cores"], facts["threads"]) == (cores, cores + 1)


def test_facts_that_a_system_does_not_tell_are_left_out(monkeypatch, tmp_path):
    for number, size in enumerate(("48K", None, "2M")):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(f"{number + 1}\n")
        (folder / "type").write_text("Data\n")
        if size is not None:
            (folder / "size").write_text(f"{size}\n")
    assert machine._caches(tmp_path) == {"L1 cache": "48K", "L3 cache": "2M"}
    assert machine._caches(tmp_path / "none") == {}
    monkeypatch.setattr(machine, "_LIBRARIES", ("numpy", "no-such-library"))
    assert "no-such-library" not in machine.machine_facts()


def test_changes_beyond_noise_are_marked():
    figures = {"ints": Measured(2.12, 0.02), "size": 7.2}
    new = {
        "sorting": [
            Result(what, figure, unit) for (what, figure), unit in zip(figures.items(), ("µs", "MiB"), strict=True)
        ],
        "adding": [Result("floats", Measured(3.0, 0.1), "×"), Result("new", 1.0, "×")],
    }
    changes = compare(Run(new, {}, ""), Run(RESULTS, {}, ""))
    assert set(changes) == {("sorting", "ints"), ("sorting", "size"), ("adding", "floats")}
    assert changes["sorting", "ints"].ratio == pytest.approx(1.06)
    assert changes["sorting", "ints"].significant  # 6 % with spreads of 1 and 2 %, of which 5 % is the least noise
    assert not changes["sorting", "size"].significant
    assert not changes["adding", "floats"].significant  # 1.33 with spreads of 30 and 10 %


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "is not JSON"),
        ("[]", "must be written by sstq bench"),
        ('{"format": "sstq-bench", "version": 7}', "version 7"),
        ('{"format": "sstq-bench", "version": 2, "results": [{}]}', "malformed"),
        ('{"format": "sstq-bench", "version": 2, "results": [3]}', "malformed"),
        ('{"format": "sstq-bench", "version": 2, "results": {}}', "results must be of type list"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_other_files_are_refused(text, says, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=says) as refusal:
        read_run(path)
    assert "old.json" in str(refusal.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"figure": float("inf")}, "Infinity is not a number"),
        ({"figure": "3"}, "figure must be a finite number, got '3'"),
        ({"figure": True}, "figure must be a finite number, got True"),
        ({"figure": None}, "figure must be a number"),
        ({"figure": 10**400}, "too large"),
        ({"spread": float("nan")}, "NaN is not a number"),
        ({"spread": -0.1}, "spread at least 0"),
        ({"target": float("-inf")}, "-Infinity is not a number"),
        ({"what": ["a"]}, "what must be of type str"),
        ({"unit": None}, "unit must be of type str"),
        ({"benchmark": ["sorting"]}, "benchmark must be of type str"),
        ({"at_most": 1}, "at_most must be of type bool"),
    ],
)
def test_malformed_lines_are_refused(line, says, tmp_path):
    path = tmp_path / "old.json"
    write_run(Run(RESULTS, {}, ""), path)
    document = json.loads(path.read_text())
    document["results"][1] |= line
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=f"old.json is (incomplete or malformed|not JSON).*{says}"):
        read_run(path)


@pytest.mark.parametrize("change", [{"date": 3}, {"machine": []}, {"quick": "no"}, {"complete": None}])
def test_malformed_runs_are_refused(change, tmp_path):
    path = tmp_path / "old.json"
    write_run(Run(RESULTS, {}, ""), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=f"{next(iter(change))} must be of type"):
        read_run(path)


@pytest.fixture
def small(monkeypatch):
    """The same measurements in fewer dimensions, with every process started once."""
    monkeypatch.setattr(processes, "fastest", lambda *calls, repeats: [seconds_of(call) for call in calls])
    for module in (measurements, profile):
        monkeypatch.setattr(module, "DIM", 300)
    monkeypatch.setattr(measurements.unit_vectors, "__defaults__", (300,))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(suite()))
def test_every_measurement_runs(name, small):
    results = [line for line in suite(quick=True)[name]() if isinstance(line, Result)]
    if name == "scaling" and machine.machine_facts()["threads"] == 1:
        pytest.skip("there is one core")
    assert results
    assert all(result.figure > 0 for result in results)
    assert len({result.what for result in results}) == len(results)


def test_encoding_is_compared_with_numpy_on_one_thread_and_on_all_cores(small, monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "3")
    monkeypatch.setattr(measurements, "PEERS", measurements.PEERS[:2])
    seen = set()

    def spying(mechanism, x):
        seen.add((mechanism.name, len(x), measurements.thread_count()))

    monkeypatch.setattr(measurements, "_encode", spying)
    monkeypatch.setattr(measurements, "paper_in_numpy", lambda *_: None)
    lines = {line.what: line for line in measurements.encode(quick=True)}
    assert {("sstq", 100, 1), ("sstq", 100, 3)} <= seen
    assert lines["sstq, one thread: how many times as fast as NumPy"].target == 100
    assert lines["sstq, all cores: the same"].target is None
    assert lines["sstq, all cores: the same"].note.startswith("3 threads")


def test_all_mechanisms_are_measured():
    measured = {peer.name for peer in (*measurements.PEERS, *measurements.SLOW_PEERS)}
    ours = {name for name in sstq.list_mechanisms() if mechanism_class(name).__module__.startswith("sstq.")}
    assert measured == ours


def bench(*arguments, code=0):
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], prog_name="sstq")
    assert result.exit_code == code, result.output
    return result


def test_the_command_writes_and_compares(tmp_path):
    path = tmp_path / "bench.json"
    first = bench("--quick", "--only", "bandwidth", "--output", path)
    lines = [line.split("\t") for line in first.stdout.splitlines()]
    assert lines[0][:3] == ["bandwidth", "measured", "±"]
    assert lines[1][0].startswith("copy of")
    assert lines[1][1].endswith(" GB/s")
    document = json.loads(path.read_text())
    assert len(document["results"]) == len(lines) - 1
    second = bench("--quick", "--only", "bandwidth", "--compare", path)
    assert "figures differ from those of" in second.stderr
    assert second.stdout.splitlines()[0].split("\t")[-2] == "new/old"
    document["machine"]["processor"] = "abacus"
    path.write_text(json.dumps(document))
    assert "another machine: processor was abacus" in bench(
        "--quick", "--only", "bandwidth", "--compare", path
    ).stderr.replace("\n", " ")


def copying():
    """Copying, by size."""
    yield Result("few", Measured(2.0, 0.01), "µs")
    yield Result("many", Measured(3.0, 0.01), "µs")


def failing(error):
    """Failing in the middle."""
    yield Result("before it fails", 1.0, "s")
    raise error


@pytest.fixture
def benchmarks(monkeypatch):
    """The measurements of the command: two that work, for others to be added to."""
    chosen = {"copying": copying, "adding": copying}
    monkeypatch.setattr("benchmarks.speed.suite", lambda quick: chosen)
    return chosen


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (ChildProcessError("a child failed"), 1), (RuntimeError(), 1)]
)
def test_what_was_measured_before_the_end_is_kept(error, code, benchmarks, tmp_path):
    path = tmp_path / "bench.json"
    benchmarks |= {"failing": partial(failing, error), "never": copying}
    stopped = bench("--output", path, code=code)
    firsts = [line.split("\t")[0] for line in stopped.stdout.splitlines()]
    assert firsts == ["copying", "few", "many", "adding", "few", "many", "failing", "before it fails"]
    assert "stopped in failing: this run is incomplete" in stopped.stderr
    if isinstance(error, OSError):
        assert "error: a child failed" in stopped.stderr
    run = read_run(path)
    assert not run.complete
    assert {name: len(lines) for name, lines in run.results.items()} == {"copying": 2, "adding": 2, "failing": 1}
    benchmarks["failing"] = copying
    compared = bench("--compare", path, "--output", path, "--force")
    assert "the earlier run is incomplete" in compared.stderr
    assert "0 of 4 figures differ" in compared.stderr
    assert read_run(path).complete


def test_nothing_is_written_over_when_there_is_nothing_to_keep(benchmarks, tmp_path):
    path = tmp_path / "bench.json"
    path.write_text("what was there")

    def interrupted():
        raise KeyboardInterrupt

    benchmarks["copying"] = interrupted
    assert "already exists; pass --force" in bench("--output", path, code=2).stderr
    assert bench("--output", path, "--force", code=130).stdout == ""
    assert path.read_text() == "what was there"


@pytest.mark.slow
def test_a_signal_interrupts_the_command(tmp_path):
    program = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
import benchmarks.speed
from benchmarks.speed import Result
from sstq.cli import main
def copying():
    yield Result("few", 2.0, "µs")
    os.kill(os.getpid(), signal.SIGINT)
    yield Result("many", 3.0, "µs")
benchmarks.speed.suite = lambda quick: {"copying": copying}
main()
"""
    path = tmp_path / "bench.json"
    command = [sys.executable, "-c", program, "bench", "--output", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert "Traceback" not in done.stderr
    assert [line.what for line in read_run(path).results["copying"]] == ["few"]


def test_a_measurement_that_is_named_twice_runs_once(benchmarks, tmp_path):
    path = tmp_path / "bench.json"
    bench("--only", "adding", "--only", "copying", "--only", "adding", "--output", path)
    assert {name: len(lines) for name, lines in read_run(path).results.items()} == {"adding": 2, "copying": 2}


def test_quick_and_whole_runs_are_told_apart(benchmarks, tmp_path):
    quick, whole = tmp_path / "quick.json", tmp_path / "whole.json"
    bench("--quick", "--output", quick)
    bench("--output", whole)
    assert (read_run(quick).quick, read_run(whole).quick) == (True, False)
    assert "the earlier run is --quick and this one is not" in bench("--compare", quick).stderr
    assert "this run is --quick and the earlier one is not" in bench("--quick", "--compare", whole).stderr
    for same in (bench("--quick", "--compare", quick), bench("--compare", whole)):
        assert "warning" not in same.stderr
    write_run(Run.of_now({"sorting": []}), whole)
    assert "no figure in common" in bench("--compare", whole).stderr


def test_the_command_says_why_nothing_is_measured(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "1")
    done = bench("--quick", "--only", "scaling")
    assert done.stdout == ""
    assert "scaling: nothing to measure: there is one core to run on, or SSTQ_THREADS is 1" in done.stderr


@pytest.mark.slow
def test_a_process_that_fails_is_a_clear_error(monkeypatch):
    with pytest.raises(ChildProcessError, match=r"`python -c import nothing` ended with code 1: ModuleNotFoundError"):
        run_python("-c", "import nothing")
    with pytest.raises(ChildProcessError, match="ended with code 3: it said nothing"):
        run_python("-c", "raise SystemExit(3)")
    monkeypatch.setattr(processes, "_FIRST_CALL", "raise ValueError('no message')")
    monkeypatch.setattr(processes, "fastest", lambda *calls, repeats: [*map(harness.seconds_of, calls)])
    done = bench("--quick", "--only", "startup", code=1)
    assert "ended with code 1: ValueError: no message" in done.stderr
    assert done.exception.__class__ is SystemExit


def test_first_messages_are_timed_from_outside(monkeypatch):
    monkeypatch.setattr(processes, "run_python", lambda *_, **__: "")
    monkeypatch.setattr(processes, "fastest", lambda *calls, repeats: [Measured(7.0) for _ in calls])
    lines = {line.what: line.figure for line in processes.startup(quick=True)}
    assert lines["sstq: process, import and first message, kernels cached"] == 7.0


def test_the_command_refuses_before_it_measures(tmp_path):
    assert "name must be one of bandwidth" in bench("--only", "speed", code=2).stderr
    assert "did you mean 'startup'?" in bench("--only", "start-up", code=2).stderr
    assert "there is no folder" in bench("--output", tmp_path / "none" / "a.json", code=2).stderr
    assert "nothing.json" in bench("--compare", tmp_path / "nothing.json", code=2).stderr


def test_sizes_of_installations():
    needed = requirements("sstq")
    assert {"numpy", "scipy", "numba", "llvmlite", "typer", "rich"} <= set(needed)
    assert not {"sstq", "pyarrow", "torch", "pytest"} & set(needed)
    assert 100_000 < installed_bytes("sstq") < 10_000_000
    assert installed_bytes("numpy") > installed_bytes("typer") > 0


@pytest.mark.slow
def test_the_benchmarks_of_the_repository_use_the_same_harness(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run("packing", "--output", tmp_path / "packing.json")
    assert done.returncode == 0, done.stderr
    assert list(read_run(tmp_path / "packing.json").results) == ["packing"]
    for arguments, says in (
        (["nonsense"], "got 'nonsense'"),
        (["packing", "--compare", tmp_path / "none.json"], "none.json: No such file"),
        (["packing", "--output", tmp_path / "none" / "a.json"], "--output"),
    ):
        refused = run(*arguments)
        assert refused.returncode == 1
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_the_picture_of_the_theorems_is_drawn_only_where_it_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(theory, "PANELS", (theory.draw_neighbourhood,) * 12)
    written = []
    monkeypatch.setattr(theory, "atomic_file", lambda path: written.append(path) or atomic_file(path))
    assert len(list(theory.theory())) == 12
    assert not written
    theory.main(tmp_path / "tightness.png")
    assert written == [tmp_path / "tightness.png"]
    assert written[0].read_bytes().startswith(b"\x89PNG")


def test_the_size_of_the_library_is_that_of_all_rooms():
    rooms = Path(sstq.__file__).parent
    sources = sum(path.stat().st_size for path in rooms.rglob("*.py"))
    assert installed_bytes("sstq") >= sources
