"""Keys that a user pins: a mistake in them is an error before the first request, never a key that is not checked."""

from datetime import UTC, datetime

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app
from sstq.client import Campaign, Client, Shuffling
from sstq.client.sealing import (
    CROWD_BYTES,
    SealingKey,
    cover_info,
    envelope_info,
    open_envelopes,
    payloads,
)
from sstq.client.signing import SHUFFLER_PREFIX, SigningKey
from sstq.client.targets import Target, read_target
from tests.service.serving import Quiet, listening

MECHANISM = sstq.FrameUnit(dim=3, epsilon=1.0, messages=2)
ADDRESS = "https://collect.example"
ONE = "01" * 32
TWO = "02" * 32
CAMPAIGN = f"{ADDRESS}/steps"
BOTH = f"{CAMPAIGN}#collector-key={ONE}&shuffler-key={TWO}"


@pytest.mark.parametrize(
    ("url", "options", "keys"),
    [
        (CAMPAIGN, {}, (None, None)),
        (f"{CAMPAIGN}/", {"pinned_key": ONE}, (ONE, None)),
        (CAMPAIGN, {"pinned_shuffler": TWO, "shuffler_url": ADDRESS}, (None, TWO)),
        (BOTH, {}, (ONE, TWO)),
        (f"{CAMPAIGN}#shuffler-key={TWO}", {"pinned_key": ONE}, (ONE, TWO)),
        (BOTH, {"pinned_key": ONE, "pinned_shuffler": TWO}, (ONE, TWO)),
    ],
)
def test_keys_are_given_or_in_the_link(url, options, keys):
    assert read_target(url, **options) == Target(ADDRESS, "steps", *keys)


MISTAKES = {
    "empty": {"pinned_key": ""},
    "empty shuffler": {"pinned_shuffler": ""},
    "short": {"pinned_key": "abc"},
    "capitals": {"pinned_key": "AB" * 32},
    "with a line's end": {"pinned_shuffler": f"{ONE}\n"},
    "of bytes": {"pinned_key": b"1" * 64},
    "empty in the link": {"url": f"{CAMPAIGN}#shuffler-key="},
    "one of two empty": {"url": f"{CAMPAIGN}#collector-key={ONE}&shuffler-key="},
    "misspelled": {"url": f"{CAMPAIGN}#collector_key={ONE}"},
    "unknown": {"url": f"{CAMPAIGN}#collector-key={ONE}&key={TWO}"},
    "doubled": {"url": f"{CAMPAIGN}#collector-key={ONE}&collector-key={ONE}"},
    "doubled and different": {
        "url": f"{CAMPAIGN}#collector-key={TWO}&collector-key={ONE}"
    },
    "malformed": {"url": f"{CAMPAIGN}#collector-key={ONE[:-1]}"},
    "encoded": {"url": f"{CAMPAIGN}#collector%2Dkey={ONE}"},
    "nothing": {"url": f"{CAMPAIGN}#"},
    "a name alone": {"url": f"{CAMPAIGN}#collector-key"},
    "another one than the link's": {"url": BOTH, "pinned_key": TWO},
    "another shuffler than the link's": {"url": BOTH, "pinned_shuffler": ONE},
    "too few people": {"least_threshold": 1},
    "no whole people": {"least_threshold": 2.5},
    "an empty token": {"token": ""},
    "a token of two lines": {"token": "a\nb"},
    "another address": {
        "pinned_shuffler": TWO,
        "shuffler_url": "https://shuffle.example",
    },
    "no address": {"shuffler_url": ""},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_an_error_before_the_first_request(mistake, monkeypatch):
    def never(*_, **__):
        raise AssertionError("something was requested")

    monkeypatch.setattr("sstq.client.sending.request", never)
    options = MISTAKES[mistake]
    with pytest.raises(ValueError, match=r"must (be|end|have)"):
        Client(**{"url": CAMPAIGN, "most_epsilon": 2.0} | options)


@pytest.mark.parametrize(
    "variable", ["SSTQ_COLLECTOR_KEY", "SSTQ_SHUFFLER_KEY", "SSTQ_SEND_TOKEN"]
)
def test_an_empty_variable_is_refused(variable, tmp_path):
    sending = ["send", f"{CAMPAIGN}", str(tmp_path / "x.npy"), "--most-epsilon", "2"]
    found = CliRunner().invoke(app, sending, env={variable: ""})
    assert found.exit_code == 2
    assert (
        f"{variable} must have a value, got ''; to go without, run: unset {variable}"
        in " ".join(found.output.split())
    )


def test_a_shuffler_is_not_started_with_an_empty_key(tmp_path):
    pytest.importorskip("fastapi")
    starting = [
        "shuffler",
        "--folder",
        str(tmp_path / "shuffler"),
        "--collector",
        ADDRESS,
    ]
    found = CliRunner().invoke(app, starting, env={"SSTQ_COLLECTOR_KEY": ""})
    assert (
        found.exit_code,
        "SSTQ_COLLECTOR_KEY must have a value" in found.output,
    ) == (2, True)
    assert not (tmp_path / "shuffler").exists()


class Shuffler(Quiet):
    """Shows a campaign that the collector and the shuffler signed, and keeps what it is asked."""

    def reply(self, body):
        self.server.asked.append(self.command)
        if self.command == "POST":
            self.server.caught.append(body)
            self.answer(200, b'{"count": 1}', {})
            return
        usual = {
            "url": self.server.url,
            "key": self.server.shuffler.public.hex(),
            "sealing_key": self.server.cover.public.hex(),
            "threshold": 500,
        }
        terms = Shuffling(**usual | self.server.terms)
        campaign = Campaign(
            "steps",
            MECHANISM,
            closes=datetime(2100, 1, 1, tzinfo=UTC),
            senders=self.server.senders,
            shuffling=terms,
        )
        document = campaign.document(
            [self.server.key.public], [self.server.sealing.public]
        )
        signatures = {
            "SSTQ-Signature": self.server.key.sign(document),
            "SSTQ-Shuffler-Signature": self.server.signs.sign(
                document, SHUFFLER_PREFIX
            ),
        }
        self.answer(200, document, signatures)


@pytest.fixture
def shuffler():
    keys = {"key": SigningKey.generate(), "shuffler": SigningKey.generate()}
    keys |= {"sealing": SealingKey.generate(), "cover": SealingKey.generate()}
    state = {
        "asked": [],
        "caught": [],
        "terms": {},
        "senders": "single-use",
        "signs": keys["shuffler"],
    }
    with listening(Shuffler, **state, **keys) as running:
        keys = f"collector-key={running.key.public.hex()}&shuffler-key={running.shuffler.public.hex()}"
        running.link = f"{running.url}/steps#{keys}"
        yield running


def test_a_crowd_of_strangers_is_no_crowd(shuffler):
    """Where everybody may send, the collector itself can be all the others."""
    assert (
        Client(shuffler.link, most_epsilon=2.0, least_threshold=500).campaign.senders
        == "single-use"
    )
    with pytest.raises(
        ValueError, match="crowds of 500 people, fewer than least_threshold = 501"
    ):
        Client(shuffler.link, most_epsilon=2.0, least_threshold=501)
    shuffler.senders = "everybody"
    Client(shuffler.link, most_epsilon=2.0)
    with pytest.raises(
        ValueError,
        match=r"least_threshold = 2 protects nobody where senders = 'everybody'.*nothing was",
    ):
        Client(shuffler.link, most_epsilon=2.0, least_threshold=2)


def test_a_crowd_that_is_forwarded_below_its_threshold_is_no_crowd(shuffler):
    shuffler.terms = {"below_threshold": "local"}
    assert Client(shuffler.link, most_epsilon=2.0).campaign.shuffling.threshold == 500
    with pytest.raises(
        ValueError,
        match="crowds of 1 people, fewer than least_threshold = 2; nothing was sent",
    ):
        Client(shuffler.link, most_epsilon=2.0, least_threshold=2)


@pytest.mark.parametrize(
    ("signs", "terms", "words"),
    [
        (
            SigningKey.generate(),
            {},
            "is not the shuffler that the campaign names; nothing was sent",
        ),
        (
            None,
            {"key": "05" * 32},
            f"names the shuffler {'05' * 32} instead of the pinned one; nothing was sent",
        ),
        (
            None,
            {"url": ADDRESS},
            f"shuffler is at {ADDRESS}, not at .*; nothing was sent",
        ),
    ],
)
def test_the_shuffler_is_the_pinned_one_is_here_and_signed(
    shuffler, signs, terms, words
):
    shuffler.signs = signs or shuffler.shuffler
    shuffler.terms = terms
    with pytest.raises(ValueError, match=words):
        Client(shuffler.link, most_epsilon=2.0)
    assert shuffler.asked == ["GET"]


def test_an_envelope_holds_a_persons_own_message_of_its_slot(shuffler):
    """Messages come slot by slot; each person's are together in one cover, in their slots' order."""
    messages = MECHANISM.encode(np.eye(3))
    tokens = ["one", "two", "three"]
    assert (
        Client(shuffler.link, most_epsilon=2.0, token=tokens).send_messages(messages)
        == 6
    )
    each = payloads(messages)
    for person, body in enumerate(shuffler.caught):
        crowd = body[:CROWD_BYTES]
        cover = body[CROWD_BYTES:]
        (envelopes,) = open_envelopes(shuffler.cover.secret, cover_info(crowd), [cover])
        size = len(envelopes) // 2
        for slot in range(2):
            envelope = envelopes[slot * size : (slot + 1) * size]
            opened = open_envelopes(
                shuffler.sealing.secret, envelope_info(crowd, slot), [envelope]
            )
            assert opened == [each[3 * slot + person]]


def test_nothing_is_asked_of_another_address_than_the_shufflers(shuffler):
    """As of the collector's, in a link that the collector made."""
    with pytest.raises(
        ValueError,
        match=r"must be at the shuffler's address https://shuffle\.example, got .*nothing was",
    ):
        Client(shuffler.link, most_epsilon=2.0, shuffler_url="https://shuffle.example")
    assert shuffler.asked == []
    assert (
        Client(
            shuffler.link, most_epsilon=2.0, shuffler_url=shuffler.url
        ).campaign.shuffling
        is not None
    )
