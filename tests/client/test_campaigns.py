"""Campaigns: what can be collected, the document, and its signature."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

import sstq

pytest.importorskip("cryptography")

from sstq.client.campaigns import MOST_DENSE_ROWS, Campaign, read_document
from sstq.client.signing import CAMPAIGN_PREFIX, SigningKey, verify

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
OPENS, CLOSES = datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC)


def full():
    return Campaign(
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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "Rooms"}, "name must be 1 to 64 characters out of a-z, 0-9 and hyphens, got 'Rooms'"),
        ({"name": "a" * 65}, "name must be 1 to 64"),
        ({"name": "a\n"}, "name must be 1 to 64"),
        ({"mechanism": "frameunit"}, "mechanism must be a mechanism, got 'frameunit'"),
        ({"labels": ("a", "b")}, "labels must be 6 names, got 2"),
        ({"labels": tuple("aabcde")}, "labels must be distinct"),
        ({"labels": ("a\n", *"bcdef")}, "labels must be 1 to 200 printable characters each"),
        ({"group_labels": ("a",)}, "group_labels must be 0 names, got 1"),
        ({"image_shape": (2, 2)}, "with the product dim = 6, got (2, 2)"),
        ({"image_shape": (1, 3, 2)}, "image_shape must be height and width, and perhaps 1 or 3 channels"),
        ({"mechanism": sstq.FrameUnit(dim=6, epsilon=2.0, bits=3)}, "with trust='local' and coin='public': the"),
        ({"mechanism": sstq.Clean(6)}, "must be locally private with coin='private', got clean with trust='none'"),
        ({"mechanism": sstq.CSGM(6, 2.0, clients=100)}, "got csgm with trust='aggregator'"),
        ({"closes": CLOSES.replace(microsecond=5)}, "closes must be a datetime in UTC with whole seconds"),
        ({"opens": CLOSES, "closes": OPENS}, "closes must be after opens, 2027-02-01T00:00:00Z, got 2027-01-01"),
        ({"most_messages": 1 << 30}, "most_messages must be an integer in [1, 29826161]"),
        (
            {"most_messages": 2, "senders": "single-use"},
            "most_messages must be 1 with senders='single-use' or a shuffler, got 2",
        ),
        ({"senders": "all"}, "senders must be 'everybody' or 'token' or 'single-use', got 'all'"),
    ],
)
def test_a_bad_argument_is_named(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Campaign(**{"name": "rooms", "mechanism": MECHANISM} | options)


def test_the_memory_of_a_collector_is_capped_and_the_message_says_why():
    assert Campaign("rooms", sstq.FrameUnit(dim=10_000, epsilon=2.0, frames=1 << 16))  # 2^30 rows
    assert Campaign("rooms", sstq.FrameUnit(dim=MOST_DENSE_ROWS, epsilon=2.0))  # in one frame
    too_large = {
        "131072 frames × 16384 rows × 1 blocks: .* 24 bytes per row, here 51,540 MB": {
            "dim": 10_000,
            "frames": 1 << 17,
        },
        "1 frames × 4194304 rows × 1 blocks: .* 32 bytes per row, here 134 MB": {"dim": MOST_DENSE_ROWS + 1},
    }
    for said, options in too_large.items():
        with pytest.raises(ValueError, match=said):
            Campaign("rooms", sstq.FrameUnit(epsilon=2.0, **options))
    with pytest.raises(ValueError, match="2048 frames × 1024 rows × 1000 blocks"):
        Campaign("rooms", sstq.GroupUnit(dim=1000, epsilon=6.0, groups=1000, blocks=1000, frames=1 << 11))


def test_how_many_messages_an_upload_has_unless_told():
    assert Campaign("rooms", MECHANISM).most_messages == 1
    assert Campaign("rooms", MECHANISM.replace(messages=3)).most_messages == 3  # one person's
    assert Campaign("rooms", MECHANISM).most_in_batch == 10_000
    assert Campaign("rooms", MECHANISM, senders="token").most_messages == 10_000
    assert Campaign("rooms", MECHANISM, senders="single-use").most_messages == 1
    assert Campaign("rooms", sstq.PrivUnit(10_000, 2.0)).most_in_batch == 838
    assert Campaign("rooms", MECHANISM, most_messages=3).upload_bytes(3) == 4  # 27 bits


def test_status_follows_the_times():
    campaign = full()
    assert campaign.status(OPENS - timedelta(seconds=1)) == "scheduled"
    assert campaign.status(OPENS) == "open"
    assert campaign.status(CLOSES - timedelta(seconds=1)) == "open"
    assert campaign.status(CLOSES) == "closed"
    assert Campaign("rooms", MECHANISM).status(OPENS) == "open"


@pytest.mark.parametrize("campaign", [full(), Campaign("a", MECHANISM)])
def test_json_and_documents_read_back(campaign):
    assert Campaign.from_dict(json.loads(json.dumps(campaign.to_dict()))) == campaign
    key = SigningKey.generate()
    assert read_document(campaign.document([key.public])) == (campaign, (key.public,), ())


def test_the_document_says_what_a_client_needs():
    campaign = full()
    document = json.loads(campaign.document([b"k" * 32]))
    assert document.pop("mechanism") == json.loads(campaign.mechanism.to_json())
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
        "digest": campaign.mechanism.digest(),
        "message_bits": campaign.mechanism.message_bits,
        "keys": [(b"k" * 32).hex()],
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(format="other"), "not the document of a campaign"),
        (lambda d: d.update(version=1), "version 1, this library reads 2"),
        (lambda d: d.update(digest="0" * 64), "its digest or message_bits is wrong"),
        (lambda d: d.update(keys=[5]), "keys must be 64 hexadecimal digits"),
        (lambda d: d.update(more=1), "no field 'more'"),
        (lambda d: d.pop("mechanism"), "needs the field 'mechanism'"),
    ],
)
def test_a_changed_document_is_refused(change, sentence):
    document = json.loads(full().document([]))
    change(document)
    with pytest.raises(ValueError, match=sentence):
        read_document(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def test_a_document_has_one_form():
    raw = full().document([])
    with pytest.raises(ValueError, match="not canonical"):
        read_document(raw + b"\n")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"mechanism": "frameunit"}, "mechanism must be the JSON object that `sstq spec` writes"),
        ({"label": []}, "no field 'label'; did you mean 'labels'"),
        ({"opens": "tomorrow"}, "opens must be a time such as 2027-01-31T18:00:00Z, got 'tomorrow'"),
        ({"closes": "2027-02-03T00:00:00+01:00"}, "closes must be a time such as"),
        ({"most_messages": "5"}, "most_messages must be an integer in"),
    ],
)
def test_json_of_anything_else_is_refused(data, sentence):
    with pytest.raises(ValueError, match=sentence):
        Campaign.from_dict({"name": "a", "mechanism": json.loads(MECHANISM.to_json())} | data)


def test_booleans_and_names_that_occur_twice_are_refused():
    raw = full().document([])
    with pytest.raises(ValueError, match="occurs twice"):
        read_document(raw[:-1] + b',"name":"other"}')
    with pytest.raises(ValueError, match="does not occur in this format"):
        read_document(raw[:-1] + b',"public":true}')


def test_a_signature_fits_one_document_one_key_and_one_prefix():
    key, other = SigningKey.generate(), SigningKey.generate()
    signature = key.sign(b"document")
    verify(b"document", signature, key.public)
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
        with pytest.raises(ValueError, match="the signature does not match this document and key"):
            verify(*arguments)
    assert key.sign(CAMPAIGN_PREFIX + b"document", b"") == signature


def test_the_same_secret_is_the_same_key_and_is_not_shown():
    key = SigningKey.generate()
    assert SigningKey(key.secret).public == key.public
    assert key.secret.hex() not in repr(key)
    assert repr(key) == "SigningKey()"
