"""What strangers can try at an open collector: each of these attacks worked once."""

import asyncio
import json
import time
from datetime import UTC, datetime
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

import httpx
from prometheus_client import generate_latest

from sstq.client import Campaign
from sstq.service import Settings, create_app, reading, results, security
from sstq.service import clock as clocks
from sstq.service.clock import Clock
from sstq.service.collector import Collector
from sstq.service.node import RunningCampaign
from sstq.service.security import AddressLimits, BodyShares, Guard
from sstq.service.shuffler import Shuffler, ShufflerSettings
from sstq.service.store import Refusal, Upload
from sstq.service.terms import OwnTerms
from tests.service.serving import ADMINISTRATOR, packed, serving

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


# One request counts as one person


@pytest.mark.slow
def test_an_anonymous_upload_carries_one_persons_messages(server):
    server.create("alone", MECHANISM)
    nobody = {"Authorization": None}
    many = server.send("alone", MECHANISM, packed(MECHANISM, 5), 5, headers=nobody)
    assert (
        many.status_code,
        "Batches need a sender's token" in many.json()["detail"],
    ) == (413, True)
    assert (
        server.send(
            "alone", MECHANISM, packed(MECHANISM, 1), 1, headers=nobody
        ).status_code
        == 200
    )
    several = sstq.FrameUnit(dim=6, epsilon=2.0, messages=3)
    server.create("three", several)
    X = np.zeros((1, 6))
    assert (
        server.send(
            "three", several, several.encode(X).to_bytes(), 3, headers=nobody
        ).status_code
        == 200
    )
    two = several.encode(np.zeros((2, 6))).to_bytes()
    assert server.send("three", several, two, 6, headers=nobody).status_code == 413
    content = {
        "name": "large",
        "mechanism": json.loads(MECHANISM.to_json()),
        "most_messages": 50,
    }
    assert server.administer("POST", "/v1/campaigns", json=content).status_code == 422


@pytest.mark.slow
def test_a_senders_token_has_a_quota_of_people(server):
    server.create("batches", MECHANISM)
    made = server.administer(
        "POST", "/v1/campaigns/batches/senders", json={"people": 7}
    ).json()
    assert made["people"] == 7
    token = made["send_token"]
    body = packed(MECHANISM, 5)
    for _ in range(2):  # a retry costs nothing
        assert (
            server.send(
                "batches", MECHANISM, body, 5, token=token, key="4f" * 16
            ).status_code
            == 200
        )
    beyond = server.send("batches", MECHANISM, body, 5, token=token)
    assert (beyond.status_code, "quota" in beyond.json()["detail"]) == (403, True)
    assert (
        server.send(
            "batches", MECHANISM, packed(MECHANISM, 2), 2, token=token
        ).status_code
        == 200
    )
    assert server.send("batches", MECHANISM, body, 5, token="x" * 32).status_code == 403
    assert server.status("batches")["received"] == 7


# Readers


@pytest.mark.slow
def test_readers_see_steps_and_the_owner_sees_all(server):
    server.create("steps", MECHANISM, readers="public", release_every=4)
    path = "/v1/campaigns/steps"

    def seen():
        status = server.http.get(f"{path}/status").json()
        count = server.http.get(f"{path}/estimate").json()["count"]
        assert status["received"] == status["folded"] == status["covered"] == count
        assert status["tokens_issued"] is None
        return count

    counts = []
    for number in range(14):
        server.send("steps", MECHANISM, packed(MECHANISM, 1, number), 1)
        server.wait("steps", number + 1)
        counts.append(seen())
        progress = server.http.get(f"{path}/progress").json()
        # Errors of other estimates would tell single messages.
        assert {point for point, _ in progress["measured"]} <= set(counts)
        assert progress["arrivals"] == []  # this hour is not over
    # A step is there as soon as it is complete.
    assert [counts.index(count) + 1 for count in (4, 8, 12)] == [4, 8, 12]
    assert sorted(set(counts)) == [0, 4, 8, 12]
    assert server.administer("PATCH", path, json={"closed": True}).status_code == 200
    time.sleep(0.5)
    assert seen() == 12  # the 2 that remain would show two messages


def test_steps_grow_with_the_campaign_and_less_than_one_stays_with_the_owner(store):
    def released(name, counts, every):
        """What readers see after each of these uploads, and after the end."""
        store.create(name, MECHANISM, "{}")
        found = []
        for number, count in enumerate(counts):
            store.receive(
                [
                    Upload(
                        name,
                        bytes([number]) * 16,
                        count,
                        packed(MECHANISM, count, number),
                    )
                ]
            )
            store.fold(name)
            results.refresh(store, Campaign(name, MECHANISM), release_every=every)
            found.append(results.covered(store, "public").get(name, 0))
        results.release_last(store, {name: every})
        return [*found, results.covered(store, "public").get(name, 0)]

    seen = released("grows", [2000, *[20] * 20], 30)
    steps = sorted(set(seen[:-1]))
    assert steps[0] == 2000
    # 40 messages and more, not 30
    assert (np.diff(steps) >= 0.02 * np.array(steps[1:])).all()
    assert len(steps) > 6
    assert results.covered(store)["grows"] == 2400
    assert [
        point
        for point, _ in results.progress(store, Campaign("grows", MECHANISM))[
            "measured"
        ]
    ] == [2000, 2300]
    # At the end a smaller step is enough for what remains, but never less than was promised.
    assert released("ends", [2000, 30], 30) == [2000, 2000, 2030]
    assert released("rests", [2000, 29], 30) == [2000, 2000, 2000]
    assert released("few", [29, 20], 50) == [0, 0, 0]
    assert results.covered(store)["few"] == 49


_STRICT = """
import json, sys
from sstq.service import Settings, node, run
node._READ_BURST = 3
run(Settings(**json.loads(sys.argv[1]), reads_per_second=1e-4), lambda url: print(url, flush=True))
"""


@pytest.mark.slow
def test_who_reads_too_fast_waits_and_others_do_not(tmp_path):
    with serving(tmp_path, program=_STRICT) as strict:
        strict.create("open", MECHANISM)
        begun = time.monotonic()
        answers = [strict.http.get("/v1/key").status_code for _ in range(4)]
        assert (answers[-1], time.monotonic() - begun > 0.9) == (429, True)
        assert strict.http.get("/health").status_code == 200
        assert (
            strict.send("open", MECHANISM, packed(MECHANISM, 1), 1).status_code == 200
        )
        with strict.connect("127.0.0.10") as other:
            other.sendall(b"GET /v1/key HTTP/1.1\r\nHost: a\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        assert "Traceback" not in strict.log.read_text()


def test_a_large_answer_is_charged_before_it_is_sent():
    """Who asks again while it is on its way waits."""
    owed = []

    async def app(scope, receive, send):
        headers = [(b"content-length", b"%d" % (1 << 25))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        owed.append(limits.take("127.0.0.1"))

    limits = AddressLimits(1.0, 400)
    where = {
        "method": "GET",
        "path": "/v1/a",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "headers": [],
    }
    asyncio.run(
        Guard(app, limits, BodyShares())(
            {"type": "http", **where}, AsyncMock(), AsyncMock()
        )
    )
    assert owed[0] > 100


def test_readers_of_an_estimate_share_one_copy_in_pieces(store, monkeypatch):
    monkeypatch.setattr(reading, "_PIECE", 1000)
    store.create("c", MECHANISM, "{}")
    store.receive([Upload("c", b"k" * 16, 50, packed(MECHANISM, 50, 1))])
    store.fold("c")
    results.refresh(store, Campaign("c", MECHANISM))
    entry = RunningCampaign(store.campaigns()["c"], Campaign("c", MECHANISM), b"", "")
    given = (Mock(store=store), entry, "owner", 50, False)
    assert reading._rendered(*given) is reading._rendered(*given)

    async def cut():
        turns = asyncio.Semaphore(1)
        return [piece async for piece in reading._pieces(b"x" * 2500, turns)]

    assert [len(piece) for piece in asyncio.run(cut())] == [1000, 1000, 500]


def test_large_answers_that_are_read_at_once_do_not_hold_up_uploads(monkeypatch):
    # Readers that never let an answer wait; the event loop had no other turn until the last piece.
    monkeypatch.setattr(reading, "_PIECE", 1000)
    rounds = 0

    async def upload():
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def read(turns):
        async for _ in reading._pieces(bytes(20_000), turns):
            pass

    async def run():
        turns = asyncio.Semaphore(1)
        others = asyncio.create_task(upload())
        await asyncio.gather(*(read(turns) for _ in range(10)))
        others.cancel()

    asyncio.run(run())
    assert rounds >= 10 * 20


@pytest.mark.slow
def test_requests_sent_at_the_same_moment_owe_as_much_as_one_after_another(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(security, "_BYTES_PER_UNIT", 100)
    monkeypatch.setattr(security, "_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(reading, "_rendered", lambda *_: bytes(25_600))  # 256 units
    url = f"sqlite:///{tmp_path}/c.sqlite3"
    # Nothing is refilled while the test runs: the bucket has 400 units.
    application = create_app(Settings(url, ADMINISTRATOR, reads_per_second=0.001))
    campaign = {"name": "c", "mechanism": json.loads(MECHANISM.to_json())}
    campaign["readers"] = "public"
    owner = {"Authorization": f"Bearer {ADMINISTRATOR}"}

    async def run():
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://c") as http:
            await http.post("/v1/campaigns", json=campaign, headers=owner)
            path = "/v1/campaigns/c/estimate"
            return await asyncio.gather(*(http.get(path) for _ in range(6)))

    answers = asyncio.run(run())
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [429] * 4


# Clocks


def test_a_clock_that_jumps_is_not_followed_until_it_has_lasted(monkeypatch):
    clock = None

    def at(wall, steady):
        nonlocal clock
        monkeypatch.setattr(time, "time", lambda: wall)
        monkeypatch.setattr(clocks, "steady", lambda: steady)
        clock = clock or Clock()
        return clock.now().timestamp()

    assert at(1e9, 0.0) == 1e9

    assert at(1e9 + 60, 61) == 1e9 + 60  # it drifts
    assert at(1e9 + 864000, 70) == pytest.approx(1e9 + 69)  # 10 days ahead
    assert at(1e9 + 80, 81) == 1e9 + 80  # and back
    assert at(1e9 + 864000, 100) == pytest.approx(1e9 + 99)
    # it stays: it was right
    assert at(1e9 + 864000 + 3700, 3800) == 1e9 + 864000 + 3700


def test_many_small_steps_of_a_clock_are_a_jump(monkeypatch):
    """38 steps of 4.8 minutes within half a minute closed campaigns three hours early."""
    monkeypatch.setattr(time, "time", lambda: 1e9)
    monkeypatch.setattr(clocks, "steady", lambda: 0.0)
    clock = Clock()
    steps = iter(range(1, 39))
    for step in steps:
        monkeypatch.setattr(time, "time", lambda step=step: 1e9 + 288.0 * step)
        assert clock.now().timestamp() <= 1e9 + 300
    assert clock.doubtful
    monkeypatch.setattr(clocks, "steady", lambda: 3601.0)
    assert clock.now().timestamp() == 1e9 + 288.0 * 38  # it has lasted
    assert not clock.doubtful


def started(path, closes):
    """A shuffler, and a campaign that closes then."""
    entry = Mock(is_stage=False)
    entry.campaign.closes = datetime.fromtimestamp(closes, UTC)
    settings = ShufflerSettings(
        f"sqlite:///{path}/s.sqlite3", ADMINISTRATOR, collector="http://127.0.0.1:1"
    )
    return Shuffler(settings), entry


def test_a_shuffler_that_starts_again_with_a_clock_three_hours_ahead_ends_no_campaign(
    tmp_path, monkeypatch
):
    """The witness is the machine's steady clock, as while running: whoever waits is neither dropped nor forwarded."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    right, entry = started(tmp_path, now + 7200)
    right.purge()
    right.store.close()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 3600)
    for _ in range(2):  # a second start does not make it right
        wrong, _ = started(tmp_path, now + 7200)
        wrong.purge()
        assert wrong.clock.now() < entry.campaign.closes
        assert not wrong.has_ended(entry)
        assert b"sstq_clock_doubtful 1.0" in generate_latest(wrong.metrics.registry)
        wrong.store.close()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    again, _ = started(tmp_path, now + 7200)
    assert abs(again.clock.now().timestamp() - now) < 120
    assert not again.clock.doubtful
    again.store.close()


def test_a_shuffler_that_starts_with_a_wrong_clock_ends_no_campaign(
    tmp_path, monkeypatch
):
    """The machine was started again: nothing but its clock knows the time."""
    now = time.time()
    ahead = 0.0
    monkeypatch.setattr(time, "time", lambda: now + ahead)
    right, entry = started(tmp_path, now + 3 * 3600)
    right.purge()
    assert not right.has_ended(entry)
    right.store.close()
    ahead = 4 * 3600.0
    monkeypatch.setattr(clocks, "machine", lambda: "started again")
    for _ in range(2):  # a second start does not make it right
        wrong, _ = started(tmp_path, now + 3 * 3600)
        wrong.purge()
        assert wrong.clock.now() > entry.campaign.closes
        assert not wrong.has_ended(entry)
        wrong.store.close()
    steady = clocks.steady() + 3601
    monkeypatch.setattr(clocks, "steady", lambda: steady)
    assert wrong.has_ended(entry)  # it was right


def test_a_wrong_clock_at_the_start_deletes_nothing(tmp_path, monkeypatch):
    """The service starts some days ahead for a while; afterwards a retry counts once and tokens are worth something."""
    settings = Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR)
    now = time.time()
    ahead = 0.0
    monkeypatch.setattr(time, "time", lambda: now + ahead)
    first = Collector(settings)
    closes = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 3 * 86400))
    terms = {"senders": "single-use", "closes": closes}
    first.create(
        Campaign.from_dict({"name": "c", "mechanism": MECHANISM} | terms), OwnTerms()
    )
    first.store.issue("c", [b"t" * 32, b"u" * 32])
    sent = Upload("c", b"k" * 16, 1, packed(MECHANISM, 1), b"t" * 32)
    assert first.store.receive([sent]) == [1]
    first.purge()
    first.store.close()
    ahead = 400 * 86400.0
    monkeypatch.setattr(clocks, "machine", lambda: "started again")
    wrong = Collector(settings)
    for _ in range(3):
        wrong.purge()
    wrong.store.close()
    ahead = 0.0
    monkeypatch.undo()
    again = Collector(settings)
    again.purge()
    assert again.store.receive([sent]) == [1]
    assert again.store.counts()["c"].received == 1
    assert again.store.receive(
        [Upload("c", b"l" * 16, 1, packed(MECHANISM, 1), b"u" * 32)]
    ) == [1]
    assert again.store.receive(
        [Upload("c", b"m" * 16, 1, packed(MECHANISM, 1), b"t" * 32)]
    ) == [Refusal.SPENT]
    again.store.close()
