"""`sstq bench`: its clock, its references, its reports, and the command."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.bench import (
    Measured,
    Result,
    Run,
    compare,
    fastest,
    harness,
    measurements,
    profile,
    read_run,
    suite,
    write_run,
)
from sstq.bench.processes import installed_bytes, requirements
from sstq.bench.references import (
    foreign_transform,
    kronecker_transform,
    numpy_butterflies,
    paper_in_numpy,
    paper_representation,
)
from sstq.cli import app
from sstq.kashin import represent

from .kernels.reference import butterflies


def test_the_least_time_of_turns_counts_with_the_spread_of_the_repeats(monkeypatch):
    # The clock before and after every call: a takes 3, 2, 4 and b takes 10, 10, 20 seconds, in turns that go backwards
    # and forwards.
    times = iter([0, 10, 10, 13, 13, 15, 15, 25, 25, 45, 45, 49])
    monkeypatch.setattr(harness.time, "perf_counter", lambda: next(times))
    calls = []
    a, b = fastest(lambda: calls.append("a"), lambda: calls.append("b"), repeats=3)
    assert "".join(calls) == "ab" + "ba" + "ab" + "ba"
    assert (a, b) == (2, 10)
    assert (a.spread, b.spread) == (0.5, 0.0)


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
    foreign = foreign_transform()
    if foreign is not None and bits > 0:
        transformed = x[None].copy()
        foreign(transformed)
        np.testing.assert_array_equal(transformed[0], exact)


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
    run = Run.of_now(RESULTS)
    write_run(run, tmp_path / "bench.json")
    again = read_run(tmp_path / "bench.json")
    assert again == run
    assert again.results["sorting"][0].spread == 0.01
    assert again.results["sorting"][1].spread is None
    for fact in ("processor", "cores", "vector width", "numba", "sstq", "python"):
        assert again.machine[fact]


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
        ("[]", "no results of sstq bench"),
        ('{"format": "sstq-bench", "version": 7}', "version 7"),
        ('{"format": "sstq-bench", "version": 1, "results": [{}]}', "malformed"),
        ('{"format": "sstq-bench", "version": 1, "results": [3]}', "malformed"),
    ],
)
def test_other_files_are_refused(text, says, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=says) as refusal:
        read_run(path)
    assert "old.json" in str(refusal.value)


@pytest.fixture
def small(monkeypatch):
    """The same measurements in fewer dimensions."""
    for module in (measurements, profile):
        monkeypatch.setattr(module, "DIM", 300)
    monkeypatch.setattr(measurements.unit_vectors, "__defaults__", (300,))


@pytest.mark.parametrize("name", list(suite()))
def test_every_measurement_runs(name, small):
    results = list(suite(quick=True)[name]())
    assert results
    assert all(result.figure > 0 for result in results)
    assert len({result.what for result in results}) == len(results)


def test_all_mechanisms_are_measured():
    measured = {peer.name for peer in (*measurements.PEERS, *measurements.SLOW_PEERS)}
    assert measured == set(sstq.mechanisms())


def bench(*arguments, code=0):
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], prog_name="sstq")
    assert result.exit_code == code, result.output
    return result


def test_the_command_writes_and_compares(tmp_path):
    path = tmp_path / "bench.json"
    first = bench("--quick", "--only", "bandwidth", "--output", path)
    lines = [line.split("\t") for line in first.stdout.splitlines()]
    assert lines[0][:3] == ["what", "measured", "±"]
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


def test_the_command_refuses_before_it_measures(tmp_path):
    assert "there is no benchmark 'speed'; there are: bandwidth" in bench("--only", "speed", code=1).stderr
    assert "there is no folder" in bench("--output", tmp_path / "none" / "a.json", code=1).stderr
    assert "nothing.json" in bench("--compare", tmp_path / "nothing.json", code=1).stderr


def test_sizes_of_installations():
    needed = requirements("sstq")
    assert {"numpy", "scipy", "numba", "llvmlite", "typer", "rich"} <= set(needed)
    assert not {"sstq", "pyarrow", "torch", "pytest"} & set(needed)
    assert 100_000 < installed_bytes("sstq") < 10_000_000
    assert installed_bytes("numpy") > installed_bytes("typer") > 0


def test_the_benchmarks_of_the_repository_use_the_same_harness(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run("packing", "--json", tmp_path / "packing.json")
    assert done.returncode == 0, done.stderr
    assert list(read_run(tmp_path / "packing.json").results) == ["packing"]
    refused = run("nonsense")
    assert refused.returncode == 1
    assert "there is no benchmark 'nonsense'" in refused.stderr
