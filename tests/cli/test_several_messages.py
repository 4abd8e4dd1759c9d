"""Several messages per person on the command line: what is written, what it says, and what it costs."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app

MECHANISM = sstq.FrameUnit(8, 4.0, frames=64, messages=3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_text(MECHANISM.to_json())
    x = np.random.default_rng(1).standard_normal((200, 8)) / 8
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", x[:50])
    return tmp_path


def run(command):
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("folder")
def test_messages_are_encoded_and_aggregated():
    shown = run("encode a.npy b.npy --mechanism m.json --output all.sstq --seed 1")
    for fact in ("messages\t750", "messages per person\t3", "epsilon per person without a shuffler\t12 (3 x 4)"):
        assert fact in shown
    run("aggregate all.sstq --mechanism m.json --output result")
    summary = json.loads(Path("result/summary.json").read_text())
    assert summary["count"] == 750
    np.testing.assert_allclose(
        np.load("result/mean.npy"), _mean(MECHANISM.encode(np.concatenate([np.load("a.npy"), np.load("b.npy")]), rng=1))
    )


def _mean(messages):
    aggregator = MECHANISM.aggregator()
    aggregator.update(messages)
    return aggregator.mean().value


@pytest.mark.usefixtures("folder")
def test_a_warning_about_frames_names_the_messages(tmp_path):
    poor = MECHANISM.replace(frames=1)
    (tmp_path / "poor.json").write_text(poor.to_json())
    run("encode a.npy --mechanism poor.json --output poor.sstq --seed 1")
    shown = run("aggregate poor.sstq --mechanism poor.json --output result")
    assert "--clients 200 --set messages=3 --output next.json" in " ".join(shown.split())
