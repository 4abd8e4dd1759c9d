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


# Commands of one process: starting another one takes longer than most of them.
COMMANDS = """
import json, sys
from sstq.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print("\\f", end="", flush=True)
"""


def run(installed, folder, *commands):
    """What each of these commands prints; all must succeed."""
    words = json.dumps([command.split() for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, words],
        cwd=folder,
        env=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\f")[:-1]


def test_commands_know_both_mechanisms(installed, tmp_path):
    """Shares are within six standard errors: false failures below 1e-8."""
    np.save(tmp_path / "labels.npy", np.arange(9000) % 3)
    _, inspected, audited, *_ = run(
        installed,
        tmp_path,
        "spec --name coordinate-sign --dim 4 --epsilon 2 -o sign.json",
        "inspect sign.json",
        "audit exact sign.json",
        "spec --name hadamard-response --set categories=3 --epsilon 3 -o shares.json",
        "encode labels.npy -m shares.json -o messages.sstq",
        "aggregate messages.sstq -m shares.json -o result",
    )
    assert "coordinate-sign" in inspected
    assert "encoder follows the integers\tyes" in audited
    written = json.loads((tmp_path / "shares.json").read_text())
    assert written["mechanism"] == "hadamard-response"
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
    (planned,) = run(installed, tmp_path, "plan --dim 300 --clients 10000 --epsilon 3")
    assert "frameunit" in planned.lower()


def test_a_collector_takes_its_messages(installed, tmp_path):
    np.save(tmp_path / "vectors.npy", np.full((50, 4), 0.25))
    command = [sys.executable, "-m", "sstq", "serve"]
    command += ["--folder", "collector", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=installed, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            lines = [server.stdout.readline() for _ in range(2)]
            url = re.search(r"http://\S+", lines[0])[0].rstrip("/")
            admin = f"--url {url} --token {lines[1].split()[-1]}"
            *_, quota = run(
                installed,
                tmp_path,
                "spec --name coordinate-sign --dim 4 --epsilon 2 -o sign.json",
                f"campaign create signs --mechanism sign.json {admin}",
                f"campaign tokens signs --people 100 {admin}",
            )
            *_, inspected = run(
                installed | {"SSTQ_SEND_TOKEN": quota.strip()},
                tmp_path,
                f"send {url}/signs vectors.npy --most-epsilon 2",
                f"campaign close signs {admin}",
                f"campaign export signs --output state.npz {admin}",
                "inspect state.npz -m sign.json",
            )
        finally:
            server.terminate()
    assert "50" in inspected
