"""The rules by which a study goes from stage to stage, one by one and without a server."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import Shuffling, Stage
from sstq.service import Settings, studies
from sstq.service import clock as clocks
from sstq.service.collector import ChangedMeanwhile, Collector
from sstq.service.results import latest
from sstq.service.store import Upload
from sstq.service.terms import OwnTerms, StudyTerms
from sstq.studies import Study, Words
from tests.service.serving import ADMINISTRATOR
from tests.service.studying import panel, words

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
SHUFFLING = {
    "url": "https://shuffle.example",
    "key": "11" * 32,
    "sealing_key": "22" * 32,
    "threshold": 20,
}


def head_of(people=20, hours=1.0, too_few="wait", closes=None, shuffling=None):
    """A stage of two messages per person, of whom half are enough."""
    stage = Stage("drinks", 1, "letters", {}, people, hours)
    campaign = SimpleNamespace(
        name="drinks--1",
        slots=2,
        staged=stage,
        opens=NOON,
        closes=closes,
        shuffling=shuffling,
    )
    terms = StudyTerms(
        "words", "0" * 32, 1.0, None, 100, hours=hours, too_few=too_few, least=0.5
    )
    return SimpleNamespace(campaign=campaign, study=terms)


def standing_of(head, messages, now, doubtful=False):
    clock = SimpleNamespace(now=lambda: now, doubtful=doubtful)
    store = SimpleNamespace(received=lambda _: messages)
    return studies.standing(SimpleNamespace(clock=clock, store=store), head)


@pytest.mark.parametrize(
    ("head", "messages", "now", "standing"),
    [
        (head_of(hours=None), 38, NOON + 1000 * HOUR, "open"),
        (head_of(hours=None), 40, NOON, "over"),
        (head_of(), 39, NOON + HOUR / 2, "open"),
        (head_of(), 40, NOON + HOUR / 2, "over"),
        (head_of(), 20, NOON + HOUR / 2, "open"),
        (head_of(), 20, NOON + HOUR, "over"),
        (head_of(), 19, NOON + HOUR, "waiting"),
        (head_of(too_few="end"), 19, NOON + HOUR, "short"),
        (head_of(people=None), 0, NOON + HOUR / 2, "open"),
        (head_of(people=None), 0, NOON + HOUR, "over"),
    ],
)
def test_a_stage_is_over_when_it_has_its_people_or_its_time_is_over(
    head, messages, now, standing
):
    assert standing_of(head, messages, now) == standing
    full = head.campaign.staged.people is not None and messages == 40
    # A clock that may be wrong ends nothing.
    doubted = standing_of(head, messages, now, doubtful=True)
    assert doubted == ("over" if full else "open")


@pytest.mark.parametrize(
    ("messages", "now", "opened", "standing"),
    [
        (40, NOON + HOUR, False, "open"),
        (40, NOON + 2 * HOUR - timedelta(seconds=1), False, "open"),
        (20, NOON + 2 * HOUR, False, "over"),
        (19, NOON + 2 * HOUR, False, "short"),
        (20, NOON, True, "over"),
        (19, NOON, True, "short"),
    ],
)
def test_a_shuffled_stage_is_over_when_its_crowd_is_there_or_an_hour_late(
    monkeypatch, messages, now, opened, standing
):
    monkeypatch.setattr(studies, "all_opened", lambda *_: opened)
    head = head_of(closes=NOON + HOUR, shuffling="terms")
    assert standing_of(head, messages, now) == standing
    doubted = standing_of(head, messages, now, doubtful=True)
    assert doubted == (standing if opened else "open")


def test_a_collector_that_starts_with_a_wrong_clock_ends_no_stage(
    tmp_path, monkeypatch
):
    """It is 400 days ahead after its machine was started again, and right some minutes later."""
    settings = Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR)
    now = time.time()
    first = Collector(settings)
    for name, study, too_few in (
        ("year", panel(), "end"),
        ("short", words(), "end"),
        ("long", words(), "wait"),
    ):
        begin(first, study, name, people=100, hours=1, too_few=too_few)
    first.purge()  # as in its first round: it remembers its clock
    first.store.close()
    monkeypatch.setattr(time, "time", lambda: now + 400 * 86400)
    monkeypatch.setattr(clocks, "machine", lambda: "started again")
    wrong = Collector(settings)
    for name in ("year", "short", "long"):
        studies.advance(wrong, wrong.entries[name], wrong.store.run)
    wrong.store.close()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    again = Collector(settings)
    for name in ("year", "short", "long"):
        studies.advance(again, again.entries[name], again.store.run)
        assert again.entries[name].campaign.stage.number == 1
        message = again.entries[name].campaign.question.encode_each([1]).to_bytes()
        sent = Upload(f"{name}--1", b"k" * 16, 1, message)
        assert again.store.receive([sent]) == [1]
    again.store.close()


@pytest.fixture
def collector(database_url):
    made = Collector(Settings(database_url, ADMINISTRATOR))
    yield made
    made.store.close()


def begin(collector, study=None, name="drinks", **terms):
    studies.create(collector, name, study or words(), terms, OwnTerms())
    return collector.entries[name]


def made_of(collector, head):
    """What `learn` would find in the answers of a stage, which nobody stored."""
    study = Study.from_json(collector.store.study_state(head.name))
    study.learn(study.asked.encode(["tea"] * 30, np.random.default_rng(1)))
    given = {"senders": "everybody", "readers": "administrator", "shuffling": None}
    following = studies.next_stage(head.name, given, head.study, study, NOON)
    return studies.Learned(study.to_json(), 30, b"{}", following)


def test_what_was_learned_is_stored_once_and_only_if_nobody_changed_the_study(
    collector,
):
    head = begin(collector, people=300)
    learned = made_of(collector, head)
    before = collector.store.study_state("drinks")
    assert studies.end(collector, head, "by hand")
    assert collector.entries["drinks--1"].stored.closed
    studies.advance(collector, head, run=lambda *_: learned)
    assert collector.store.study_state("drinks") == before
    assert "drinks--2" not in collector.entries
    # What was read before cannot end the study again, or change who reads it.
    assert not studies.end(collector, head, "again")
    with pytest.raises(ChangedMeanwhile):
        collector.save(replace(head.campaign, readers="public"), head.own, head)
    found = collector.entries["drinks"]
    assert (found.study.note, found.campaign.readers) == ("by hand", "administrator")


def test_a_stage_is_closed_then_folded_then_learned_from(collector, monkeypatch):
    head = begin(collector, people=300)
    people = head.campaign.staged.people
    assert collector.store.rooms(["drinks--1"]) == {"drinks--1": people}
    monkeypatch.setattr(studies, "standing", lambda *_: "over")
    # Whoever was asked before is on the way: nobody else is asked, and nothing is closed.
    studies.advance(collector, head, run=None, is_settled=lambda _: False)
    assert collector.store.rooms(["drinks--1"]) == {"drinks--1": 0}
    assert not collector.entries["drinks--1"].stored.closed
    studies.advance(collector, head, run=None, is_settled=lambda _: True)
    assert collector.entries["drinks--1"].stored.closed
    with monkeypatch.context() as patch:
        patch.setattr(collector.store, "waiting", lambda: {"drinks--1": 3})
        studies.advance(collector, head, run=None)
    learned = made_of(collector, head)
    studies.advance(collector, head, run=lambda *_: learned)
    assert collector.store.study_state("drinks") == learned.state
    assert latest(collector.store, "drinks") == learned.result
    found = collector.entries["drinks"].study
    assert [stage.learned for stage in found.stages] == [30, None]
    assert collector.entries["drinks--2"].campaign.staged.number == 2


def test_stages_that_follow_are_told_whole_while_a_next_one_is_stored(
    collector, monkeypatch
):
    head = begin(collector, people=300)
    counts = collector.store.counts()
    before = studies.status(collector, head, counts, 1)
    assert before.next == ["letters 1 to 5"]
    learned = made_of(collector, head)
    monkeypatch.setattr(studies, "standing", lambda *_: "over")
    studies.advance(collector, head, run=None)
    with monkeypatch.context() as patch:
        patch.setattr(collector, "refresh", lambda: None)
        studies.advance(collector, head, run=lambda *_: learned)
        assert collector.store.study_state("drinks") == learned.state
        assert studies.status(collector, head, counts, 1).next == before.next
    collector.refresh()
    now = studies.status(
        collector, collector.entries["drinks"], collector.store.counts(), 1
    )
    assert now.next == []


def test_a_stage_that_cannot_be_learned_from_ends_the_study(collector, monkeypatch):
    head = begin(collector, people=300)
    monkeypatch.setattr(studies, "standing", lambda *_: "over")
    studies.advance(collector, head, run=None)

    def broken(*_):
        raise ValueError("too few")

    studies.advance(collector, head, run=broken)
    found = collector.entries["drinks"]
    assert found.stored.closed
    assert found.study.failed
    assert found.study.note.endswith("could not be learned from: too few")


def test_a_shuffled_stage_has_the_epsilon_of_the_fewest_people(collector):
    study = Words(epsilon=6.0, longest=5, trust="shuffler", delta=1e-4)
    terms = {
        "people": 120,
        "senders": "single-use",
        "shuffling": SHUFFLING | {"delta": 1e-4},
    }
    head = begin(collector, study, **terms)
    people = head.study.stages[0].people
    fewest = -(-9 * people // 10)
    asked = Study.from_json(collector.store.study_state("drinks"))
    assert asked.people_asked == fewest < people
    mechanism = head.campaign.mechanism
    shuffled = sstq.accounting.shuffled_epsilon
    assert shuffled(mechanism, fewest, 1e-4) <= 6.0
    # A person fewer would be hidden too little.
    assert shuffled(mechanism, fewest - 1, 1e-4) > 6.0


@pytest.mark.parametrize(
    ("study", "terms", "wrong"),
    [
        (words, {"shuffling": SHUFFLING | {"threshold": 100}}, "forwards 100 or more"),
        (words, {"shuffling": SHUFFLING, "hours": 1.0}, "too_few must be"),
        (words, {"shuffling": SHUFFLING, "too_few": "end"}, "too_few must be"),
        (
            lambda: Words(2.0, trust="shuffler", delta=1e-4),
            {"shuffling": SHUFFLING},
            "must be given with delta = 0.0001",
        ),
        (panel, {}, "hours must be given"),
    ],
)
def test_terms_that_do_not_fit_the_study_are_refused(collector, study, terms, wrong):
    given = {"people": 120, "senders": "single-use", **terms}
    with pytest.raises(ValueError, match=wrong):
        begin(collector, study(), **given)
    assert "drinks" not in collector.entries


def test_a_study_runs_once_and_from_its_beginning(collector):
    state = words().to_json()
    begin(collector, Study.from_json(state), people=300)
    with pytest.raises(ValueError, match="another one than drinks has"):
        begin(collector, Study.from_json(state), name="again", people=300)
    study = words()
    study.question(10)
    with pytest.raises(ValueError, match="nobody was asked in"):
        begin(collector, study, name="again", people=300)
    study.learn(study.asked.encode(["tea"] * 10, np.random.default_rng(1)))
    with pytest.raises(ValueError, match="nobody was asked in"):
        begin(collector, study, name="again", people=300)


@pytest.mark.parametrize(
    ("closes", "now", "opens", "shuffling"),
    [
        (NOON, NOON, NOON, None),
        (NOON, NOON + HOUR / 2, NOON, None),
        (NOON, NOON + HOUR, NOON + HOUR, None),
        (None, NOON + HOUR / 2, NOON + HOUR / 2, None),
        (NOON, NOON + HOUR / 2 - SECOND, NOON, SHUFFLING),
        (NOON, NOON + HOUR / 2, NOON + HOUR / 2, SHUFFLING),
    ],
)
def test_periods_follow_without_a_gap_unless_a_whole_one_was_missed(
    closes, now, opens, shuffling
):
    """Behind a shuffler half of one."""
    study = panel()
    study.question(10)
    answers = study.asked.encode([1] * 10, np.random.default_rng(1))
    state = study.to_json()
    aggregator = study.asked.mechanism.aggregator().update(answers)
    store = SimpleNamespace(study_state=lambda _: state, state=lambda _: aggregator)
    terms = None if shuffling is None else Shuffling(**shuffling)
    head = head_of(people=None, closes=closes, shuffling=terms)
    campaign = head.campaign
    vars(campaign).update(slots=1, senders="everybody", readers="public")
    found = studies.learn(store, campaign, head.study, now)
    assert found.people == 10
    assert found.next[0].opens == opens
