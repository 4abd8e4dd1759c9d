"""Studies on a collector from the shell: created, answered, shown, exported; and the same result through SQL."""

import json

import numpy as np
import pytest

pytest.importorskip("fastapi")

import duckdb
from typer.testing import CliRunner

import sstq
from sstq.cli import app
from sstq.studies import Study
from tests.patience import until
from tests.service.serving import ADMINISTRATOR
from tests.service.studying import DRINKS, begin, next_stage, panel, whole, words

pytestmark = pytest.mark.slow


@pytest.fixture
def run(server, tmp_path):
    """Runs a command; returns what it printed, notes and errors included."""
    environment = {
        "SSTQ_URL": server.url,
        "SSTQ_ADMINISTRATOR_TOKEN": ADMINISTRATOR,
        "XDG_STATE_HOME": str(tmp_path),
    }

    def command(*arguments, code=0):
        found = CliRunner().invoke(
            app, [str(part) for part in arguments], env=environment
        )
        assert found.exit_code == code, (found.output, found.exception)
        return found.output

    return command


def file_of(folder, study):
    path = folder / "study.json"
    path.write_text(study.to_json())
    return path


def test_from_a_file_to_the_result_and_the_same_through_group_by(run, server, tmp_path):
    study = words()
    state = file_of(tmp_path, study)
    created = run("campaign", "create", "shell", "--study", state, "--people", 400)
    assert "first stage\tletters 1 to 3\n" in created
    assert "the share of a string" in created  # what to expect
    shown = run("campaign", "show", "shell")
    people = json.loads(server.http.get("/v1/campaigns/shell").content)["stage"]
    assert f"1\tletters 1 to 3\t{people['people']}\t0\topen" in shown
    assert "There is no result yet" in shown
    assert "May follow: letters 1 to 5" in shown
    sent = whole(server, "shell", study)
    shown = run("campaign", "show", "shell")
    assert "state\tended\n" in shown
    assert f"received\t{sum(map(len, sent))}\n" in shown
    assert "word\tshare\tstderr\tlow\thigh\ntea\t0." in shown
    # The counts of all stages, as an engine groups them, teach the same study the same.
    parquet = tmp_path / "counts.parquet"
    counted = tmp_path / "counted.parquet"
    run("campaign", "export", "shell", "--output", parquet)
    duckdb.sql(
        f"COPY (SELECT stage, code, sum(messages) AS messages FROM '{parquet}' "  # noqa: S608
        f"GROUP BY stage, code ORDER BY random()) TO '{counted}'"
    )
    for messages in sent:
        run("study", "question", state, "--people", len(messages),
            "--output", tmp_path / "question.json", "--force")  # fmt: skip
        told = run("study", "learn", state, counted, "--counts")
        assert f"learned from {len(messages)} people" in told
    learned = Study.from_json(state.read_text()).learned
    other = Study.from_json(study.to_json())
    for messages in sent:
        other.question(len(messages))
        other.learn(messages)
    assert learned == other.learned
    exported = tmp_path / "result.json"
    run("campaign", "export", "shell", "--output", exported)
    found = json.loads(exported.read_text())["result"]
    assert found["word"] == [str(word) for word in other.result.columns()["word"]]
    np.testing.assert_array_equal(found["share"], other.result.columns()["share"])


def test_a_table_is_learned_from_once_and_by_its_stage(run, tmp_path):
    study = words()
    state = file_of(tmp_path, study)
    table = tmp_path / "counts.csv"
    question = tmp_path / "question.json"
    run("study", "question", state, "--people", 10, "--output", question)
    table.write_text("stage,code,messages\n2,6,100\n")
    nobody = run("study", "learn", state, table, "--counts", code=1)
    assert "at least one person" in nobody
    table.write_text("stage,code,messages\n1,5,7\n2,6,100\n")
    twice = run("study", "learn", state, table, table, "--counts", code=1)
    assert "counted already" in twice
    assert "learned from 7 people" in run("study", "learn", state, table, "--counts")


def test_people_in_files_answer_the_stage_that_is_open(run, server, tmp_path):
    state = file_of(tmp_path, words())
    run("campaign", "create", "files", "--study", state, "--people", 300)
    token = run("campaign", "tokens", "files", "--people", 300).split()[-1]
    stage = json.loads(server.http.get("/v1/campaigns/files").content)["stage"]
    many = tmp_path / "many.csv"
    few = tmp_path / "few.csv"
    rows = np.resize(DRINKS, stage["people"] + 5).tolist()
    many.write_text("\n".join(["drink", *rows]) + "\n")
    few.write_text("\n".join(["drink", *rows[:-5]]) + "\n")
    sending = ("send", f"{server.url}/files", "--most-epsilon", 6, "--token", token)
    told = run(*sending, many, "--columns", "drink", code=1)
    assert f"there is room for {stage['people']} more people" in told
    assert f"Send at most {stage['people']} people to this stage" in told
    told = run(*sending, few, "--columns", "drinks", code=2)
    assert "--columns must be one of drink, got 'drinks'" in told
    run(*sending, few, "--columns", "drink")
    assert next_stage(server, "files", 2) is not None
    # The same people are not sent to the next stage.
    assert "sent to this campaign before" in run(
        *sending, few, "--columns", "drink", code=2
    )
    result = server.administer("GET", "/v1/campaigns/files/estimate").json()["result"]
    assert {"tea", "water"} & set(result["word"]) or result["prefixes"]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ((), 2, "pass --mechanism FILE, or --study FILE"),
        (("--study", "STATE"), 2, "pass --people N"),
        (("--people", 5), 2, "pass --mechanism FILE, or --study FILE"),
        (("--mechanism", "STATE", "--people", 5), 2, "are for a study"),
        (("--mechanism", "STATE"), 1, "it is the state of a study"),
        (("--study", "OTHER", "--people", 5), 1, "must be the file of a study"),
        (
            ("--study", "STATE", "--people", 500, "--closes", "2100-01-01T00:00:00Z"),
            2,
            "a stage of a study lasts --hours",
        ),
        (("--study", "STATE", "--people", 500, "--hours", 0), 1, "hours must be"),
        (("--study", "STATE", "--people", 500, "--terms", "TERMS"), 1, "too_few must"),
    ],
)
def test_mistakes_are_sentences(run, server, tmp_path, options, code, sentence):
    (tmp_path / "OTHER").write_text('{"format": "sstq-mechanism"}')
    (tmp_path / "TERMS").write_text('{"too_few": "later"}')
    file_of(tmp_path, words()).rename(tmp_path / "STATE")
    given = [tmp_path / part if str(part).isupper() else part for part in options]
    assert sentence in run("campaign", "create", "wrong", *given, code=code)
    assert server.http.get("/v1/campaigns/wrong").status_code == 404


def test_a_campaign_that_closed_without_a_message_says_so(run, tmp_path):
    spec = tmp_path / "m.json"
    spec.write_text(sstq.Frequencies(3, 2.0).to_json())
    creation = ("campaign", "create", "quiet", "--mechanism", spec)
    run(*creation, "--senders", "single-use")
    refused = run("campaign", "tokens", "quiet", "--people", 5, code=1)
    assert "make single-use tokens (count)" in refused
    assert "There is no estimate yet" in run("campaign", "show", "quiet")
    run("campaign", "close", "quiet")
    shown = run("campaign", "show", "quiet")
    assert "The campaign closed without a message." in shown
    assert "no estimate yet" not in shown


def test_a_period_in_which_nobody_answered_is_shown_as_such(run, server):
    assert begin(server, "still", panel(2), 10, hours=1e-4).status_code == 201
    until(lambda: server.status("still")["status"] == "closed")
    shown = run("campaign", "show", "still")
    assert "2\tweek 2\t5\t0\tnobody answered\n" in shown
    assert "learned" not in shown
    assert "The study ended before anything was known." in shown


def test_a_study_is_closed_changed_and_deleted(run, server, tmp_path):
    state = file_of(tmp_path, words())
    limits = tmp_path / "terms.json"
    limits.write_text('{"least": 0.2, "too_few": "end"}')
    run("campaign", "create", "brief", "--study", state, "--people", 300,
        "--hours", 1, "--terms", limits, "--readers", "public")  # fmt: skip
    terms = server.status("brief")["study"]
    assert (terms["hours"], terms["too_few"]) == (1.0, "end")
    run("campaign", "change", "brief", "--readers", "administrator")
    refused = run("campaign", "change", "brief", "--terms", limits, code=1)
    assert "the terms of a study never change" in refused
    assert "for which there is no draft" in run(
        "campaign", "export", "brief", "--registry", "--output", tmp_path / "b.yaml", code=1
    )  # fmt: skip
    run("campaign", "close", "brief")
    shown = run("campaign", "show", "brief")
    assert "note\tended by its administrator\n" in shown
    assert "\tdropped\n" in shown
    assert "The study ended before anything was known." in shown
    run("campaign", "delete", "brief", "--yes")
    until(lambda: server.http.get("/v1/campaigns/brief--1").status_code == 404)
