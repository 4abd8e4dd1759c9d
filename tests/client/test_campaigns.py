"""Campaigns: what can be collected, the document, and its signature."""

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import sstq
from paper.baselines import CSGM, Clean

pytest.importorskip("cryptography")

from sstq.client.campaigns import MOST_DENSE_ROWS, Campaign, Shuffling, read_document
from sstq.client.signing import (
    CAMPAIGN_PREFIX,
    SHUFFLER_PREFIX,
    SigningKey,
    signer,
    verify,
)

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
OPENS = datetime(2027, 1, 1, tzinfo=UTC)
CLOSES = datetime(2027, 2, 1, tzinfo=UTC)
SHUFFLING = Shuffling("https://shuffle.example", "ab" * 32, "cd" * 32, threshold=100)
MIXED = Campaign(
    "mixed", MECHANISM.replace(messages=2), closes=CLOSES, shuffling=SHUFFLING
)
FULL = Campaign(
    "rooms",
    sstq.GroupUnit(dim=6, epsilon=2.0, groups=2),
    labels=tuple("abcdef"),
    group_labels=("left", "right"),
    image_shape=(2, 3),
    opens=OPENS,
    closes=CLOSES,
    most_messages=7,
    senders="token",
    readers="public",
)
KEY = b"k" * 32


def framed(dim, frames=1):
    return sstq.FrameUnit(dim=dim, epsilon=2.0, frames=frames)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"name": "Rooms"},
            "name must be 1 to 64 characters out of a-z, 0-9 and hyphens, got 'Rooms'",
        ),
        ({"name": "a" * 65}, "name must be 1 to 64"),
        ({"name": "a\n"}, "name must be 1 to 64"),
        ({"mechanism": "frameunit"}, "mechanism must be a mechanism, got 'frameunit'"),
        ({"mechanism": Clean(6)}, "must be locally private, got clean"),
        ({"mechanism": CSGM(6, 2.0, clients=100)}, "must be locally private, got csgm"),
        (
            {"mechanism": framed(10_000, 1 << 17)},
            "rows of all frames, got 2147483648: the collector takes 24 bytes",
        ),
        (
            {"mechanism": framed(MOST_DENSE_ROWS + 1)},
            "takes 32 bytes per row, here 134 MB; choose fewer",
        ),
        (
            {
                "mechanism": sstq.GroupUnit(
                    dim=1000, epsilon=6.0, groups=1000, blocks=1000, frames=1 << 11
                )
            },
            "got 2097152000: the collector takes 24 bytes per row, here 50,332 MB; choose fewer frames or dimensions",
        ),
        (
            {"mechanism": MECHANISM.replace(messages=2), "senders": "single-use"},
            "must send one message per person",
        ),
        ({"labels": ("a", "b")}, "labels must be 6 names, got 2"),
        ({"labels": tuple("aabcde")}, "labels must be distinct"),
        (
            {"labels": ("a\n", *"bcdef")},
            "labels must be 1 to 200 printable characters each",
        ),
        ({"group_labels": ("a",)}, "group_labels must be 0 names, got 1"),
        ({"image_shape": (2, 2)}, "with the product dim = 6, got (2, 2)"),
        (
            {"image_shape": (1, 3, 2)},
            "image_shape must be height and width, and perhaps 1 or 3 channels",
        ),
        (
            {"closes": CLOSES.replace(microsecond=5)},
            "closes must be a datetime in UTC with whole seconds",
        ),
        (
            {"opens": CLOSES, "closes": OPENS},
            "closes must be after opens, 2027-02-01T00:00:00Z, got 2027-01-01",
        ),
        (
            {"most_messages": 1 << 30},
            "most_messages must be an integer in [1, 29826161]",
        ),
        (
            {"most_messages": 2, "senders": "single-use"},
            "must be 1 with senders='single-use' or a shuffler, got 2",
        ),
        (
            {"senders": "all"},
            "senders must be 'everybody' or 'token' or 'single-use', got 'all'",
        ),
        ({"shuffling": SHUFFLING}, "closes must be given if messages are shuffled"),
        (
            {"shuffling": SHUFFLING, "closes": CLOSES, "senders": "token"},
            "senders must be 'everybody' or 'single-use'",
        ),
        (
            {"shuffling": SHUFFLING, "closes": CLOSES, "most_messages": 99},
            "or a shuffler, got 99",
        ),
    ],
)
def test_a_bad_argument_is_named(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Campaign(**{"name": "rooms", "mechanism": MECHANISM} | options)


def test_what_a_collector_just_holds():
    assert Campaign("rooms", framed(10_000, 1 << 16))  # 2^30 rows
    assert Campaign("rooms", framed(MOST_DENSE_ROWS))  # in one frame
    # 2^32 messages, of which few are sent
    assert Campaign("words", sstq.Frequencies(1 << 17, 4.0))


def test_how_many_messages_an_upload_has_unless_told():
    assert Campaign("rooms", MECHANISM).most_messages == 1
    # one person's
    assert Campaign("rooms", MECHANISM.replace(messages=3)).most_messages == 3
    assert Campaign("rooms", MECHANISM).most_in_batch == 10_000
    assert Campaign("rooms", MECHANISM, senders="token").most_messages == 10_000
    assert (
        Campaign("rooms", MECHANISM, senders="single-use").most_messages
        == MIXED.most_messages
        == 1
    )
    assert Campaign("rooms", sstq.PrivUnit(10_000, 2.0)).most_in_batch == 838
    assert Campaign("rooms", MECHANISM, most_messages=3).upload_bytes(3) == 4  # 27 bits


def test_status_follows_the_times():
    second = timedelta(seconds=1)
    found = [
        FULL.status(time) for time in (OPENS - second, OPENS, CLOSES - second, CLOSES)
    ]
    assert found == ["scheduled", "open", "open", "closed"]
    assert Campaign("rooms", MECHANISM).status(OPENS) == "open"


@pytest.mark.parametrize(
    ("campaign", "sealing"),
    [(FULL, ()), (Campaign("a", MECHANISM), ()), (MIXED, (KEY, KEY))],
)
def test_json_and_documents_read_back(campaign, sealing):
    assert Campaign.from_dict(json.loads(json.dumps(campaign.to_dict()))) == campaign
    assert read_document(campaign.document([KEY], sealing)) == (
        campaign,
        (KEY,),
        sealing,
    )


def test_the_document_says_what_a_client_needs():
    document = json.loads(FULL.document([KEY]))
    assert document.pop("mechanism") == json.loads(FULL.mechanism.to_json())
    assert document == {
        "format": "sstq-campaign",
        "version": 2,
        "name": "rooms",
        "labels": list("abcdef"),
        "group_labels": ["left", "right"],
        "image_shape": [2, 3],
        "opens": "2027-01-01T00:00:00Z",
        "closes": "2027-02-01T00:00:00Z",
        "most_messages": 7,
        "senders": "token",
        "readers": "public",
        "digest": FULL.mechanism.digest(),
        "message_bits": FULL.mechanism.message_bits,
        "keys": [KEY.hex()],
    }
    document = json.loads(MIXED.document([KEY], [KEY]))
    assert (document["slots"], document["envelope_bytes"]) == (
        2,
        48 + -(-MECHANISM.message_bits // 8),
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(format="other"), "not the document of a campaign"),
        (lambda d: d.update(version=1), "version 1, this library reads 2"),
        (lambda d: d.update(digest="0" * 64), "its digest or message_bits is wrong"),
        (lambda d: d.update(keys=[5]), "keys must be 64 hexadecimal digits"),
        (lambda d: d.update(sealing_keys=[]), "sealing_keys must be one or more keys"),
        (lambda d: d.update(more=1), "no field 'more'"),
        (lambda d: d.pop("mechanism"), "needs the field 'mechanism'"),
    ],
)
def test_a_changed_document_is_refused(change, sentence):
    document = json.loads(MIXED.document([], [KEY]))
    change(document)
    with pytest.raises(ValueError, match=sentence):
        read_document(
            json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        )


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (b"}\n", "not canonical"),
        (b',"name":"other"}', "occurs twice"),
        (b',"public":true}', "does not occur in this format"),
    ],
)
def test_a_document_has_one_form(end, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_document(FULL.document([])[:-1] + end)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"name": None}, "a campaign needs the field 'name'"),
        (
            {"mechanism": "frameunit"},
            "mechanism must be the JSON object of a mechanism",
        ),
        ({"label": []}, "no field 'label'; did you mean 'labels'"),
        ({"labels": "abcdef"}, "labels must be a list, got 'abcdef'"),
        (
            {"opens": "tomorrow"},
            "opens must be a time such as 2027-01-31T18:00:00Z, got 'tomorrow'",
        ),
        ({"closes": "2027-02-03T00:00:00+01:00"}, "closes must be a time such as"),
        ({"most_messages": "5"}, "most_messages must be 1 .* got '5'"),
        ({"url": "ftp://shuffle.example"}, "url must be a URL with http"),
        (
            {"url": "https://shuffle.example/"},
            "without a query, fragment or final slash",
        ),
        (
            {"url": "https://shuffle.example?a=b"},
            "without a query, fragment or final slash",
        ),
        ({"key": "AB" * 32}, "key must be 64 hexadecimal digits"),
        ({"threshold": 1}, r"threshold must be an integer in \[2, 1000000000\], got 1"),
        ({"delta": 0.5}, "delta must be a number in"),
        (
            {"below_threshold": "keep"},
            "below_threshold must be 'drop' or 'local', got 'keep'",
        ),
        (
            {"treshold": 3},
            "shuffling has no field 'treshold'; did you mean 'threshold'",
        ),
    ],
)
def test_json_of_anything_else_is_refused(data, sentence):
    terms = MIXED.to_dict()
    (
        terms
        if set(data) & {*terms, "label", "labels", "opens"}
        else terms["shuffling"]
    ).update(data)
    with pytest.raises(ValueError, match=sentence):
        Campaign.from_dict(terms)


def test_a_crowd_is_everything_that_people_agreed_to():
    others = [
        replace(MIXED, name="mix"),
        replace(MIXED, senders="single-use"),
        replace(MIXED, mechanism=MIXED.mechanism.replace(epsilon=1.0)),
        *(
            replace(MIXED, shuffling=replace(SHUFFLING, **change))
            for change in (
                {"threshold": 2},
                {"below_threshold": "local"},
                {"delta": 1e-5},
                {"url": "https://collect.example"},
                {"key": "ac" * 32},
                {"sealing_key": "ce" * 32},
            )
        ),
    ]
    crowds = {other.crowd(b"1" * 32) for other in others} | {
        MIXED.crowd(b"1" * 32),
        MIXED.crowd(b"2" * 32),
    }
    assert {len(crowd) for crowd in crowds} == {32}
    assert len(crowds) == len(others) + 2
    assert (
        replace(MIXED, closes=datetime(2099, 1, 1, tzinfo=UTC)).crowd(b"1" * 32)
        in crowds
    )


def test_a_signature_fits_one_document_one_key_and_one_prefix():
    key = SigningKey.generate()
    other = SigningKey.generate()
    signature = key.sign(b"document")
    verify(b"document", signature, SigningKey(key.secret).public)
    raw = base64.b64decode(signature)
    wrong = [
        (b"documenT", signature, key.public),
        (b"document", signature, other.public),
        (b"document", base64.b64encode(raw[:-1]).decode(), key.public),
        (b"document", signature + "!", key.public),
        (b"document", "ü", key.public),
        (b"document", signature, b"short"),
        (b"document", key.sign(b"document", b"something else\x00"), key.public),
    ]
    for arguments in wrong:
        with pytest.raises(
            ValueError, match="the signature does not match this document and key"
        ):
            verify(*arguments)
    assert key.sign(CAMPAIGN_PREFIX + b"document", b"") == signature
    shuffled = key.sign(b"document", SHUFFLER_PREFIX)
    verify(b"document", shuffled, key.public, SHUFFLER_PREFIX)
    for prefix, other_signature in (
        (SHUFFLER_PREFIX, signature),
        (CAMPAIGN_PREFIX, shuffled),
    ):
        with pytest.raises(ValueError, match="does not match"):
            verify(b"document", other_signature, key.public, prefix)
    assert repr(key) == "SigningKey()"  # without its secret


def test_the_signer_is_a_named_key_and_the_pinned_one():
    one = SigningKey.generate()
    two = SigningKey.generate()
    named = [one.public, two.public]
    signature = one.sign(b"document")
    assert signer(b"document", signature, named, None) == signer(
        b"document", signature, named, one.public.hex()
    )
    for pinned, words in (
        (two.public.hex(), "signature is wrong"),
        ("00" * 32, "is not the pinned one"),
    ):
        with pytest.raises(ValueError, match=words):
            signer(b"document", signature, named, pinned)
    with pytest.raises(ValueError, match="signature is wrong"):
        signer(b"document", signature, [two.public], None)
