"""Studies: campaigns whose stages follow each other without anybody's hand.

A study has a row among the campaigns, with its terms, senders and tokens, its state in a table of its own, and a
campaign per stage. A stage is closed first, so that nothing more arrives; when all of its messages are folded, the
study learns from their sums; then one transaction stores what was learned and the next stage, if the study's row is
still the one that was read. So whenever a process is killed, no stage is repeated, skipped or changed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from sstq.accounting.ledger import price
from sstq.checks import ArgumentError, check_option
from sstq.client.campaigns import Campaign, Shuffling, Stage, stage_name, term_from_json
from sstq.service import database as tables
from sstq.service.batches import all_opened, shuffled_claim
from sstq.service.collector import (
    Collector,
    check_free,
    publishing,
    terms_text,
    with_reader,
)
from sstq.service.database import put
from sstq.service.models import StageStatus, StudyStatus
from sstq.service.node import RunningCampaign
from sstq.service.results import keep_estimate
from sstq.service.store import Counts, Store, changed, new_campaign
from sstq.service.study_results import described
from sstq.service.terms import STUDY_ASKED, OwnTerms, StageRecord, StudyTerms, taken
from sstq.studies import Study

Standing = Literal["open", "waiting", "over", "short"]
"""Of a stage: it takes messages; it does although its time is over; it has its people; it ends without them."""

# the end of stages that only end when they have their people
_FOREVER = datetime(2100, 1, 1, tzinfo=UTC)
# after the end of a shuffled stage until its crowd is not expected any more
_LATE = timedelta(hours=1)
_LEAST_SHUFFLED = 0.9
_SHOWN = ("kind", "identifier", "people", "hours", "too_few", "epsilon", "delta")
# what all stages of a study have in common
_SHARED = ("senders", "readers", "shuffling")


class Learned(NamedTuple):
    """What a study knows after a stage.

    Attributes:
        state: the study as JSON.
        people: how many people of the stage were learned from.
        result: what is known so far, as JSON.
        next: the campaign of the next stage and how many people it is for; None if there is none.
    """

    state: str
    people: int
    result: bytes
    next: tuple[Campaign, int] | None


# --- creation


def create(
    collector: Collector, name: str, study: Study, given: dict[str, Any], own: OwnTerms
) -> dict[str, str]:
    """Store a new study and its first stage; returns its shared tokens. ValueError if it cannot run on these terms.

    `given` has the terms of a study and those of its stages' campaigns, as JSON values.
    """
    check_free(name)
    asked = taken(given, STUDY_ASKED)
    for field in given:
        check_option("a term of a study", field, (*STUDY_ASKED, *_SHARED))
    given = {field: term_from_json(field, value) for field, value in given.items()}
    options = study.options
    terms = StudyTerms(
        kind=study.kind,
        identifier=study.identifier,
        epsilon=options["epsilon"],
        delta=options["delta"] if options.get("trust") == "shuffler" else None,
        **({"least": _LEAST_SHUFFLED} if "shuffling" in given else {}) | asked,
    )
    _check(collector, study, terms, given.get("shuffling"))
    opens = collector.clock.now().replace(microsecond=0)
    first, people = next_stage(name, given, terms, study, opens)
    terms = _followed(terms, first, people)
    own, tokens = with_reader(first.readers, own)
    publish = publishing(first, OwnTerms())

    def work(connection: sa.Connection) -> None:
        text = terms_text(first, own, terms)
        new_campaign(connection, name, first.mechanism, text, study=name)
        put(connection, tables.studies, {"campaign": name, "state": study.to_json()})
        publish(connection)

    collector.write(work)
    return tokens | collector.first_sender(name)


def _check(
    collector: Collector, study: Study, terms: StudyTerms, shuffling: Shuffling | None
) -> None:
    """ValueError unless a study can run on these terms."""
    state = json.loads(study.to_json())
    if state["learned"] or state["asked"] is not None:
        raise ArgumentError(
            "study",
            "must be one that nobody was asked in: write a new one with sstq study new",
        )
    for entry in collector.entries.values():
        if entry.is_study and entry.study.identifier == study.identifier:
            raise ArgumentError(
                "study",
                f"must be another one than {entry.name} has: write one with sstq study new",
            )
    if terms.delta is not None and (
        shuffling is None or shuffling.delta != terms.delta
    ):
        raise ArgumentError(
            "shuffling",
            f"must be given with delta = {terms.delta!r}: the study's ε is that behind it",
        )
    if study.may_be_empty and terms.hours is None:
        raise ArgumentError("hours", "must be given: how long a period lasts")
    if shuffling is None or study.may_be_empty:
        return
    if (terms.hours is None) != (terms.too_few == "wait"):
        allowed = "must be 'end' with hours, and 'wait' without them, if messages are shuffled"
        raise ArgumentError(
            "too_few",
            f"{allowed}: a shuffler opens no stage again, got {terms.too_few!r}",
        )
    least = min(study.cohort_sizes(terms.people).values())
    if least < shuffling.threshold:
        crowd = f"a stage has {least} of them, and the shuffler forwards {shuffling.threshold} or more"
        raise ArgumentError("people", f"must be more, got {terms.people}: {crowd}")


def next_stage(
    name: str, given: dict[str, Any], terms: StudyTerms, study: Study, opens: datetime
) -> tuple[Campaign, int]:
    """Ask the next cohort of a study with this name: returns the campaign of its stage, and how many people it is for.

    `given` has those terms of a campaign that all stages share.
    """
    cohort, share = next(iter(study.cohort_sizes(terms.people_left).items()))
    people = max(1, share)
    is_shuffled = given.get("shuffling") is not None
    # The ε behind a shuffler is that of the fewest people that are learned from.
    document = json.loads(
        study.question(terms.enough(people) if is_shuffled else people)
    )
    mechanism = study.asked.mechanism
    del document["mechanism"]
    document["study"] = study.identifier
    number = len(terms.stages) + 1
    limit = None if study.may_be_empty else people
    stage = Stage(name, number, cohort, document, limit, terms.hours)
    closes = None
    if terms.hours is not None and (study.may_be_empty or is_shuffled):
        closes = opens + _lasting(terms.hours)
    elif is_shuffled:
        closes = _FOREVER
    own = {
        "opens": opens,
        "closes": closes,
        "mechanism": mechanism,
        "most_messages": None,
        "stage": stage,
    }
    return Campaign(**given | own, name=stage.campaign), people


def _lasting(hours: float) -> timedelta:
    """So many hours, in whole seconds."""
    return timedelta(seconds=max(1, round(3600 * hours)))


def _followed(terms: StudyTerms, made: Campaign, people: int) -> StudyTerms:
    """The terms with one more stage."""
    return replace(terms, stages=(*terms.stages, StageRecord(made.staged.name, people)))


# --- progress


def people_of(store: Store, campaign: Campaign) -> int:
    """How many people have sent to a stage."""
    return store.received(campaign.name) // campaign.slots


def standing(collector: Collector, head: RunningCampaign) -> Standing:
    """Where the newest stage of a study is, which is not closed yet."""
    campaign = head.campaign
    terms = head.study
    stage = campaign.staged
    people = people_of(collector.store, campaign)
    enough = 0 if stage.people is None else terms.enough(stage.people)
    now = collector.clock.now()
    if campaign.shuffling is not None:
        if not all_opened(collector.store, campaign) and (
            now < _time(campaign.closes) + _LATE or collector.clock.doubtful
        ):
            return "open"
        return "over" if people >= enough else "short"
    if stage.people is not None and people >= stage.people:
        return "over"
    if (
        stage.hours is None
        or now < _time(campaign.opens) + _lasting(stage.hours)
        or collector.clock.doubtful
    ):
        return "open"
    if people >= enough:
        return "over"
    return "waiting" if terms.too_few == "wait" else "short"


def _time(given: datetime | None) -> datetime:
    return given or _FOREVER


def advance(
    collector: Collector,
    head: RunningCampaign,
    run: Callable[..., Any],
    is_settled: Callable[[str], bool] = lambda _: True,
) -> None:
    """Bring a study as far as it can go now; `run` as in `Store.fold`, `is_settled` says when a stage may be closed."""
    stage = collector.entries[head.campaign.name]
    terms = head.study
    if not stage.stored.closed:
        found = standing(collector, head)
        if found == "short":
            end(collector, head, f"too few people came to “{terms.stages[-1].name}”")
        elif found == "over":
            # Nobody is asked from now on; a stage with an end takes no answers after it anyway.
            ends = head.campaign.closes is not None or is_settled(head.campaign.name)
            collector.store.change(
                stage.stored, **{"closed": True} if ends else {"room": 0}
            )
            collector.refresh()
    elif head.campaign.name not in collector.store.waiting():
        try:
            made = run(learn, head.campaign, terms, collector.clock.now())
        except ValueError as error:
            end(
                collector,
                head,
                f"“{terms.stages[-1].name}” could not be learned from: {error}",
                failed=True,
            )
        else:
            _keep(collector, head, terms, made)


def learn(
    store: Store, campaign: Campaign, terms: StudyTerms, now: datetime
) -> Learned:
    """Learn from the stage of a campaign, which is closed and folded, and ask the next cohort. It stores nothing."""
    name = campaign.staged.study
    study = Study.from_json(store.study_state(name))
    aggregator = store.state(campaign.name)
    study.learn(aggregator)
    people = aggregator.count // campaign.slots
    result = json.dumps(described(study)).encode()
    following = None
    if study.cohorts_left:
        given = {field: getattr(campaign, field) for field in _SHARED}
        following = next_stage(name, given, terms, study, _opening(campaign, now))
    return Learned(study.to_json(), people, result, following)


def _opening(campaign: Campaign, now: datetime) -> datetime:
    """When the stage after this one opens: periods follow each other without a gap, unless a whole one was missed.

    Behind a shuffler, which follows only while a quarter of a period is left, that is half of one.
    """
    closes = campaign.closes or now
    share = 1.0 if campaign.shuffling is None else 0.5
    missed = closes + _lasting(share * (campaign.staged.hours or 0.0))
    return (closes if closes <= now < missed else now).replace(microsecond=0)


def _keep(
    collector: Collector, head: RunningCampaign, terms: StudyTerms, made: Learned
) -> None:
    """Store what was learned and the next stage, unless somebody has changed the study meanwhile."""
    last = terms.stages[-1]._replace(learned=made.people)
    terms = replace(terms, stages=(*terms.stages[:-1], last))
    values: dict[str, Any] = {"closed": made.next is None}
    if made.next is not None:
        terms = _followed(terms, *made.next)
        values["mechanism"] = made.next[0].mechanism.to_json()
        publish = publishing(made.next[0], OwnTerms())
    values["terms"] = terms_text(head.campaign, head.own, terms)
    row = {"campaign": head.name, "messages": terms.learned, "result": made.result}

    def work(connection: sa.Connection) -> None:
        if not changed(connection, head.stored, **values):
            return
        put(connection, tables.studies, {"campaign": head.name, "state": made.state})
        keep_estimate(connection, row, head.own.release_every)
        if made.next is not None:
            publish(connection)

    collector.write(work)


def end(
    collector: Collector, head: RunningCampaign, note: str, *, failed: bool = False
) -> bool:
    """End a study before its last stage, with what it knows; returns False if it has changed meanwhile."""
    terms = replace(head.study, note=note, failed=failed)
    own = tables.campaigns

    def work(connection: sa.Connection) -> bool:
        text = terms_text(head.campaign, head.own, terms)
        if not changed(connection, head.stored, terms=text, closed=True):
            return False
        connection.execute(
            own.update().where(own.c.name == head.campaign.name).values(closed=True)
        )
        return True

    return collector.write(work)


def status(
    collector: Collector, head: RunningCampaign, counts: Mapping[str, Counts], step: int
) -> StudyStatus:
    """What is shown of a study; numbers of people who have sent are multiples of the step."""
    terms = head.study
    stages = [
        _stage_status(collector, head, number, counts, step)
        for number in range(1, len(terms.stages) + 1)
    ]
    state: Any = "ended"
    note = terms.note
    if terms.failed:
        state = "failed"
    elif not head.stored.closed:
        state = "learning"
        if stages[-1].state == "open":
            state = "open" if standing(collector, head) != "waiting" else "waiting"
    if state == "waiting":
        note = f"its time is over, but fewer than {terms.enough(terms.stages[-1].people):,} people came"
    study = Study.from_json(collector.store.study_state(head.name))
    # The stored state may have learned from a stage since the terms were read.
    published = len(terms.stages) - len(study.learned)
    later = () if head.stored.closed else study.cohorts_left[published:]
    return StudyStatus(
        state=state,
        note=note,
        local_epsilon=price(head.campaign.mechanism),
        stages=stages,
        next=list(later),
        **{field: getattr(terms, field) for field in _SHOWN},
    )


def _stage_status(
    collector: Collector,
    head: RunningCampaign,
    number: int,
    counts: Mapping[str, Counts],
    step: int,
) -> StageStatus:
    record = head.study.stages[number - 1]
    stage = collector.entries[stage_name(head.name, number)]
    found = counts[stage.name].received // stage.campaign.slots
    state: Any = "open"
    if record.learned is not None:
        state = "learned"
    elif head.stored.closed:
        state = "dropped"
    elif stage.stored.closed:
        state = "closed"
    return StageStatus(
        number=number,
        name=record.name,
        people=record.people,
        received=found if record.learned is not None else found - found % step,
        state=state,
        shuffling=shuffled_claim(collector.store, stage.campaign),  # type: ignore[arg-type]
    )
