"""The paper's experiments again, on tiny sizes: jobs, resuming, tables, the page and the command."""

import csv
import io
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from paper.commands.reproduce import _seconds_left, reproduce
from typer.testing import CliRunner

import paper.reproduction
from paper.datasets import DatasetUnavailableError
from paper.reproduction import (
    EXPERIMENTS,
    FULL,
    METHODS,
    PAPER,
    QUICK,
    Job,
    PaperNumber,
    Scale,
    paper_number,
    read_result,
    run_job,
    run_jobs,
    write_report,
)
from paper.reproduction.images import image_jobs, image_section
from paper.reproduction.lines import Line, interval, judge
from paper.reproduction.nonprivate import nonprivate_norm_scaled_mean
from paper.reproduction.records import _plain, paper_fates
from paper.reproduction.regression import bitwidth_section
from sstq.cli import terminal
from tests.patience import PATIENCE

TINY = Scale(
    quick=True,
    seeds=2,
    methods=("clean", "privunit", "sstq-uniform", "frameunit"),
    mse_dims=(20, 40),
    trials=10,
    regression_dims=(20,),
    bit_widths=(4,),
    rounds=(("regression", 2), ("digits", 2), ("fashion-mnist", 2), ("cifar-10", 2)),
    timing_dims=(),
)
SMALL_JOB = Job("mse", "privunit", seed=0, bits=8, count=10, dim=20)


def results_of(jobs, folder):
    run_jobs(jobs, folder, workers=1)
    return {job: read_result(job, folder) for job in jobs}


# --- jobs


def test_a_job_is_a_function_of_its_description():
    job = Job("regression", "frameunit", seed=3, bits=4, count=3, dim=16)
    first, second = run_job(job), run_job(job)
    assert first.pop("seconds") > 0 < second.pop("seconds")
    assert first == second
    assert run_job(replace(job, seed=4))["loss"] != first["loss"]


def test_every_job_of_every_scale_has_its_own_file():
    for scale in (FULL, QUICK, TINY):
        jobs = {job for experiment in EXPERIMENTS.values() for job in experiment.jobs(scale)}
        assert len({job.path for job in jobs}) == len(jobs)


def test_more_seeds_keep_the_jobs_of_fewer():
    for name, experiment in EXPERIMENTS.items():
        assert set(experiment.jobs(FULL)) <= set(experiment.jobs(replace(FULL, seeds=7))), name


def test_simulated_errors_are_those_that_were_predicted(seed):
    job = Job("mse", "sstq-uniform", seed=seed, bits=8, count=2000, dim=50)
    result = run_job(job)
    mean = result["sample_sum"] / job.count
    error = math.sqrt((result["sample_squares"] / job.count - mean**2) / job.count)
    # Six standard errors: fails for one seed in 10⁸, the squares being skewed.
    assert abs(mean - result["bias2"] - result["variance"]) < 6 * error


def test_the_error_of_the_bare_hemisphere_is_its_closed_form():
    result = run_job(Job("mse", "privunit", seed=0, bits=8, count=1, dim=10_000))
    gain = (math.e**3 + 1) / (math.e**3 - 1)
    # The paper's figure, as inferred from its numbers: (π/2)·((e^ε + 1)/(e^ε − 1))²·d·C², which is 767 at d = 10,000.
    assert result["variance"] == pytest.approx(math.pi / 2 * gain**2 * 10_000 * 0.04, rel=1e-3)


def test_the_recipe_has_the_errors_of_the_papers_figure():
    for method in ("sstq-uniform", "sqkr-3", "sstq-metric"):
        result = run_job(Job("mse", method, seed=0, bits=8, count=1, dim=100))
        paper = paper_number("mse", "d = 100", method)
        assert judge(result["bias2"] + result["variance"], paper, relative=0.1) == "agrees"


def test_noise_by_own_norm_shrinks_with_the_gradients():
    mechanism = METHODS["sstq-uniform"].build(dim=30, clip=1.0, bits=4)
    gradients = np.random.default_rng(0).standard_normal((20, 30))
    gradients /= 10 * np.linalg.norm(gradients, axis=1, keepdims=True)
    large, small = (
        nonprivate_norm_scaled_mean(mechanism, g, 1, np.random.default_rng(1)) for g in (gradients, gradients / 100)
    )
    np.testing.assert_allclose(large, 100 * small, rtol=1e-5)


# --- running


def test_what_is_done_is_not_done_again(tmp_path):
    seen = []
    run_jobs([SMALL_JOB, SMALL_JOB], tmp_path, workers=1, finished=lambda job, _: seen.append(job))
    before = (tmp_path / SMALL_JOB.path).read_bytes()
    more = replace(SMALL_JOB, seed=1)
    run_jobs([SMALL_JOB, more], tmp_path, workers=1, finished=lambda job, _: seen.append(job))
    assert seen == [SMALL_JOB, more]
    assert (tmp_path / SMALL_JOB.path).read_bytes() == before


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", "another job", "no result"])
def test_a_damaged_result_is_made_again(tmp_path, damage):
    run_jobs([SMALL_JOB], tmp_path, workers=1)
    path = tmp_path / SMALL_JOB.path
    whole = path.read_text()
    stored = json.loads(whole)
    if damage == "another job":
        damage = json.dumps(stored | {"job": replace(SMALL_JOB, seed=9).to_dict()})
    elif damage == "no result":
        damage = json.dumps(stored | {"result": None})
    path.write_text(damage)
    assert read_result(SMALL_JOB, tmp_path) is None
    run_jobs([SMALL_JOB], tmp_path, workers=1)
    assert path.read_text() == whole


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path):
    jobs = [replace(SMALL_JOB, seed=seed) for seed in range(3)]
    run_jobs(jobs, tmp_path / "two", workers=2)
    run_jobs(jobs, tmp_path / "one", workers=1)
    for job in jobs:
        assert (tmp_path / "two" / job.path).read_bytes() == (tmp_path / "one" / job.path).read_bytes()


def test_a_failure_keeps_what_was_done(tmp_path):
    bad = replace(SMALL_JOB, dim=-1)
    with pytest.raises(ValueError, match="negative dimensions"):
        run_jobs([SMALL_JOB, bad], tmp_path, workers=1)
    assert read_result(SMALL_JOB, tmp_path) is not None
    assert read_result(bad, tmp_path) is None
    assert not list(tmp_path.rglob(".*"))


LONG_RUN = """
import multiprocessing, sys
from dataclasses import replace
from pathlib import Path
from paper.reproduction import Job, run_jobs

def tell(job, seconds):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)

if __name__ == "__main__":
    long = Job("regression", "clean", seed=0, bits=4, count=10**7, dim=8)
    short = replace(long, count=1)
    run_jobs([short, long, replace(long, seed=1)], Path(sys.argv[1]), workers=2, finished=tell)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def heed_interruptions():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_workers_end_with_the_process_that_started_them(tmp_path, sent):
    script = tmp_path / "long_run.py"
    script.write_text(LONG_RUN)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    # As from a terminal: shells have what they run in the background ignore interruptions.
    with subprocess.Popen([sys.executable, script, tmp_path], preexec_fn=heed_interruptions, **pipes) as run:
        workers = [int(pid) for pid in run.stdout.readline().split()]
        run.send_signal(sent)
        try:
            run.wait(timeout=PATIENCE)
        finally:
            run.kill()
    assert run.returncode != 0
    assert len(workers) == 2
    deadline = time.monotonic() + PATIENCE
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in workers if is_running(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def test_the_time_that_is_left_is_that_of_the_pieces_that_are_left():
    """A machine at half the expected speed, with two workers; the small pieces come first."""
    jobs = [job for experiment in EXPERIMENTS.values() for job in experiment.jobs(FULL)]
    total = sum(job.cost for job in jobs)
    for share in (0.05, 0.5, 0.9):
        finished = jobs[: int(share * len(jobs))]
        cost = sum(job.cost for job in finished)
        left = _seconds_left(cost, cost, total - cost, workers=2)
        assert (total - cost) / 2 <= left <= total - cost
    assert max(job.cost for job in jobs) > 1000 * min(job.cost for job in jobs)


def test_remarks_stand_above_the_bar_and_never_on_it(monkeypatch):
    terminal._stderr.cache_clear()
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.live_line("Working", 2) as show:
        show(1, "half")
        terminal.note("a remark")
    terminal._stderr.cache_clear()
    # The line is erased (2K) before the remark is written, which ends with a line of its own.
    before, after = re.sub(r"\x1b\[\d*m", "", screen.getvalue()).split("a remark")
    assert before.endswith("\r\x1b[2K")
    assert after.startswith("\n")


# --- the paper's numbers


def test_the_papers_numbers_are_printed_once_and_for_known_methods():
    keys = [(number.experiment, number.setting, number.method) for number in PAPER]
    assert len(set(keys)) == len(keys)
    assert all(number.method in METHODS and number.place for number in PAPER)


def test_intervals_are_students():
    values = [3.1, 2.7, 3.9, 3.3, 2.2]
    mean, half = interval(values)
    # t of four degrees of freedom at 97.5 % is 2.776 (any table of Student's distribution).
    assert mean == pytest.approx(statistics.mean(values))
    assert half == pytest.approx(2.776445 * statistics.stdev(values) / math.sqrt(5), rel=1e-6)
    assert math.isnan(interval([1.0])[1])


def test_a_number_within_its_tolerance_agrees_and_one_beyond_differs():
    paper = PaperNumber("mse", "d = 100", "vqsgd", 100.0, "a figure")
    assert [judge(value, paper, relative=0.1) for value in (90.0, 110.0, 89.9, 110.1)] == [
        "agrees",
        "agrees",
        "differs",
        "differs",
    ]
    assert judge(101.9, paper, absolute=2.0) == "agrees"
    assert judge(102.1, paper, absolute=2.0) == "differs"
    assert judge(5.0, None) == ""


def test_a_number_that_only_a_variant_meets_is_counted_apart():
    paper = PaperNumber("bitwidth", "b = 8", "sstq-uniform", 271.6, "a figure")
    line = Line("b = 8", "sstq-uniform", "uniform", 1700.0, 0.0, 1, 1700.0, paper, "differs")
    assert paper_fates([line]) == {paper: "differs"}
    assert paper_fates([line, replace(line, verdict="agrees")]) == {paper: "agrees by a variant or one seed"}
    assert paper_fates([replace(line, verdict="agrees"), line]) == {paper: "agrees"}


# --- sections


def test_gaps_to_clean_are_taken_seed_by_seed():
    scale = replace(TINY, methods=("clean", "frameunit"), rounds=(("fashion-mnist", 100),))
    # The second seed is the one nearer to the paper's Clean, 65.4.
    finals = {"clean": [0.60, 0.70], "frameunit": [0.59, 0.68]}
    results = {
        job: {
            "accuracy": [0.1] * 100 + [finals[job.method][job.seed]],
            "train_loss": [None] + [1.0] * 100,
            "message_bits": 16,
        }
        for job in image_jobs("fashion-mnist", scale)
    }
    section = image_section("fashion-mnist", scale, results)
    clean, framed = (
        line for line in section.lines if line.setting.startswith("accuracy") and "seed" not in line.setting
    )
    assert clean.setting == "accuracy at a total ε of 300 (Clean: not private)"
    assert (clean.ours, clean.verdict) == (pytest.approx(65.0), "agrees")
    assert framed.compared == pytest.approx(65.4 - 1.5)
    assert "Gap to Clean 1.5" in framed.remark
    nearest = [line for line in section.lines if "seed 1: the nearest" in line.setting]
    assert [line.ours for line in nearest] == [pytest.approx(70.0), pytest.approx(68.0)]
    assert [line.verdict for line in nearest] == ["agrees", ""]


def test_regressions_are_compared_by_their_ratio_to_clean():
    scale = replace(TINY, regression_dims=(200,))
    losses = {"clean": 100.0, "sstq-optimized": 150.0, "sstq-uniform": 300.0}
    jobs = EXPERIMENTS["bitwidth"].jobs(scale)
    results = {job: {"loss": [200.0, 190.0, losses.get(job.method, 120.0)]} for job in jobs}
    section = bitwidth_section(scale, results)
    uniform = next(line for line in section.lines if line.method == "sstq-uniform")
    assert uniform.compared == pytest.approx(3 * 131.7)
    assert uniform.verdict == "differs"
    assert uniform.remark


def test_quick_accuracies_are_not_compared(tmp_path):
    jobs = image_jobs("digits", TINY)
    section = image_section("digits", TINY, results_of(jobs, tmp_path))
    assert "QUICK" in section.text
    assert "a total of\nε = 6 for every client" in section.text
    assert {row["epsilon"] for row in section.curves if row["method"] != "clean"} == {0.0, 3.0, 6.0}
    assert {row["epsilon"] for row in section.curves if row["method"] == "clean"} == {0.0, math.inf}
    assert not any(line.verdict in ("agrees", "differs") for line in section.lines)


# --- the page and the command


def write_tiny_report(folder: Path) -> str:
    names = ("mse", "regression")
    jobs = [job for name in names for job in EXPERIMENTS[name].jobs(TINY)]
    results = results_of(jobs, folder / "results")
    sections = [EXPERIMENTS[name].section(TINY, results) for name in names]
    return write_report(sections, folder, TINY, missing=["cifar-10 & why"]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_needs_nothing_else(tmp_path):
    page = write_tiny_report(tmp_path)
    assert page.count("data:image/png;base64,") == 2
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "http" not in page
    assert "<script" not in page
    assert "QUICK LOOK" in page
    assert "cifar-10 &amp; why" in page
    for method in ("PrivUnit (bare hemisphere)", "SSTQ flat, uniform", "FrameUnit"):
        assert method in page


def test_simulated_values_stand_beside_the_exact_ones(tmp_path):
    page = write_tiny_report(tmp_path)
    section = page[page.index('<h2 id="mse">') : page.index('<h2 id="regression">')]
    with (tmp_path / "mse" / "curves.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert section.count("<th>simulated</th>") == len(TINY.mse_dims)
    for row in rows:
        assert f'<td class="number">{_plain(float(row["sampled_mse"]))} <span class="faint">±' in section
    assert "<th>simulated</th>" not in page[page.index('<h2 id="regression">') :]


@pytest.mark.slow
def test_tables_and_pictures_are_beside_the_page(tmp_path):
    write_tiny_report(tmp_path)
    rows = (tmp_path / "mse" / "results.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("setting,method,label,ours,half_width,seeds,compared,paper")
    assert len(rows) == 1 + 2 * len(TINY.methods[1:])
    assert (tmp_path / "mse" / "mse.png").read_bytes().startswith(b"\x89PNG")
    curves = (tmp_path / "regression" / "curves.csv").read_text(encoding="utf-8").splitlines()
    assert curves[0] == "setting,method,scaling,round,loss,loss_half_width"


def run_command(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(reproduce)
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_command_goes_on_where_it_stood(tmp_path, monkeypatch):
    monkeypatch.setattr(paper.reproduction, "QUICK", TINY)
    arguments = ("mse", "--quick", "--workers", "1", "--seeds", "1", "--output", str(tmp_path))
    code, output = run_command(*arguments)
    assert code == 0
    assert output.strip().endswith("report.html")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")}
    assert len(times) == 2 * len(TINY.methods[1:])
    code, output = run_command(*arguments)
    assert code == 0
    assert f"{len(times)} of {len(times)} pieces were done before" in " ".join(output.split())
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_an_unknown_experiment_is_named_with_those_that_exist(tmp_path):
    with pytest.raises(ValueError, match=r"experiment must be 'all' or 'mse'.*got 'mnist'"):
        run_command("mnist", "--output", str(tmp_path))


@pytest.mark.parametrize("seeds", ["0", "-1"])
def test_seeds_must_be_positive(tmp_path, seeds):
    with pytest.raises(ValueError, match="--seeds must be an integer in"):
        run_command("mse", "--seeds", seeds, "--output", str(tmp_path))


def test_without_a_data_set_the_rest_is_run(tmp_path, monkeypatch):
    def unavailable(name, *_, **__):
        raise DatasetUnavailableError(name, ["nowhere"], "Get it.")

    monkeypatch.setattr("paper.datasets.load", unavailable)
    monkeypatch.setattr(paper.reproduction, "QUICK", TINY)
    monkeypatch.setattr(paper.reproduction, "EXPERIMENTS", {name: EXPERIMENTS[name] for name in ("mse", "cifar-10")})
    code, _ = run_command("all", "--quick", "--workers", "1", "--output", str(tmp_path))
    assert code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Left out: cifar-10" in page
    with pytest.raises(DatasetUnavailableError):
        run_command("cifar-10", "--quick", "--workers", "1", "--output", str(tmp_path))
