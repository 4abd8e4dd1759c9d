"""Batches in the collector's database: taken once, opened once and counted."""

import hashlib
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.accounting import shuffled_epsilon
from sstq.client import Campaign, Shuffling
from sstq.client.sealing import SealingKey, envelope_info, payloads, seal
from sstq.client.signing import SigningKey
from sstq.service.background import Workers
from sstq.service.batches import (
    BATCH_PREFIX,
    Manifest,
    count_batches,
    open_next,
    read_manifest,
    receive,
    shuffled_claim,
)
from sstq.service.security import Problem
from sstq.service.store import UnknownCampaign
from tests.patience import until
from tests.service import both
from tests.service.nursery import fork

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0, messages=2)
KEY = SealingKey.generate()
SHUFFLER = SigningKey.generate()
TOKENS = 1000
TERMS = Shuffling(
    "https://shuffle.example", SHUFFLER.public.hex(), "cd" * 32, threshold=20
)
CAMPAIGN = Campaign(
    "steps",
    MECHANISM,
    closes=datetime(2100, 1, 1, tzinfo=UTC),
    senders="single-use",
    shuffling=TERMS,
)
CROWD = CAMPAIGN.crowd(KEY.public)
SECRETS = {CROWD.hex(): KEY.secret}


@pytest.fixture
def store(store):
    store.create("steps", MECHANISM, "{}")
    return store


def messages(count, seed=0):
    return MECHANISM.encode(np.eye(6)[np.arange(count) % 6], seed)[:count]


def sealed(found, slot=0, public=KEY.public, campaign=CAMPAIGN):
    info = envelope_info(campaign.crowd(public), slot)
    return [seal(row, public, info) for row in payloads(found)]


def manifest(envelopes, **changes):
    body = b"".join(envelopes)
    values = {
        "campaign": "steps",
        "digest": CAMPAIGN.digest,
        "crowd": CROWD.hex(),
        "slot": 0,
        "batch": secrets.token_hex(16),
        "size": len(envelopes),
        "tokens": TOKENS,
        "part": 0,
        "parts": 1,
        "count": len(envelopes),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return Manifest(**values | changes), body


def take(store, envelopes, **changes):
    assert receive(store, *manifest(envelopes, **changes))
    return open_next(store, CAMPAIGN, SECRETS, Workers())


def counts(store):
    found = count_batches(store, "steps")
    return [
        found[name]
        for name in ("batches", "accepted", "foreign", "malformed", "repeated")
    ]


def state(store):
    while store.fold("steps"):
        pass
    return store.state("steps")


@both
def test_messages_of_a_batch_are_folded_like_any_others(store):
    sent = messages(30)
    assert take(store, sealed(sent))
    expected = MECHANISM.aggregator()
    expected.update(sent)
    assert np.array_equal(state(store).sums(), expected.sums())
    assert counts(store) == [1, 30, 0, 0, 0]
    assert not open_next(store, CAMPAIGN, SECRETS, Workers())


def test_a_part_that_comes_again_changes_nothing(store):
    found = manifest(sealed(messages(20)))
    for _ in range(2):
        assert receive(store, *found)
    assert open_next(store, CAMPAIGN, SECRETS, Workers())
    assert receive(store, *found)  # it was opened: the shuffler did not hear of it
    assert not open_next(store, CAMPAIGN, SECRETS, Workers())
    assert counts(store) == [1, 20, 0, 0, 0]
    assert state(store).count == 20


def test_a_batch_is_opened_when_all_its_parts_are_there(store):
    envelopes = sealed(messages(30))
    first, body = manifest(envelopes[:20], size=30, parts=2)
    assert receive(store, first, body)
    assert not open_next(store, CAMPAIGN, SECRETS, Workers())
    assert state(store).count == 0
    other = b"".join(envelopes[20:])
    second = replace(first, part=1, count=10, sha256=hashlib.sha256(other).hexdigest())
    assert receive(store, second, other)
    assert open_next(store, CAMPAIGN, SECRETS, Workers())
    assert state(store).count == 30
    assert [crowd["people"] for crowd in shuffled_claim(store, CAMPAIGN)["crowds"]] == [
        30
    ]


def test_another_batch_of_the_same_name_is_refused(store):
    found, body = manifest(sealed(messages(20)))
    assert receive(store, found, body)
    assert not receive(store, replace(found, slot=1), body)
    with pytest.raises(UnknownCampaign):
        receive(store, replace(found, campaign="unknown"), body)


@both
def test_foreign_malformed_and_repeated_envelopes_count_for_nobody(store):
    good = sealed(messages(20))
    bad = [
        *sealed(messages(1), slot=1),
        *sealed(messages(1), campaign=replace(CAMPAIGN, name="other")),
        *sealed(messages(1), campaign=replace(CAMPAIGN, senders="everybody")),
        *sealed(messages(1), public=SealingKey.generate().public),
        bytes(len(good[0])),
    ]
    size = -(-MECHANISM.message_bits // 8)
    info = envelope_info(CROWD, 0)
    # Bits after the message, which could hold a name.
    named = [seal(bytes([*[0] * (size - 1), 128]), KEY.public, info)]
    assert MECHANISM.message_bits % 8
    assert take(store, [*good, *bad, *named, good[3], good[3]])
    assert counts(store) == [1, 20, 5, 1, 2]
    fresh = sealed(messages(21, seed=1))
    assert take(store, [*fresh, *good[:5]])  # of an earlier batch
    assert counts(store) == [2, 41, 5, 1, 7]
    assert state(store).count == 41


def test_a_key_that_is_gone_opens_nothing(store):
    assert receive(store, *manifest(sealed(messages(20))))
    assert open_next(store, CAMPAIGN, {}, Workers())
    assert counts(store) == [1, 0, 20, 0, 0]


def batch_of(crowd, slot):
    return crowd.hex() + slot.to_bytes(4, "big").hex()


def claimed(people):
    """What a crowd of so many people justifies."""
    both = [
        shuffled_epsilon(MECHANISM, honest, TERMS.delta, messages=2)
        for honest in (people, people // 2)
    ]
    claim = {
        "people": people,
        "epsilon": both[0],
        "delta": TERMS.delta,
        "epsilon_if_half_fake": both[1],
    }
    return claim | {"isolating_share": (people - 1) / TOKENS}


def test_each_crowd_has_a_claim_of_its_own(store):
    assert shuffled_claim(store, CAMPAIGN)["crowds"] == []
    crowd, other, spoiled, few = (secrets.token_bytes(12) for _ in range(4))
    take(store, sealed(messages(300)), batch=batch_of(crowd, 0))
    assert shuffled_claim(store, CAMPAIGN)["crowds"] == [claimed(300)]
    # The other slot's batch of the same crowd: 50 of its envelopes do not open.
    foreign = sealed(messages(1), slot=0) * 50
    take(
        store,
        [*sealed(messages(250), slot=1), *foreign],
        slot=1,
        batch=batch_of(crowd, 1),
    )
    assert shuffled_claim(store, CAMPAIGN)["crowds"] == [claimed(250)]
    assert claimed(300)["epsilon"] < claimed(250)["epsilon"] < 4.0
    # All of a batch is refused: nobody's message was seen, and nothing changes.
    take(store, sealed(messages(1), slot=1) * 20, batch=batch_of(other, 0))
    assert shuffled_claim(store, CAMPAIGN)["crowds"] == [claimed(250)]
    # Junk, and fewer than the threshold, which a campaign may allow: it is the matter of those crowds.
    take(
        store,
        [*sealed(messages(1, seed=3)), *[bytes(CAMPAIGN.envelope_bytes)] * 99],
        batch=batch_of(spoiled, 0),
    )
    take(store, sealed(messages(10, seed=2)), batch=batch_of(few, 0))
    claim = shuffled_claim(store, CAMPAIGN)
    alone = shuffled_epsilon(MECHANISM, 1, TERMS.delta, messages=2)
    local = {"epsilon": 4.0, "delta": 0.0, "epsilon_if_half_fake": 4.0}
    assert claim["crowds"] == [
        claimed(250),
        {
            "people": 1,
            "epsilon": alone,
            "delta": TERMS.delta,
            "epsilon_if_half_fake": 4.0,
            "isolating_share": 0.0,
        },
        {"people": 10, "isolating_share": 9 / TOKENS} | local,
    ]
    assert 3.99 < alone < 4.0
    assert claim["local_epsilon"] == 4.0
    assert (
        shuffled_claim(store, replace(CAMPAIGN, senders="everybody", shuffling=None))
        is None
    )
    # Without single-use tokens one sender could be a whole crowd.
    found = shuffled_claim(store, replace(CAMPAIGN, senders="everybody"))["crowds"]
    assert found == [
        {"people": n, "isolating_share": (n - 1) / TOKENS} | local for n in (250, 1, 10)
    ]


def test_a_claim_without_tokens_names_no_share_of_them(store):
    take(store, sealed(messages(20)), tokens=0)
    (crowd,) = shuffled_claim(store, replace(CAMPAIGN, senders="everybody"))["crowds"]
    assert crowd["isolating_share"] is None


_OPENING = """
import time
from sstq.client.sealing import SealingKey, seal
from sstq.service import batches
from sstq.service.background import Workers
batches._WORTH_A_WORKER, batches._TASK_ENVELOPES = 20, 7
key, openers = SealingKey.generate(), Workers(1)
body = b"".join(seal(number.to_bytes(4), key.public, b"info") for number in range(20))
found = batches.open_all(openers, key.secret, b"info", body[:-52] + bytes(52), 52)
assert found == [number.to_bytes(4) for number in range(19)] + [None]
print(next(iter(openers._pool._processes)), flush=True)
time.sleep(600)
"""


def test_many_envelopes_are_opened_by_a_process_that_ends_with_a_killed_collector(
    tmp_path,
):
    process = fork([], tmp_path / "log", {}, _OPENING)
    with process.stdout:
        worker = process.stdout.readline()
    process.kill()
    assert worker, (tmp_path / "log").read_text()
    until(lambda: not runs(int(worker)))


def runs(process):
    """Whether a process is there, and not only waiting to be buried by a parent that does not care."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_manifest_is_read_only_if_the_shuffler_signed_it():
    found, _ = manifest(sealed(messages(1)))
    headers = found.signed(SHUFFLER)
    text = headers["SSTQ-Batch"]
    signature = headers["SSTQ-Signature"]
    assert read_manifest(text, signature, SHUFFLER.public) == found
    for wrong in (
        (text.replace('"slot":0', '"slot":1'), signature),
        (text, ""),
        (text, found.signed(SigningKey.generate())["SSTQ-Signature"]),
    ):
        with pytest.raises(
            Problem, match="403: The batch is not signed by the campaign's shuffler"
        ):
            read_manifest(*wrong, SHUFFLER.public)
    for wrong, reason in (
        ("{", "Expecting"),
        (text.replace('"slot":0', '"slot":-1'), "slot must be"),
        ("[]", ""),
    ):
        with pytest.raises(
            Problem, match=f"400: The header SSTQ-Batch cannot be read: {reason}"
        ):
            read_manifest(
                wrong, SHUFFLER.sign(wrong.encode(), BATCH_PREFIX), SHUFFLER.public
            )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot", -1),
        ("size", 0),
        ("parts", 30),
        ("part", 1),
        ("count", 21),
        ("batch", "ab"),
        ("crowd", "x" * 64),
    ],
)
def test_a_manifest_that_cannot_be(name, value):
    with pytest.raises(ValueError, match=name):
        manifest([b""] * 20, **{name: value})
