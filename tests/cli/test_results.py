"""What `sstq aggregate` writes and draws beside .npy, and errors that say what is wrong."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

import sstq

from .test_cli import run

BOUNDS = {"age": (0, 110), "bmi": (10, 60)}


def saved(folder, mechanism, held):
    """A mechanism's file and the folder of results of these people."""
    spec = folder / "m.json"
    messages = folder / "m.sstq"
    result = folder / "result"
    spec.write_text(mechanism.to_json())
    sstq.write_messages(messages, mechanism.encode(**held, rng=1))
    run("aggregate", messages, "-m", spec, "-o", result)
    return result


MECHANISMS = {
    "bounds": sstq.FrameUnit(2, 4.0, bounds=BOUNDS),
    "many": sstq.FrameUnit(50, 4.0),
    "shares": sstq.Frequencies(5, 4.0),
    "groups": sstq.GroupUnit(2, 4.0, groups=3),
    "survey": sstq.Survey(
        4.0, {"os": sstq.Choice(["mac", "win"]), "age": sstq.Number(0, 100)}
    ),
}
TABLES = {"groups": "groups.csv", "survey": "survey.csv"}


@pytest.mark.parametrize("name", MECHANISMS)
def test_results_are_tables_and_pictures(tmp_path, name):
    mechanism = MECHANISMS[name]
    result = saved(
        tmp_path, mechanism, mechanism.input.trial(np.random.default_rng(1), 2000)
    )
    with (result / TABLES.get(name, "mean.csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    if name not in TABLES:
        for number, column in (("mean", "value"), ("stderr", "stderr")):
            values = np.array([float(row[column]) for row in rows])
            np.testing.assert_array_equal(values, np.load(result / f"{number}.npy"))
        assert [row["label"] for row in rows] == (
            list(BOUNDS) if name == "bounds" else [""] * len(rows)
        )
        assert all(float(row["half_width"]) > float(row["stderr"]) for row in rows)
    pytest.importorskip("matplotlib")
    again = (
        "aggregate",
        tmp_path / "m.sstq",
        "-m",
        tmp_path / "m.json",
        "-o",
        result,
        "--plot",
    )
    run(*again, tmp_path / "result.png")
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    assert "--plot" in run(*again, tmp_path / "result.png", code=2).stderr
    run(*again, tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    assert (
        "must end in .png, .svg, .pdf"
        in run(*again, tmp_path / "picture.txt", code=2).stderr
    )


def test_a_survey_s_summary_has_the_estimates_and_no_cell_is_nan(tmp_path):
    mechanism = MECHANISMS["survey"]
    result = saved(
        tmp_path, mechanism, mechanism.input.trial(np.random.default_rng(1), 2000)
    )
    found = (
        mechanism.aggregator()
        .update(next(sstq.read_messages(tmp_path / "m.sstq", mechanism)))
        .mean()
    )
    told = json.loads((result / "summary.json").read_text())["questions"]
    assert [one["estimate"] for one in told["os"].values()] == found[
        "os"
    ].estimate.tolist()
    assert told["age"]["mean"]["estimate"] is None
    assert told["age"]["mean"]["low"] < told["age"]["mean"]["high"]
    text = (result / "survey.csv").read_text()
    assert "nan" not in text
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["status"] for row in rows[:2]] == ["ok", "ok"]
    assert {row["status"] for row in rows if row["item"] == "mean"} == {"interval only"}


@pytest.mark.parametrize(
    ("name", "content", "arguments", "words"),
    [
        (
            "x.csv",
            b"a,b\n1,2\n3\n",
            ("encode",),
            "x.csv: line 3 has 1 values, the first line has 2",
        ),
        (
            "x.csv",
            b"row,messages\n0,3\n1,-2\n",
            ("aggregate", "--counts"),
            "counts must be from 0 to 2^32, got -2",
        ),
        (
            "x.npy",
            np.array([{}], dtype=object),
            ("encode",),
            "holds Python objects (dtype object), not numbers",
        ),
        (
            "https://example.org/x.npy",
            None,
            ("encode",),
            "must be files on this machine, got https://example.org/x.npy;",
        ),
    ],
)
def test_errors_say_what_is_wrong(
    tmp_path, monkeypatch, name, content, arguments, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_text(sstq.FrameUnit(2, 2.0).to_json())
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        np.save(tmp_path / name, content)
    found = run(
        *arguments, name, "-m", "m.json", "-o", "out", code=2 if content is None else 1
    )
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


def test_the_name_of_a_file_is_no_mechanism():
    with pytest.raises(
        ValueError,
        match=r"text must be a mechanism's JSON, got 'mechanism.json'; to read a file pass",
    ):
        sstq.from_json("mechanism.json")


def test_the_client_names_its_extra():
    program = "import sys; sys.modules['cryptography'] = None; import sstq.client"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "sstq.client needs cryptography: pip install 'sstq[client]'" in done.stderr


def test_completion_can_be_installed():
    assert "--install-completion" in run("--help", env={"TERMINAL_WIDTH": "200"}).stdout
