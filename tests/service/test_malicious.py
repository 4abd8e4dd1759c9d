"""What a malicious collector, shuffler or sender tries: each of these attacks worked once."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app

pytest.importorskip("fastapi")

from sstq.client import Campaign, Client, Shuffling
from sstq.client.campaigns import Stage, read_document
from sstq.client.sealing import (
    CROWD_BYTES,
    SealingKey,
    cover_info,
    envelope_info,
    open_envelopes,
)
from sstq.client.signing import SHUFFLER_PREFIX, SigningKey
from sstq.studies import Words
from tests.patience import until
from tests.service.serving import Quiet, listening, serving

MECHANISM = sstq.GroupUnit(8, 8.0, groups=4, frame_seed=3)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
X = np.eye(8)[2]
GROUP = [3]
LABELS = ("yes", "no", "perhaps", "none")


class Evil(Quiet):
    """Shows any document, signed, and keeps what is sent to it."""

    def reply(self, body):
        if self.command == "POST":
            if self.server.refusal is None:
                self.server.caught.append(body)
                manifest = json.loads(self.headers.get("SSTQ-Batch", '{"count": 1}'))
                self.answer(200, json.dumps({"count": manifest["count"]}).encode(), {})
            else:
                self.answer(self.server.refusal, b"<html>not here</html>", {})
            return
        if self.path.endswith("/messages"):
            self.answer(405, b"{}", {})
            return
        self.server.asked.append(self.path)
        document = self.server.documents[self.path.rpartition("/")[2]]
        headers = {"SSTQ-Signature": self.server.key.sign(document)}
        if self.server.shuffler is not None:
            headers["SSTQ-Shuffler-Signature"] = self.server.shuffler.sign(
                document, SHUFFLER_PREFIX
            )
        self.answer(200, document, headers)


def lurking():
    """A malicious server."""
    keys = {
        "key": SigningKey.generate(),
        "seal": SealingKey.generate(),
        "shuffler": None,
    }
    return listening(Evil, **keys, documents={}, asked=[], caught=[], refusal=None)


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A malicious collector, and an honest shuffler in front of it."""
    with (
        lurking() as collector,
        serving(
            tmp_path_factory.mktemp("shuffler"),
            command="shuffler",
            collector=collector.url,
            collector_key=collector.key.public.hex(),
            fetch_seconds=0.05,
            closing_seconds=0,
        ) as shuffler,
    ):
        shuffler.keys = shuffler.http.get("/v1/key").json()
        yield collector, shuffler


def publish(
    evil, name, closes=LATER, senders="single-use", group_labels=LABELS, **terms
):
    collector, shuffler = evil
    terms = {"url": shuffler.url, "threshold": 5000, **shuffler.keys, **terms}
    told = {"closes": closes, "senders": senders, "group_labels": group_labels}
    campaign = Campaign(name, MECHANISM, shuffling=Shuffling(**terms), **told)
    document = collector.documents[name] = campaign.document(
        [collector.key.public], [collector.seal.public]
    )
    return document


def pins(evil):
    collector, shuffler = evil
    return {
        "pinned_key": collector.key.public.hex(),
        "pinned_shuffler": shuffler.keys["key"],
    }


def send(evil, name):
    """One honest person sends; returns what their client was shown."""
    _, shuffler = evil
    tokens = shuffler.administer(
        "POST", f"/v1/campaigns/{name}/tokens", json={"count": 1}
    ).json()["tokens"]
    client = Client(
        f"{shuffler.url}/{name}",
        most_epsilon=8.0,
        token=tokens,
        patience=0.0,
        **pins(evil),
    )
    assert client.send(X, groups=GROUP) == 1
    return client.campaign


def test_a_collector_cannot_name_itself_as_the_shuffler(evil):
    collector, shuffler = evil
    publish(evil, "itself", url=collector.url)
    answer = shuffler.http.get("/v1/campaigns/itself")
    assert (answer.status_code, "SSTQ-Shuffler-Signature" in answer.headers) == (
        404,
        False,
    )
    collector.caught.clear()
    with pytest.raises(ValueError, match="404"):
        Client(f"{shuffler.url}/itself", most_epsilon=8.0, patience=0.0, **pins(evil))
    # Nor would a client follow the address, if the shuffler had signed it.
    with pytest.raises(
        ValueError,
        match=f"shuffler is at {collector.url}, not at {collector.url}/elsewhere",
    ):
        Client(f"{collector.url}/elsewhere/itself", most_epsilon=8.0, **pins(evil))
    assert not collector.caught


def test_who_else_receives_an_upload_reads_nothing(evil):
    """A collector that has its clients' traffic: it holds the inner key, and the cover keeps it out."""
    collector, _ = evil
    shuffler = SigningKey.generate()
    cover = SealingKey.generate()
    with lurking() as between:
        between.key = collector.key
        between.shuffler = shuffler
        terms = Shuffling(
            between.url, shuffler.public.hex(), cover.public.hex(), threshold=5000
        )
        campaign = Campaign("rooms", MECHANISM, closes=LATER, shuffling=terms)
        between.documents["rooms"] = campaign.document(
            [collector.key.public], [collector.seal.public]
        )
        keys = {
            "pinned_key": collector.key.public.hex(),
            "pinned_shuffler": shuffler.public.hex(),
        }
        assert (
            Client(f"{between.url}/rooms", most_epsilon=8.0, **keys).send(
                X, groups=GROUP
            )
            == 1
        )
        (body,) = between.caught
    crowd = body[:CROWD_BYTES]
    sealed = body[CROWD_BYTES:]
    size = campaign.envelope_bytes
    for info in (envelope_info(crowd, 0), cover_info(crowd), b""):
        windows = [
            sealed[start : start + size] for start in range(len(sealed) - size + 1)
        ]
        assert not any(open_envelopes(collector.seal.secret, info, [sealed, *windows]))
    (envelope,) = open_envelopes(cover.secret, cover_info(crowd), [sealed])
    assert open_envelopes(cover.secret, envelope_info(crowd, 0), [envelope]) == [None]
    assert open_envelopes(
        collector.seal.secret, envelope_info(crowd, 0), [envelope]
    ) != [None]


CHANGES = {
    "threshold": 2,
    "below_threshold": "local",
    "delta": 0.1,
    "senders": "everybody",
    "group_labels": ("no", "yes", "perhaps", "none"),
    "url": "http://127.0.0.1:1",
    "sealing_key": "00" * 32,
}


def test_the_terms_of_people_who_wait_do_not_change(evil):
    collector, shuffler = evil
    names = {
        f"terms-{field.replace('_', '-')}": {field: value}
        for field, value in CHANGES.items()
    }
    documents = {name: publish(evil, name) for name in names}
    agreed = {name: send(evil, name) for name in names}
    collector.caught.clear()
    for name, change in names.items():
        publish(evil, name, **change)
    for name, change in names.items():
        if not {"url", "sealing_key"} & set(change):
            changed = until(lambda name=name: shuffler.status(name)["refused_change"])
            assert "the collector changed what people agreed to" in changed
    assert "changed what people agreed to" in shuffler.log.read_text()
    # The end comes, with the changed terms and with the old ones: too few people wait.
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    for name, change in names.items():
        publish(evil, name, closes=ends, **change)
    asked = len(collector.asked)
    until(
        lambda: (
            len(collector.asked) >= asked + 3 * len(names) and datetime.now(UTC) > ends
        )
    )
    for name in names:
        assert shuffler.http.get(f"/v1/campaigns/{name}").content == documents[name]
        assert shuffler.status(name)["threshold"] == agreed[name].shuffling.threshold
        assert list(shuffler.status(name)["waiting"].values()) == [1]
        publish(evil, name, closes=ends)
    for name in names:
        until(lambda name=name: shuffler.status(name)["status"] == "closed")
        assert list(shuffler.status(name)["waiting"].values()) == [1]
    assert not collector.caught
    metrics = shuffler.administer("GET", "/metrics").text
    assert 'sstq_alarms{campaign="terms-group-labels",test="change"} 1.0' in metrics


@pytest.mark.parametrize("status", [404, 410, 200])
def test_a_crowd_waits_whatever_the_collectors_address_answers(evil, status):
    """One answer of a proxy that was set up wrongly deleted everybody's messages."""
    collector, shuffler = evil
    name = f"refused-{status}"
    collector.caught.clear()
    collector.refusal = status
    try:
        publish(evil, name, threshold=2)
        send(evil, name)
        send(evil, name)
        publish(
            evil,
            name,
            threshold=2,
            closes=datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1),
        )
        said = until(lambda: shuffler.status(name)["refused_batch"])
        assert status == 200 or str(status) in said
        assert (
            shuffler.status(name)["outgoing"],
            shuffler.status(name)["waiting"],
        ) == (2, {})
        metrics = shuffler.administer("GET", "/metrics").text
        assert f'sstq_alarms{{campaign="{name}",test="batch"}} 1.0' in metrics
    finally:
        collector.refusal = None
    until(lambda: shuffler.status(name)["outgoing"] == 0)
    size = read_document(collector.documents[name]).campaign.envelope_bytes
    assert [len(body) for body in collector.caught] == [2 * size]
    assert shuffler.status(name)["refused_batch"] is None


def test_what_no_collector_takes_is_deleted_by_the_shufflers_administrator(evil):
    collector, shuffler = evil
    collector.caught.clear()
    publish(evil, "unwanted")
    send(evil, "unwanted")
    path = "/v1/campaigns/unwanted"
    assert shuffler.http.delete(path).status_code == 401
    assert shuffler.administer("DELETE", path).status_code == 204
    assert shuffler.status("unwanted")["waiting"] == {}  # fetched again
    assert not collector.caught


@pytest.mark.parametrize("address", ["{}/", "{}/x", "http://x@{}", "HTTP://{}"])
def test_another_way_to_write_the_shufflers_address_is_not_signed(evil, address):
    _, shuffler = evil
    name = f"address-{len(address)}"
    bare = (
        shuffler.url
        if address.startswith("{}")
        else shuffler.url.removeprefix("http://")
    )
    try:
        publish(evil, name, url=address.format(bare))
    except ValueError:
        return  # there is no such campaign
    answer = shuffler.http.get(f"/v1/campaigns/{name}")
    assert (answer.status_code, "SSTQ-Shuffler-Signature" in answer.headers) == (
        404,
        False,
    )


def test_a_campaign_cannot_be_reopened(evil):
    _, shuffler = evil
    publish(evil, "again")
    send(evil, "again")
    publish(
        evil,
        "again",
        closes=datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1),
    )
    until(lambda: shuffler.status("again")["status"] == "closed")
    publish(evil, "again")
    until(
        lambda: (
            "reopened the campaign"
            in (shuffler.status("again")["refused_change"] or "")
        )
    )
    assert shuffler.status("again")["status"] == "closed"


def documents_with(evil, name, *keys):
    """The campaign's document with these sealing keys."""
    collector, _ = evil
    publish(evil, name)
    made = read_document(collector.documents[name]).campaign.document(
        [collector.key.public], keys
    )
    collector.documents[name] = made
    return made


def seen_by_shuffler(evil, name):
    """Return when the shuffler has read the campaign's newest document."""
    collector, _ = evil
    path = f"/v1/campaigns/{name}"
    asked = collector.asked.count(path)
    until(lambda: collector.asked.count(path) >= asked + 2)


def test_a_new_sealing_key_makes_no_new_crowd(evil):
    """The collector renewed its key around a victim, and filled that crowd with tokens of its own."""
    collector, shuffler = evil
    first = publish(evil, "renewed")
    send(evil, "renewed")
    for more in (1, 2):  # beside the old one, and again
        documents_with(
            evil,
            "renewed",
            *(SealingKey.generate().public for _ in range(more)),
            collector.seal.public,
        )
        seen_by_shuffler(evil, "renewed")
        assert (
            shuffler.status("renewed")["refused_change"]
            == "the collector changed its sealing key"
        )
    # in place of the old one
    documents_with(evil, "renewed", SealingKey.generate().public)
    seen_by_shuffler(evil, "renewed")
    send(evil, "renewed")
    assert shuffler.http.get("/v1/campaigns/renewed").content == first
    assert list(shuffler.status("renewed")["waiting"].values()) == [2]


def test_a_campaign_has_one_sealing_key_from_its_beginning(evil):
    _, shuffler = evil
    documents_with(
        evil, "two-keys", SealingKey.generate().public, SealingKey.generate().public
    )
    answer = shuffler.http.get("/v1/campaigns/two-keys")
    assert (
        answer.status_code,
        "one sealing key, got 2" in answer.json()["detail"],
    ) == (404, True)


def test_neither_another_signer_nor_an_unshuffled_campaign_replaces_the_first(evil):
    collector, shuffler = evil
    first = publish(evil, "mine")
    send(evil, "mine")
    other = SigningKey.generate()
    campaign = read_document(first).campaign
    for wrong in (
        campaign.document([other.public], [collector.seal.public]),
        Campaign("mine", MECHANISM).document([collector.key.public]),
    ):
        collector.documents["mine"] = wrong
        seen_by_shuffler(evil, "mine")
        assert shuffler.http.get("/v1/campaigns/mine").content == first


def test_the_collector_is_not_asked_by_those_who_send(tmp_path):
    with lurking() as collector:
        options = {"collector": collector.url, "fetch_seconds": 3600}
        with serving(tmp_path, command="shuffler", **options) as shuffler:
            shuffler.keys = shuffler.http.get("/v1/key").json()
            publish((collector, shuffler), "quiet")
            for _ in range(3):
                send((collector, shuffler), "quiet")
        # By the shuffler when it first heard of it, and by its first round if that came later; by nobody who sent.
        assert collector.asked in (["/v1/campaigns/quiet"], ["/v1/campaigns/quiet"] * 2)


def test_a_shuffler_cannot_forge_the_collector(tmp_path, monkeypatch):
    """It shows a document with a signing and a sealing key of its own; its own key is the pinned one."""
    monkeypatch.setattr(
        sstq.GroupUnit,
        "encode_slots",
        lambda *_, **__: pytest.fail("something is encoded"),
    )
    with lurking() as shuffler:
        shuffler.shuffler = SigningKey.generate()
        terms = Shuffling(
            shuffler.url,
            shuffler.shuffler.public.hex(),
            shuffler.seal.public.hex(),
            threshold=5000,
        )
        campaign = Campaign("rooms", MECHANISM, closes=LATER, shuffling=terms)
        shuffler.documents["rooms"] = campaign.document(
            [shuffler.key.public], [shuffler.seal.public]
        )
        for pinned, said in (
            (None, "needs both public keys"),
            (SigningKey.generate().public.hex(), "not the pinned"),
        ):
            options = {"pinned_key": pinned, "pinned_shuffler": terms.key}
            with pytest.raises(ValueError, match=said):
                Client(f"{shuffler.url}/rooms", most_epsilon=8.0, **options)
        np.save(tmp_path / "x.npy", X[None])
        np.save(tmp_path / "g.npy", np.array(GROUP))
        arguments = [
            "send",
            f"{shuffler.url}/rooms",
            str(tmp_path / "x.npy"),
            "--most-epsilon",
            "8",
        ]
        arguments += [
            "--private-group",
            str(tmp_path / "g.npy"),
            "--shuffler-key",
            terms.key,
        ]
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == 2  # --collector-key must be given
        assert "both public keys" in " ".join(
            str(found.output or found.exception).split()
        )
        assert not shuffler.caught


def test_who_has_another_key_than_the_shuffler_that_the_campaign_names_gets_nothing():
    with lurking() as imposter:
        named = SigningKey.generate()
        imposter.shuffler = SigningKey.generate()
        terms = Shuffling(imposter.url, named.public.hex(), "00" * 32, threshold=20)
        campaign = Campaign("rooms", MECHANISM, closes=LATER, shuffling=terms)
        imposter.documents["rooms"] = campaign.document(
            [imposter.key.public], [imposter.seal.public]
        )
        keys = {"pinned_key": imposter.key.public.hex(), "pinned_shuffler": terms.key}
        with pytest.raises(
            ValueError,
            match="is not the shuffler that the campaign names; nothing was sent",
        ):
            Client(f"{imposter.url}/rooms", most_epsilon=8.0, **keys)
        assert not imposter.caught


def publish_stage(evil, name, number, closes=LATER, hours=None):
    """A stage for three people, who are a crowd."""
    collector, shuffler = evil
    study = Words(epsilon=6.0, longest=5)
    question = json.loads(study.question(3)) | {"study": "0a" * 16}
    del question["mechanism"]
    campaign = Campaign(
        f"{name}--{number}",
        study.asked.mechanism,
        closes=closes,
        senders="single-use",
        shuffling=Shuffling(shuffler.url, threshold=3, **shuffler.keys),
        stage=Stage(name, number, "letters 1 to 3", question, people=3, hours=hours),
    )
    collector.documents[name] = campaign.document(
        [collector.key.public], [collector.seal.public]
    )


def test_a_later_stage_makes_no_new_crowd(evil, tmp_path):
    """The collector began a stage before a victim and one after, and filled the victim's with tokens of its own."""
    _, shuffler = evil
    publish_stage(evil, "rotating", 1)

    def stage():
        document = shuffler.http.get("/v1/campaigns/rotating").content
        return read_document(document).campaign.stage.number

    assert stage() == 1
    tokens = shuffler.administer(
        "POST", "/v1/campaigns/rotating/tokens", json={"count": 3}
    ).json()["tokens"]

    def take_part(token):
        client = Client(
            f"{shuffler.url}/rotating",
            most_epsilon=6.0,
            token=token,
            outbox=tmp_path / token,
            **pins(evil),
        )
        assert client.take_part("tea") is None

    take_part(tokens[0])
    publish_stage(evil, "rotating", 2)
    seen_by_shuffler(evil, "rotating")
    refused = shuffler.status("rotating")["refused_change"]
    assert (stage(), refused) == (
        1,
        "the collector went on before the stage had ended",
    )
    # The end of a stage is no way around it.
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    publish_stage(evil, "rotating", 1, closes=soon)
    seen_by_shuffler(evil, "rotating")
    assert "closes from 2100" in shuffler.status("rotating")["refused_change"]
    publish_stage(evil, "rotating", 2)
    for token in tokens[1:]:
        take_part(token)
    until(lambda: stage() == 2)


def test_a_stage_is_not_shorter_than_its_study_says(evil):
    """The collector began a stage of a day right before a victim, which ended right after them."""
    _, shuffler = evil
    now = datetime.now(UTC).replace(microsecond=0)
    publish_stage(evil, "short", 1, closes=now - timedelta(seconds=1), hours=24.0)

    def stage():
        document = shuffler.http.get("/v1/campaigns/short").content
        return read_document(document).campaign.stage.number

    assert stage() == 1
    publish_stage(evil, "short", 2, closes=now + timedelta(minutes=1), hours=24.0)
    seen_by_shuffler(evil, "short")
    assert (stage(), shuffler.status("short")["refused_change"]) == (
        1,
        "the collector gave the stage less than a quarter of its hours",
    )
    # Fewer hours are no way around it.
    publish_stage(evil, "short", 2, closes=now + timedelta(minutes=1), hours=0.02)
    seen_by_shuffler(evil, "short")
    assert "hours from 24 to 0.02" in shuffler.status("short")["refused_change"]
    publish_stage(evil, "short", 2, closes=now + timedelta(hours=12), hours=24.0)
    until(lambda: stage() == 2)
