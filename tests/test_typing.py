"""What a type checker says of users' code: results have the type of their mechanism."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import numpy as np
import sstq

grouped = sstq.GroupUnit(dim=4, epsilon=3.0, groups=2)
shares = grouped.aggregator().update(grouped.encode(np.zeros((10, 4)), groups=np.zeros(10, int))).mean().shares
survey = sstq.Survey(epsilon=2.0, questions={"os": sstq.Choice(["a", "b"])})
found = survey.aggregator().update(survey.encode({"os": ["a"]})).mean()["os"]
categories = sstq.Frequencies(categories=4, epsilon=1.0)
value = categories.aggregator().update(categories.encode([0, 1])).mean().value
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [("", ""), ("categories.aggregator().mean().shares\n", "has no attribute")],
)
def test_results_have_the_type_of_their_mechanism(tmp_path, more, said):
    file = tmp_path / "example.py"
    file.write_text(CODE + more)
    options = [
        "--strict",
        "--config-file",
        ROOT / "pyproject.toml",
        "--follow-imports",
        "silent",
    ]
    command = [sys.executable, "-m", "mypy", *options, file]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode == 0) == (not said), result.stdout
    assert said in result.stdout
