"""The paper's experiments again, on tiny sizes: jobs, resuming, and what is compared."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from paper.reproduction.experiments import EXPERIMENTS
from paper.reproduction.images import image_jobs, image_section
from paper.reproduction.jobs import Job, nonprivate_norm_scaled_mean, run_job
from paper.reproduction.lines import judge
from paper.reproduction.methods import FULL, METHODS, QUICK, Scale
from paper.reproduction.printed import paper_number
from paper.reproduction.regression import bitwidth_section
from paper.reproduction.runner import read_result, run_jobs

TINY = Scale(
    quick=True,
    seeds=2,
    methods=("clean", "privunit", "sstq-uniform", "frameunit"),
    mse_dims=(20, 40),
    trials=10,
    regression_dims=(20,),
    bit_widths=(4,),
    rounds=(("regression", 2), ("digits", 2), ("fashion-mnist", 2), ("cifar-10", 2)),
)
SMALL_JOB = Job("mse", "privunit", seed=0, bits=8, count=10, dim=20)


def results_of(jobs, folder):
    run_jobs(jobs, folder, workers=1)
    return {job: read_result(job, folder) for job in jobs}


# --- jobs


def test_a_job_is_a_function_of_its_description():
    job = Job("regression", "frameunit", seed=3, bits=4, count=3, dim=16)
    first = run_job(job)
    second = run_job(job)
    assert first.pop("seconds") > 0 < second.pop("seconds")
    assert first == second
    assert run_job(replace(job, seed=4))["loss"] != first["loss"]


def test_every_job_of_every_scale_has_its_own_file():
    for scale in (FULL, QUICK, TINY):
        jobs = {
            job for experiment in EXPERIMENTS.values() for job in experiment.jobs(scale)
        }
        assert len({job.path for job in jobs}) == len(jobs)


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
    assert result["variance"] == pytest.approx(
        math.pi / 2 * gain**2 * 10_000 * 0.04, rel=1e-3
    )


def test_the_recipe_has_the_errors_of_the_papers_figure():
    for method in ("sstq-uniform", "sqkr-3", "sstq-metric"):
        result = run_job(Job("mse", method, seed=0, bits=8, count=1, dim=100))
        paper = paper_number("mse", "d = 100", method)
        assert (
            judge(result["bias2"] + result["variance"], paper, relative=0.1) == "agrees"
        )


def test_noise_by_own_norm_shrinks_with_the_gradients():
    mechanism = METHODS["sstq-uniform"].build(dim=30, clip=1.0, bits=4)
    gradients = np.random.default_rng(0).standard_normal((20, 30))
    gradients /= 10 * np.linalg.norm(gradients, axis=1, keepdims=True)
    large, small = (
        nonprivate_norm_scaled_mean(mechanism, g, 1, np.random.default_rng(1))
        for g in (gradients, gradients / 100)
    )
    np.testing.assert_allclose(large, 100 * small, rtol=1e-5)


# --- running


def test_what_is_done_is_not_done_again(tmp_path):
    seen = []
    run_jobs(
        [SMALL_JOB, SMALL_JOB],
        tmp_path,
        workers=1,
        finished=lambda job, _: seen.append(job),
    )
    before = (tmp_path / SMALL_JOB.path).read_bytes()
    more = replace(SMALL_JOB, seed=1)
    run_jobs(
        [SMALL_JOB, more], tmp_path, workers=1, finished=lambda job, _: seen.append(job)
    )
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
        assert (tmp_path / "two" / job.path).read_bytes() == (
            tmp_path / "one" / job.path
        ).read_bytes()


# --- sections


def test_gaps_to_clean_are_taken_seed_by_seed():
    scale = replace(
        TINY, methods=("clean", "frameunit"), rounds=(("fashion-mnist", 100),)
    )
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
        line
        for line in section.lines
        if line.setting.startswith("accuracy") and "seed" not in line.setting
    )
    assert clean.setting == "accuracy at a total ε of 300 (Clean: not private)"
    assert (clean.ours, clean.verdict) == (pytest.approx(65.0), "agrees")
    assert framed.compared == pytest.approx(65.4 - 1.5)
    assert "Gap to Clean 1.5" in framed.remark
    alone = [line for line in section.lines if line.setting == "seed 0: accuracy"]
    assert [line.ours for line in alone] == [pytest.approx(60.0), pytest.approx(59.0)]
    assert [line.verdict for line in alone] == ["not compared", ""]


def test_regressions_are_compared_by_their_ratio_to_clean():
    scale = replace(TINY, regression_dims=(200,))
    losses = {"clean": 100.0, "sstq-optimized": 150.0, "sstq-uniform": 300.0}
    jobs = EXPERIMENTS["bitwidth"].jobs(scale)
    results = {
        job: {"loss": [200.0, 190.0, losses.get(job.method, 120.0)]} for job in jobs
    }
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
    assert {row["epsilon"] for row in section.curves if row["method"] != "clean"} == {
        0.0,
        3.0,
        6.0,
    }
    assert {row["epsilon"] for row in section.curves if row["method"] == "clean"} == {
        0.0,
        math.inf,
    }
    assert not any(line.verdict in ("agrees", "differs") for line in section.lines)
