"""The package of examples/own-mechanism, built and installed, is known to every command and to the collector."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "own-mechanism"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment's variables with the package in it, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(
        EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__")
    )
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--no-compile",
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        folder / "site",
        folder / "source",
    ]
    subprocess.run(command, check=True)
    return os.environ | {"PYTHONPATH": str(folder / "site"), "SSTQ_QUIET": "1"}


def run(installed, folder, *arguments, code=0):
    command = [sys.executable, "-m", "sstq", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=installed, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def test_commands_know_both_mechanisms(installed, tmp_path):
    """Shares are within six standard errors: false failures below 1e-8."""
    run(
        installed,
        tmp_path,
        "spec",
        "--name",
        "coordinate-sign",
        "--dim",
        4,
        "--epsilon",
        2,
        "-o",
        "sign.json",
    )
    assert "coordinate-sign" in run(installed, tmp_path, "inspect", "sign.json")
    assert "encoder follows the integers\tyes" in run(
        installed, tmp_path, "audit", "exact", "sign.json"
    )
    options = ("--set", "categories=3", "--epsilon", 3)
    run(
        installed,
        tmp_path,
        "spec",
        "--name",
        "hadamard-response",
        *options,
        "-o",
        "shares.json",
    )
    assert (
        json.loads((tmp_path / "shares.json").read_text())["mechanism"]
        == "hadamard-response"
    )
    np.save(tmp_path / "labels.npy", np.arange(9000) % 3)
    run(
        installed,
        tmp_path,
        "encode",
        "labels.npy",
        "-m",
        "shares.json",
        "-o",
        "messages.sstq",
    )
    run(
        installed,
        tmp_path,
        "aggregate",
        "messages.sstq",
        "-m",
        "shares.json",
        "-o",
        "result",
    )
    mean, stderr = (
        np.load(tmp_path / "result" / f"{name}.npy") for name in ("mean", "stderr")
    )
    assert np.all(np.abs(mean - 1 / 3) < 6 * stderr)


def test_plans_consider_installed_mechanisms(installed, tmp_path):
    """Those of vectors whose bits are enough, with the error that they state."""
    program = """
from sstq.planning.candidates import _of_packages
found = _of_packages(3, 2.0, 1000, 8)
assert [one.name for one in found] == ["coordinate-sign"], found
assert found[0].error.variance == found[0].build().typical_error().variance / 1000
assert not _of_packages(3, 2.0, 1000, 2)
"""
    subprocess.run([sys.executable, "-c", program], env=installed, check=True)
    assert (
        "frameunit"
        in run(
            installed,
            tmp_path,
            "plan",
            "--dim",
            300,
            "--clients",
            10000,
            "--epsilon",
            3,
        ).lower()
    )


def test_a_collector_takes_its_messages(installed, tmp_path):
    run(
        installed,
        tmp_path,
        "spec",
        "--name",
        "coordinate-sign",
        "--dim",
        4,
        "--epsilon",
        2,
        "-o",
        "sign.json",
    )
    command = [
        sys.executable,
        "-m",
        "sstq",
        "serve",
        "--folder",
        "collector",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, env=installed, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            lines = [server.stdout.readline() for _ in range(2)]
            url = re.search(r"http://\S+", lines[0])[0].rstrip("/")
            token = lines[1].split()[-1]
            admin = ("--url", url, "--token", token)
            run(
                installed,
                tmp_path,
                "campaign",
                "create",
                "signs",
                "--mechanism",
                "sign.json",
                *admin,
            )
            quota = run(
                installed,
                tmp_path,
                "campaign",
                "tokens",
                "signs",
                "--people",
                "100",
                *admin,
            ).strip()
            np.save(tmp_path / "vectors.npy", np.full((50, 4), 0.25))
            environment = installed | {"SSTQ_SEND_TOKEN": quota}
            run(
                environment,
                tmp_path,
                "send",
                f"{url}/signs",
                "vectors.npy",
                "--most-epsilon",
                2,
            )
            run(installed, tmp_path, "campaign", "close", "signs", *admin)
            run(
                installed,
                tmp_path,
                "campaign",
                "export",
                "signs",
                "--output",
                "state.npz",
                *admin,
            )
        finally:
            server.terminate()
    assert "50" in run(installed, tmp_path, "inspect", "state.npz", "-m", "sign.json")
