"""Studies behind a shuffler: a stage is a crowd, and neither side repeats, swaps or reopens one."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Client
from sstq.client.campaigns import Campaign, read_document
from sstq.service.shuffler import Shuffler
from sstq.studies import Panel, Words
from tests.patience import until
from tests.service.serving import serving
from tests.service.studying import begin, next_stage, values_of, words
from tests.service.test_shuffler import tokens_of


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A collector and its shuffler."""
    folders = [tmp_path_factory.mktemp(name) for name in ("collector", "shuffler")]
    quick = {"messages_per_second": 0, "reads_per_second": 0}
    with (
        serving(folders[0], **quick) as collector,
        serving(
            folders[1],
            command="shuffler",
            collector=collector.url,
            closing_seconds=0,
            fetch_seconds=0.2,
            **quick,
        ) as shuffler,
    ):
        collector.key = collector.http.get("/v1/key").json()["key"]
        shuffler.keys = shuffler.http.get("/v1/key").json()
        yield collector, shuffler


def start(both, name, study, people, delta=1e-6, below="drop", **terms):
    collector, shuffler = both
    shuffling = {
        "url": shuffler.url,
        "threshold": 20,
        "delta": delta,
        "below_threshold": below,
        **shuffler.keys,
    }
    answer = begin(
        collector,
        name,
        study,
        people,
        senders="single-use",
        shuffling=shuffling,
        **terms,
    )
    assert answer.status_code == 201, answer.text
    until(lambda: shuffler.http.get(f"/v1/campaigns/{name}").status_code == 200)


def person(both, name, folder, token):
    collector, shuffler = both
    pins = {"pinned_key": collector.key, "pinned_shuffler": shuffler.keys["key"]}
    return Client(
        f"{shuffler.url}/{name}",
        most_epsilon=16.0,
        outbox=folder / f"{token}.outbox",
        token=token,
        **pins,
    )


class Seen:
    """Documents are the shuffler's, counts the collector's."""

    def __init__(self, both):
        collector, shuffler = both
        self.http = shuffler.http
        self.status = collector.status


def test_a_stage_is_a_crowd_and_the_study_ends_by_itself(both, tmp_path):
    collector, shuffler = both
    study = Words(epsilon=6.0, longest=5, trust="shuffler", delta=1e-4)
    start(both, "drinks", study, 60, delta=1e-4)
    tokens = tokens_of(both, "drinks", 70)
    values = values_of(study, 70, np.random.default_rng(1))
    for number in (1, 2):
        campaign = next_stage(Seen(both), "drinks", number)
        for _ in range(campaign.stage.people):
            assert (
                person(both, "drinks", tmp_path, tokens.pop()).take_part(values.pop())
                is None
            )
        # Nobody joins a crowd that is whole; nothing was sent.
        assert person(both, "drinks", tmp_path, tokens[0]).take_part("tea") is not None
    ended = until(
        lambda: (found := collector.status("drinks"))["status"] == "closed" and found
    )["study"]
    assert [stage["state"] for stage in ended["stages"]] == ["learned"] * 2
    for stage in ended["stages"]:
        (crowd,) = stage["shuffling"]["crowds"]
        assert crowd["people"] == stage["people"]
        assert crowd["epsilon"] <= 6.0
        assert crowd["delta"] == 1e-4
        assert stage["shuffling"]["local_epsilon"] > crowd["epsilon"]
    assert shuffler.status("drinks")["tokens_unspent"] == len(tokens)
    # Nothing more to do, once the shuffler has heard of it.
    until(lambda: person(both, "drinks", tmp_path, tokens[0]).take_part("tea") is None)
    # The stages' secret keys are gone with them.
    assert collector.administer("DELETE", "/v1/campaigns/drinks").status_code == 204


def test_periods_of_a_panel_end_by_their_time(both, tmp_path):
    collector, _ = both
    # Where 24 people take longer than a period of 11 seconds, it is repeated with a longer one.
    for name, hours in (("weeks", 0.003), ("months", 0.02), ("years", 0.1)):
        panel = Panel(sstq.Frequencies(4, 2.0), periods=2)
        start(both, name, panel, 60, hours=hours, below="local")
        tokens = tokens_of(both, name, 24)
        came = [person(both, name, tmp_path, token).take_part(1) for token in tokens]
        if collector.status(name)["study"]["stages"][-1]["number"] == 1:
            break
    now = came.count(None)
    assert 0 < now < 24  # all of one period in one of eight million runs
    second = next_stage(Seen(both), name, 2)
    assert second.opens == min(again for again in came if again is not None)
    assert collector.status(name)["study"]["stages"][0]["received"] == now


def test_stages_that_no_crowd_fits_are_refused(both):
    collector, shuffler = both
    shuffling = {"url": shuffler.url, "threshold": 100, **shuffler.keys}
    answer = begin(
        collector, "small", words(), 120, senders="single-use", shuffling=shuffling
    )
    assert (answer.status_code, "the shuffler forwards 100 or more" in answer.text) == (
        422,
        True,
    )
    answer = begin(
        collector,
        "small",
        words(),
        1200,
        senders="single-use",
        shuffling=shuffling,
        hours=1,
    )
    assert (answer.status_code, "too_few must be 'end' with hours" in answer.text) == (
        422,
        True,
    )


def test_the_shuffler_follows_a_study_and_refuses_what_is_not_next(both):
    """Earlier stages, other studies, other terms, and a stage by itself."""
    shuffler = both[1]
    start(both, "next", words(), 60)
    raw = shuffler.http.get("/v1/campaigns/next").content
    first = read_document(raw)
    assert shuffler.http.get("/v1/campaigns/next--2").status_code == 404
    rules = Shuffler.__new__(Shuffler)
    rules.clock = type(
        "Now", (), {"doubtful": False, "now": lambda _: first.campaign.opens}
    )()
    rules.settings = type("Settings", (), {"closing_seconds": 0})()
    rooms = {}
    rules.store = type("Rooms", (), {"rooms": lambda _, names: rooms})()

    def stored(document, is_stage=False):
        held = {
            "campaign": document.campaign,
            "name": document.campaign.name,
            "sealing_keys": document.sealing_keys,
            "is_stage": is_stage,
        }
        return type("Stored", (), held)()

    known = stored(first)
    rules.entries = {first.campaign.name: stored(first, is_stage=True)}
    assert not rules.forbidden_change(known, first)
    terms = first.campaign.to_dict()

    def changed(number=2, **fields):
        stage = terms["stage"] | {"number": number} | fields.pop("stage", {})
        campaign = Campaign.from_dict(
            terms | {"name": f"next--{number}", "stage": stage} | fields
        )
        return first._replace(campaign=campaign)

    assert "before the stage had ended" in rules.forbidden_change(known, changed())
    rooms[first.campaign.name] = 0
    assert not rules.forbidden_change(known, changed())
    assert "earlier stage" in rules.forbidden_change(stored(changed(3)), changed(2))
    question = terms["stage"]["question"] | {"study": "0" * 32}
    assert "identifier" in rules.forbidden_change(
        known, changed(stage={"question": question})
    )
    assert "senders" in rules.forbidden_change(known, changed(senders="everybody"))
    smaller = terms["shuffling"] | {"threshold": 2}
    assert "shuffling" in rules.forbidden_change(known, changed(shuffling=smaller))
    # The same stage for fewer people, or with another question.
    assert "stage" in rules.forbidden_change(known, changed(1, stage={"people": 21}))
    # The same stage with another end.
    later = changed(1, closes="2100-01-01T00:00:01Z")
    assert "closes" in rules.forbidden_change(known, later)
    # A stage without hours ends with its people, and with nothing sooner.
    assert "closes" in rules.forbidden_change(
        known, changed(closes="2099-01-01T00:00:00Z")
    )


@pytest.mark.parametrize(
    ("left", "refused"), [(6.0, False), (5.9, True), (0.0, True), (-1.0, True)]
)
def test_a_quarter_of_a_stage_is_left_when_the_shuffler_follows(left, refused):
    """Its collector would choose who is in the crowd."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    closes = now + timedelta(hours=left)
    staged = SimpleNamespace(hours=24.0)
    rules = Shuffler.__new__(Shuffler)
    rules.clock = SimpleNamespace(now=lambda: now)
    stage = SimpleNamespace(staged=staged, closes=closes)
    assert rules.is_almost_over(stage) is refused
