"""Taking part in a study: one message per person, whatever happens in between, and documents that are no good."""

import json
import multiprocessing
import os
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("fastapi")

from sstq.accounting import BudgetExhausted, Ledger
from sstq.client import Client, DeliveryError
from sstq.client.campaigns import Campaign, read_document
from sstq.client.outbox import Outbox, Part
from sstq.client.signing import SigningKey
from sstq.studies import Words
from tests.patience import PATIENCE
from tests.service.serving import Quiet, listening, serving
from tests.service.studying import begin, next_stage, panel, stage_of, words


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(
        tmp_path_factory.mktemp("collector"), messages_per_second=0, reads_per_second=0
    ) as running:
        yield running


def person(server, name, folder, who="me", **options):
    """A client of one person's device."""
    outbox = None if "ledger" in options else folder / f"{who}.outbox"
    return Client(
        f"{server.url}/{name}",
        **{"most_epsilon": 6.0, "outbox": outbox, "patience": 5.0} | options,
    )


def test_everybody_answers_one_stage_and_asks_in_vain_again(server, tmp_path):
    begin(server, "drinks", words(), 6, least=1)
    first = stage_of(server, "drinks").stage
    for who in range(first.people):
        assert person(server, "drinks", tmp_path, who).take_part("tea") is None
    late = person(server, "drinks", tmp_path, "late")  # has seen stage 1
    next_stage(server, "drinks", 2)
    for who in range(first.people):
        assert person(server, "drinks", tmp_path, who).take_part("water") is None
    for _ in range(2):
        assert late.take_part("tea") is None  # it asks for the open stage, and once
    assert person(server, "drinks", tmp_path, "x").take_part("tea") is None
    counts = server.status("drinks")
    assert counts["received"] == first.people + 2
    # Once the study has its people, nobody else is asked, and nothing is spent.
    ledger = Ledger(tmp_path / "new.ledger", 10.0)
    left = 6 - first.people - 2
    assert left == 0
    next_stage(server, "drinks", 3)  # there is none
    assert person(server, "drinks", tmp_path, ledger=ledger).take_part("tea") is None
    assert server.status("drinks")["received"] == 6
    assert not ledger.entries


def test_the_ledger_has_one_entry_per_study(server, tmp_path):
    study = words()
    begin(server, "paid", study, 100)
    ledger = Ledger(tmp_path / "me.ledger", 20.0)
    assert person(server, "paid", tmp_path, ledger=ledger).take_part("tea") is None
    assert [entry.round_id for entry in ledger.entries] == [f"study {study.identifier}"]
    # Another outbox, as after moving to another device: the ledger knows.
    elsewhere = person(
        server, "paid", tmp_path, ledger=ledger, outbox=tmp_path / "other.outbox"
    )
    assert elsewhere.take_part("tea") is None
    assert (server.status("paid")["received"], len(ledger.entries)) == (1, 1)
    # What the ledger does not pay for is not sent, and may be answered when it does.
    begin(server, "dear", words(), 100)
    poor = Ledger(tmp_path / "poor.ledger", 5.0)
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            person(server, "dear", tmp_path, ledger=poor).take_part("tea")
    assert server.status("dear")["received"] == 0
    rich = Ledger(tmp_path / "rich.ledger", 6.0)
    outbox = tmp_path / "poor.ledger.outbox"
    assert (
        person(server, "dear", tmp_path, ledger=rich, outbox=outbox).take_part("tea")
        is None
    )
    assert server.status("dear")["received"] == 1


def test_it_needs_a_file_that_remembers(server):
    begin(server, "file", words(), 100)
    client = Client(f"{server.url}/file", most_epsilon=6.0)
    with pytest.raises(ValueError, match="outbox must be a file"):
        client.take_part("tea")
    with pytest.raises(
        ValueError, match=r"file is a study; nothing was sent\. Call take_part"
    ):
        client.send([[0.0]])
    with pytest.raises(ValueError, match="need a sender's token"):
        client.send_messages(client.campaign.question.encode(["tea"]))
    with pytest.raises(ValueError, match="most_epsilon must be at least"):
        Client(f"{server.url}/file", most_epsilon=5.9)
    with pytest.raises(ValueError, match="returned the campaign"):
        Client(f"{server.url}/file--1", most_epsilon=6.0)


def test_a_single_use_token_that_was_used_is_told(server, tmp_path):
    begin(server, "tokens", words(), 100, senders="single-use")
    token = server.administer(
        "POST", "/v1/campaigns/tokens/tokens", json={"count": 1}
    ).json()["tokens"][0]
    assert person(server, "tokens", tmp_path, token=token).take_part("tea") is None
    with pytest.raises(
        ValueError, match="the token was used before: you have answered"
    ):
        person(server, "tokens", tmp_path, "again", token=token).take_part("tea")


def test_with_a_token_that_pays_for_nobody_else_nothing_is_charged(server, tmp_path):
    begin(server, "quota", words(), 100)
    token = server.sender("quota", people=1)
    first = person(server, "quota", tmp_path, "first", token=token)
    assert first.take_part("tea") is None
    ledger = Ledger(tmp_path / "own.ledger", epsilon=20.0)
    late = person(server, "quota", tmp_path, "late", token=token, ledger=ledger)
    with pytest.raises(ValueError, match="the token pays for nobody else"):
        late.take_part("tea")
    assert ledger.spent == 0


def test_a_device_draws_its_period_and_comes_again(server, tmp_path, monkeypatch):
    begin(server, "year", panel(), 100, hours=1)
    stage = stage_of(server, "year")
    for turn, who in ((3, "last"), (2, "next")):
        monkeypatch.setattr("sstq.client.sending.draw_turn", lambda _, turn=turn: turn)
        again = person(server, "year", tmp_path, who).take_part(1)
        assert again == stage.closes + timedelta(hours=turn - 2)
        # it is drawn once
        monkeypatch.setattr("sstq.client.sending.draw_turn", lambda _: 1)
        assert person(server, "year", tmp_path, who).take_part(1) == again
    assert server.status("year")["received"] == 0
    assert person(server, "year", tmp_path, "now").take_part(1) is None
    assert server.status("year")["received"] == 1


def die_in(monkeypatch_target, url, outbox, kind):
    """Take part in a process that ends, without a word, where it is told."""
    import sstq.client.sending as sending
    from sstq.accounting.ledger import Ledger as Kept

    def dying(*_, **__):
        os._exit(9)

    def after(function):
        def both(*arguments, **options):
            function(*arguments, **options)
            os._exit(9)

        return both

    if monkeypatch_target == "before the outbox":
        sending.Outbox.put = dying
    elif monkeypatch_target == "after the outbox":
        sending.Outbox.put = after(sending.Outbox.put)
    elif monkeypatch_target == "after the ledger":
        Kept.spend = after(Kept.spend)
    elif monkeypatch_target == "after sending":
        sending.Client._upload = after(sending.Client._upload)
    ledger = Kept(f"{outbox}.ledger", 6.0)
    Client(url, most_epsilon=6.0, outbox=outbox, ledger=ledger).take_part(kind)


@pytest.mark.parametrize(
    "moment",
    ["before the outbox", "after the outbox", "after the ledger", "after sending"],
)
def test_a_person_sends_one_message_however_often_the_device_is_killed(
    server, tmp_path, moment
):
    name = moment.replace(" ", "-")
    begin(server, name, words(), 4, least=1)
    url = f"{server.url}/{name}"
    outbox = tmp_path / "me.outbox"
    process = multiprocessing.get_context("spawn").Process(
        target=die_in, args=(moment, url, outbox, "tea")
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    # Meanwhile others fill the stage: the message waits for its own stage, and is never encoded for the next one.
    stage = stage_of(server, name)
    others = stage.stage.people - (moment == "after sending")
    for who in range(others):
        person(server, name, tmp_path, who).take_part("tea")
    next_stage(server, name, 2)
    ledger = Ledger(f"{outbox}.ledger")
    mine = {"ledger": ledger, "outbox": outbox}
    # it was encoded, and its stage is full
    if moment in ("after the outbox", "after the ledger"):
        with pytest.raises(DeliveryError, match="refused for good"):
            person(server, name, tmp_path, **mine).take_part("tea")
    before = server.status(name)["received"]
    assert person(server, name, tmp_path, **mine).take_part("water") is None
    expected = before + (moment == "before the outbox")
    assert server.status(name)["received"] == expected
    assert len(ledger.entries) == 1


class Signed(Quiet):
    """A service that signs whatever it is told to, and counts uploads."""

    def reply(self, body):
        if self.command == "POST":
            self.server.uploads.append((self.path, body))
            self.answer(self.server.status, b'{"count": 1}', {})
        elif self.path.endswith("/messages"):
            room, headers = self.server.room
            self.answer(room, b'{"messages": null}', headers)
        else:
            raw = self.server.document
            self.answer(200, raw, {"SSTQ-Signature": self.server.key.sign(raw)})


def documents(study, name, count):
    """The documents of the first stages of a study."""
    made = []
    for number in range(1, count + 1):
        document = json.loads(study.question(10))
        mechanism = study.asked.mechanism
        del document["mechanism"]
        stage = {
            "study": name,
            "number": number,
            "name": "x",
            "question": document,
            "people": 10,
            "hours": None,
        }
        made.append(
            {
                "name": f"{name}--{number}",
                "mechanism": json.loads(mechanism.to_json()),
                "stage": stage,
            }
        )
        study.learn(study.asked.encode(["tea"] * 10))
    return made


@pytest.fixture
def service():
    with listening(
        Signed, key=SigningKey.generate(), uploads=[], status=200, room=(200, {})
    ) as running:
        yield running


def publish(service, terms):
    service.document = Campaign.from_dict(terms).document([service.key.public])


def test_stages_of_another_study_or_time_are_refused(service, tmp_path):
    mine = documents(words(), "drinks", 2)
    others = documents(words(), "meals", 1)
    publish(service, others[0])
    with pytest.raises(
        ValueError, match="returned the campaign 'meals--1' instead of 'drinks'"
    ):
        person(service, "drinks", tmp_path)
    # A stage that was there before is not there again.
    publish(service, mine[1])
    known = person(service, "drinks", tmp_path)
    answer = known.campaign.question.purpose
    known.outbox.remember(f"{service.url}/v1/campaigns/drinks", Part(answer, stage=2))
    publish(service, mine[0])
    with pytest.raises(
        ValueError, match="stage 1 of drinks is over: 2 was there before"
    ):
        person(service, "drinks", tmp_path).take_part("tea")
    assert not service.uploads


def test_a_full_stage_is_asked_again_when_the_next_one_may_be_there(service, tmp_path):
    """One client for all of it: nothing leaves before there is room, and one message then."""
    first, second = documents(words(), "drinks", 2)
    publish(service, first)
    service.room = (410, {"Retry-After": "7"})
    client = person(service, "drinks", tmp_path)
    before = datetime.now(UTC)
    again = client.take_part("tea")
    assert timedelta(seconds=7) <= again - before < timedelta(seconds=7.0 + PATIENCE)
    service.room = (200, {})
    publish(service, second)
    for _ in range(2):
        assert client.take_part("tea") is None
    ((path, _),) = service.uploads
    assert path == "/v1/campaigns/drinks--2/messages"
    # The study at an address, and the key that signs it, stay those of the first contact.
    publish(service, documents(words(), "drinks", 1)[0])
    with pytest.raises(ValueError, match="drinks is another study now"):
        client.take_part("tea")
    service.key = SigningKey.generate()
    publish(service, second)
    with pytest.raises(ValueError, match="key"):
        client.take_part("tea")
    # A study that ended says no time.
    service.room = (410, {})
    assert person(service, "drinks", tmp_path, "other").take_part("tea") is None
    assert len(service.uploads) == 1


def test_whoever_says_that_a_stage_is_closed_gets_no_second_message(service, tmp_path):
    """It has seen the first one."""
    first, second = documents(words(), "drinks", 2)
    publish(service, first)
    service.status = 410
    with pytest.raises(DeliveryError, match="refused for good"):
        person(service, "drinks", tmp_path).take_part("tea")
    assert len(service.uploads) == 1
    service.status = 200
    for terms in (first, second):
        publish(service, terms)
        assert person(service, "drinks", tmp_path).take_part("tea") is None
    assert len(service.uploads) == 1


def test_a_study_is_answered_once_whoever_signs_it_and_wherever_it_is(
    service, tmp_path
):
    """After a restart a collector showed the same study with another key or name, or another study at its address."""
    study = words()
    [mine] = documents(study, "drinks", 1)
    renamed = mine["stage"] | {"study": "meals"}
    stages = {"drinks": mine, "meals": mine | {"name": "meals--1", "stage": renamed}}
    for room in ((410, {"Retry-After": "5"}), (200, {})):
        service.room = room
        for name, stage in stages.items():
            publish(service, stage)
            again = person(service, name, tmp_path).take_part("tea")
            assert (again is None) == (room[0] == 200)
    service.key = SigningKey.generate()
    publish(service, mine)
    assert person(service, "drinks", tmp_path).take_part("tea") is None
    # Two links lead to this study now, and neither to another one.
    for name in ("drinks", "meals"):
        publish(service, documents(words(), name, 1)[0])
        with pytest.raises(ValueError, match=f"{name} is another study now; nothing"):
            person(service, name, tmp_path).take_part("tea")
    assert len(service.uploads) == 1


def test_a_device_draws_its_period_once_whatever_the_address(
    service, tmp_path, monkeypatch
):
    """Drawn again at every address, it would answer sooner than in a random period."""
    study = panel()
    [mine] = documents(study, "year", 1)
    forever = {"closes": "9999-12-31T00:00:00Z"}
    drawn = iter([2])
    monkeypatch.setattr("sstq.client.sending.draw_turn", lambda _: next(drawn))
    for name in ("year", "again"):
        stage = mine["stage"] | {"study": name, "people": None, "hours": 48.0}
        publish(service, mine | {"name": f"{name}--1", "stage": stage} | forever)
        client = person(service, name, tmp_path)
        assert client.take_part(1) == client.campaign.closes
    # A period after all dates never comes.
    drawn = iter([3])
    assert person(service, "again", tmp_path, "late").take_part(1) is None
    assert not service.uploads


def test_two_outboxes_with_one_ledger_send_one_answer(service, tmp_path, monkeypatch):
    """The first was killed before it paid, and the second paid and answered: the ledger had one entry for both."""
    publish(service, documents(words(), "drinks", 1)[0])
    ledger = Ledger(tmp_path / "me.ledger", 20.0)

    def mine(who):
        outbox = tmp_path / f"{who}.outbox"
        return person(service, "drinks", tmp_path, ledger=ledger, outbox=outbox)

    with monkeypatch.context() as killed:
        killed.setattr(Outbox, "begin_payment", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mine("first").take_part("tea")
    assert mine("second").take_part("tea") is None
    for _ in range(2):
        assert mine("first").take_part("tea") is None
    assert (len(service.uploads), len(ledger.entries)) == (1, 1)


def test_a_wait_that_is_no_time_is_none(service, tmp_path):
    publish(service, documents(words(), "drinks", 1)[0])
    service.room = (410, {"Retry-After": "9" * 400})
    assert person(service, "drinks", tmp_path).take_part("tea") is None
    assert not service.uploads


def cheaper_stage(first):
    """The second stage of the same study, at another price: its collector lies about the study."""
    [second] = documents(Words(epsilon=1.0, longest=5), "drinks", 1)
    second["name"] = "drinks--2"
    second["stage"]["number"] = 2
    second["stage"]["question"]["study"] = first["stage"]["question"]["study"]
    return second


def test_what_waits_goes_to_its_stage_at_its_price(service, tmp_path, monkeypatch):
    [first] = documents(words(), "drinks", 1)
    publish(service, first)
    ledger = Ledger(tmp_path / "me.ledger", 20.0)
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "spend", lambda *_: open(tmp_path / "none" / "x"))  # noqa: SIM115
        with pytest.raises(FileNotFoundError):
            person(service, "drinks", tmp_path, ledger=ledger).take_part("tea")
    publish(service, cheaper_stage(first))
    assert person(service, "drinks", tmp_path, ledger=ledger).take_part("tea") is None
    assert [entry.epsilon for entry in ledger.entries] == [6.0]
    assert [path for path, _ in service.uploads] == ["/v1/campaigns/drinks--1/messages"]


def test_answers_of_many_people_wait_for_their_own_stage(service, tmp_path):
    [first] = documents(words(), "drinks", 1)
    publish(service, first)
    sender = {"token": "x", "patience": 0.0, "ledger": Ledger(tmp_path / "own", 20.0)}
    client = person(service, "drinks", tmp_path, **sender)
    service.status = 500
    with pytest.raises(DeliveryError):
        client.send_messages(client.campaign.question.encode_each(["tea"]))
    service.status = 200
    publish(service, cheaper_stage(first))
    assert person(service, "drinks", tmp_path, **sender).send_waiting() == 1
    (once, body), (again, same) = service.uploads
    assert (again, same) == (once, body)
    assert once == "/v1/campaigns/drinks--1/messages"


def test_no_value_is_refused_or_answered_otherwise(service, tmp_path):
    publish(service, documents(words(), "drinks", 1)[0])
    for who, value in enumerate(
        ["tea", None, float("nan"), b"\xff", ["x"], object(), "\ud800", "x" * 10**5]
    ):
        assert person(service, "drinks", tmp_path, who).take_part(value) is None
    assert {len(body) for _, body in service.uploads} == {len(service.uploads[0][1])}
    assert len(service.uploads) == 8


@pytest.mark.parametrize(
    "change",
    [
        {"name": "drinks--2"},
        {"stage.number": 2},
        {"stage.people": 0},
        {"stage.people": None},
        {"stage.question.study": "x"},
        {"stage.question.step": 2},
        {"stage.question.longest": 1000},
        {"stage.question.mechanism": {}},
        {"stage.question": []},
        {"stage.hours": -1},
        {"stage.extra": 1},
    ],
)
def test_documents_that_are_no_stage_are_refused_whole(service, change):
    terms = documents(words(), "drinks", 1)[0]
    (path, value) = next(iter(change.items()))
    parts = terms
    *outer, last = path.split(".")
    for part in outer:
        parts = parts[part]
    parts[last] = value
    with pytest.raises(ValueError, match=r".+"):
        Campaign.from_dict(terms)


def test_a_changed_document_has_no_valid_signature(server, service, tmp_path):
    """Fewer people, another question or another name: the signature covers all of it."""
    begin(server, "signed", words(), 100)
    answer = server.http.get("/v1/campaigns/signed")
    document = json.loads(answer.content)
    document["stage"]["people"] = 2
    stage = read_document(answer.content).campaign
    changed = Campaign.from_dict(stage.to_dict() | {"stage": document["stage"]})
    signature = answer.headers["SSTQ-Signature"]
    service.document = changed.document([bytes.fromhex(document["keys"][0])])
    service.key = type("Replayed", (), {"sign": lambda _, __: signature})()
    with pytest.raises(ValueError, match="signature is wrong"):
        person(service, "signed", tmp_path)
