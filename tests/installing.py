"""Install the wheel as a stranger does, without our pins, and try its commands."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]

VECTORS = "import numpy as np; np.save('trial.npy', np.random.default_rng(0).normal(size=(100, 8)))"
SERVICE = """
import os, subprocess
server = subprocess.Popen(["sstq", "serve", "--folder", "collector", "--port", "0"], stdout=subprocess.PIPE, text=True)
try:
    url, token = (server.stdout.readline().split()[-1] for _ in range(2))
    admin = ["--url", url, "--token", token]
    def sstq(*words):
        subprocess.run(["sstq", *words], check=True, stdout=subprocess.DEVNULL)
    sstq("campaign", "create", "trial", "--mechanism", "trial.json", *admin)
    quota = ["sstq", "campaign", "tokens", "trial", "--people", "100", *admin]
    os.environ["SSTQ_SEND_TOKEN"] = subprocess.run(quota, check=True, capture_output=True, text=True).stdout.strip()
    sstq("send", url + "/trial", "trial.npy", "--most-epsilon", "3")
    sstq("campaign", "close", "trial", *admin)
    sstq("campaign", "export", "trial", "--output", "trial.npz", *admin)
finally:
    server.terminate()
    server.wait()
"""


class CommandError(Exception):
    """A command ended otherwise than it should."""


def build_wheel(folder):
    (wheel,) = WheelBuilder(str(ROOT)).build(
        directory=str(folder), versions=["standard"]
    )
    return Path(wheel)


class Environment:
    """A new virtual environment with a wheel, as pip resolves it, or uv ("highest" or "lowest-direct" versions)."""

    def __init__(self, folder, wheel, *, extras=(), resolution=None):
        self.folder = Path(folder)
        venv.create(self.folder / "environment")
        # The pip or uv of this environment, and modules that nobody imports are not compiled: that would take longest.
        place = ["--python", self.folder / "environment" / "bin" / "python"]
        if resolution is None:
            self.run(
                sys.executable,
                "-m",
                "pip",
                *place,
                "install",
                "--quiet",
                "--no-compile",
                str(wheel),
            )
            return
        # uv lowers only what it is asked for by name: the requirements first, then the wheel.
        uv = [sys.executable, "-m", "uv", "pip", "install", *place]
        wanted = [word for extra in extras for word in ("--extra", extra)]
        self.run(
            *uv,
            "--resolution",
            resolution,
            "--requirements",
            ROOT / "pyproject.toml",
            *wanted,
        )
        self.run(*uv, "--no-deps", str(wheel))

    def run(self, *command, code=0):
        """Run a command in the folder; CommandError unless it ends with this code and without a traceback."""
        programs = self.folder / "environment" / "bin"
        cleared = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "SSTQ_"))
        }
        done = subprocess.run(
            [
                programs / command[0]
                if (programs / command[0]).exists()
                else command[0],
                *command[1:],
            ],
            cwd=self.folder,
            env=cleared
            | {
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "SSTQ_QUIET": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != code or "Traceback" in done.stderr:
            raise CommandError(
                f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done


def try_commands(environment, *, service=False):
    """The help, mistakes of the user, and a whole collection from vectors to a mean."""
    assert "aggregate" in environment.run("sstq", "--help").stdout
    wrong = environment.run(
        "sstq",
        "spec",
        "--dim",
        "8",
        "--epsilon",
        "700",
        "--output",
        "wrong.json",
        code=2,
    )
    assert (
        wrong.stderr
        == "error: --epsilon must be a number in [0.01, 20], got 700.0: above 20 a message hides next to nothing\n"
    )
    unknown = environment.run("sstq", "encode", "--unknown", code=2)
    assert re.search(r"No such option:? '?--unknown", unknown.stderr)
    environment.run("python", "-c", VECTORS)
    environment.run(
        "sstq",
        "spec",
        "--dim",
        "8",
        "--epsilon",
        "3",
        "--clients",
        "100",
        "--output",
        "trial.json",
    )
    environment.run(
        "sstq",
        "encode",
        "trial.npy",
        "--mechanism",
        "trial.json",
        "--output",
        "trial.sstq",
    )
    environment.run(
        "sstq",
        "aggregate",
        "trial.sstq",
        "--mechanism",
        "trial.json",
        "--output",
        "trial-result",
    )
    environment.run(
        "python",
        "-c",
        "import numpy as np; assert np.load('trial-result/mean.npy').shape == (8,)",
    )
    if service:
        environment.run("python", "-c", SERVICE)
