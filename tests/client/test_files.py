"""Files of every kind of mechanism by `sstq send` to a real collector, which gives the library's estimate."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app
from sstq.mechanisms import mechanism_class
from sstq.mechanisms.answers import answer
from sstq.randomness.secret import SecureBits

pytest.importorskip("fastapi")

from sstq.client import Client
from tests.contract.cases import CASES, RECORDS, build
from tests.people import written
from tests.service.serving import serving

PEOPLE = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("collector")) as running:
        yield running


@pytest.fixture
def repeated(monkeypatch):
    """The operating system's words are those of a public stream, which starts again when this is called."""

    def start():
        generator = np.random.default_rng(5)
        words = lambda _, count: generator.integers(  # noqa: E731
            0, 1 << 64, size=count, dtype=np.uint64
        )
        monkeypatch.setattr(SecureBits, "words", words)

    return start


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def send(server, name, *paths, code=0):
    token = server.sender(name)
    arguments = [
        "send",
        f"{server.url}/{name}",
        *map(str, paths),
        "--most-epsilon",
        "20",
    ]
    found = CliRunner().invoke(app, arguments, env={"SSTQ_SEND_TOKEN": token})
    assert found.exit_code == code, (found.output, found.stderr, found.exception)
    return found


# Those that the collector's process knows.
OURS = [
    name
    for name in sstq.list_mechanisms()
    if mechanism_class(name).__module__.startswith("sstq.")
]
FIRST = {
    name: next(case for case in (*CASES, *RECORDS) if case.split("/")[0] == name)
    for name in OURS
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*itertools.product(OURS, ["npy", "csv", "parquet"])],
    ids=lambda value: str(value),
)
def test_a_file_of_every_kind_of_mechanism(server, repeated, tmp_path, name, kind):
    mechanism = build(FIRST[name])
    held = mechanism.input.trial(np.random.default_rng(3), PEOPLE)
    campaign = f"{name}-{kind}"
    server.create(
        campaign, mechanism, senders="token", most_messages=PEOPLE * mechanism.messages
    )
    arguments = written(tmp_path, held, kind)
    if kind == "npy" and isinstance(held["X"], dict):
        send(server, campaign, *arguments, code=1)
        return
    repeated()
    assert (
        f"acknowledged\t{PEOPLE * mechanism.messages}"
        in send(server, campaign, *arguments).output
    )
    repeated()
    messages = answer(mechanism, **held)
    expected = mechanism.aggregator().update(messages).mean()
    found = server.estimate(campaign, len(messages))
    numbers = np.array(
        [np.nan if number is None else number for number in found["value"]]
    )
    np.testing.assert_allclose(numbers, expected.value, rtol=1e-12, atol=1e-300)


QUESTIONS = {
    "country": sstq.Choice(["AT", "CH", "DE"]),
    "age": sstq.Number(0, 110, bins=22),
    "hours": sstq.Number(0, 24, bins=24),
}


def test_columns_are_found_by_name_and_labels_are_text(server, tmp_path):
    """3,000 people of 40 from DE: 46 standard errors from what columns by position would give."""
    survey = sstq.Survey(
        6.0, {name: QUESTIONS[name] for name in ("country", "age", "hours")}
    )
    server.create("people", survey, senders="token", most_messages=3000)
    first = tmp_path / "first.csv"
    second = tmp_path / "second.parquet"
    first.write_text("hours;note;age;country\n" + "7;x;40;DE\n" * 1500)
    pq.write_table(
        pa.table({"country": ["DE"] * 1500, "hours": [7] * 1500, "age": [40.0] * 1500}),
        second,
    )
    assert "acknowledged\t3000" in send(server, "people", first, second).output
    questions = {
        each["name"]: each for each in server.estimate("people", 3000)["questions"]
    }
    shares = dict(
        zip(
            questions["country"]["items"], questions["country"]["estimate"], strict=True
        )
    )
    assert shares["DE"] > 0.9
    # All have an answer: half of them are in the CSV file.
    assert questions["country"]["answered"] > 0.9
    for name, low in (("age", 40), ("hours", 7)):
        median = next(
            each for each in questions[name]["quantiles"] if each["share"] == 0.5
        )
        assert low <= median["value"] <= low + (5 if name == "age" else 1)


def test_one_person_is_a_dict_as_in_javascript(server):
    survey = sstq.Survey(
        6.0, {"os": sstq.Choice(["mac", "win"]), "age": sstq.Number(0, 110)}
    )
    server.create("one", survey, senders="token", most_messages=10)
    client = Client(f"{server.url}/one", most_epsilon=6.0, token=server.sender("one"))
    assert client.send({"os": "mac", "age": 30}) == 1
    assert client.send({"os": "Mac"}) == 1
    assert client.send({"os": ["mac", "win", None], "age": [1, 2, 3]}) == 3


def test_a_category_out_of_range_is_sent(server, tmp_path):
    server.create("floor", sstq.Frequencies(4, 2.0), senders="token", most_messages=10)
    (tmp_path / "x.csv").write_text("0\n7\n\nx\n3.5\n")
    assert "acknowledged\t5" in send(server, "floor", tmp_path / "x.csv").output
