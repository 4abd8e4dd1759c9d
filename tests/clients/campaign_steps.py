"""Test vectors of a campaign: its document, the signature, and what a client sends."""

import functools
import json
from datetime import UTC, datetime

import rfc8785

import sstq
from tests.clients.whole_messages import messages
from tests.clients.written import FOLDER
from tests.solved import as_written

_SECRET, _OTHER_SECRET, _SHUFFLER_SECRET = bytes(range(32)), bytes(range(1, 33)), bytes(range(32, 64))
SEALING_SECRETS = bytes(range(64, 96)), bytes(range(65, 97))
COVER_SECRET = bytes(range(96, 128))


def _as_written(about, solved):
    """The mechanism as the file's campaign of that name has it."""
    file = FOLDER / "campaign.json"
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"] if file.exists() else []
    documents = {case["about"]: json.loads(case["document"]) for case in cases}
    return as_written(solved, rfc8785.dumps(documents[about]["mechanism"]).decode() if about in documents else None)


# The quick lane imports this module, and has no packages of the service.
@functools.cache
def campaigns():
    """A plain campaign, one with everything that a document can hold, and a shuffled one."""
    from sstq.client import Campaign, Shuffling
    from sstq.client.sealing import SealingKey
    from sstq.client.signing import SigningKey

    plain = Campaign("steps", _as_written("plain", sstq.FrameUnit(3, 2.0, frame_seed=7)))
    full = Campaign(
        "groups-2026",
        _as_written("full", sstq.GroupUnit(4, 3.0, groups=10, frame_seed=7)),
        labels=("Überstunden", "work", "“quoted” \\ text", "数"),
        group_labels=tuple(f"region {number}" for number in range(10)),
        image_shape=(2, 2),
        opens=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        closes=datetime(2036, 1, 1, tzinfo=UTC),
        most_messages=100,
        senders="token",
        readers="public",
    )
    shuffled = Campaign(
        "shuffled-2026",
        _as_written("shuffled", sstq.FrameUnit(3, 2.0, frames=40, messages=2, frame_seed=7)),
        closes=datetime(2036, 1, 1, tzinfo=UTC),
        senders="single-use",
        shuffling=Shuffling(
            "https://shuffle.example/people",
            SigningKey(_SHUFFLER_SECRET).public.hex(),
            SealingKey(COVER_SECRET).public.hex(),
            threshold=1000,
        ),
    )
    return {"plain": plain, "full": full, "shuffled": shuffled}


def document_of(own):
    """What the collector signs; a shuffled campaign names two keys to seal for, the newer one first."""
    from sstq.client.sealing import SealingKey
    from sstq.client.signing import SigningKey

    key = SigningKey(_SECRET)
    return own.document([key.public], [SealingKey(secret).public for secret in SEALING_SECRETS])


def campaign():
    """Documents with their signatures, and documents that a client must refuse."""
    from sstq.client.signing import CAMPAIGN_PREFIX, SHUFFLER_PREFIX, SigningKey

    own_key, other_key, shuffler = (SigningKey(secret) for secret in (_SECRET, _OTHER_SECRET, _SHUFFLER_SECRET))
    cases = []
    for about, own in campaigns().items():
        document = document_of(own)
        case = {"about": about, "name": own.name, "document": document.decode(), "signature": own_key.sign(document)}
        case |= {"digest": own.digest, "epsilon": own.mechanism.epsilon}
        cases.append(case | ({"shuffler_signature": shuffler.sign(document, SHUFFLER_PREFIX)} if own.shuffling else {}))
    document = document_of(campaigns()["plain"])
    signature = own_key.sign(document)
    changed = document.replace(b'"epsilon":2', b'"epsilon":3')
    stated = json.loads(document)
    other_digest = rfc8785.dumps(stated | {"digest": "0" * 64})
    spaced = json.dumps(stated).encode()
    shuffled = json.loads(document_of(campaigns()["shuffled"]))
    terms = shuffled["shuffling"]
    first = rfc8785.dumps(stated | {"version": 1})
    uncovered = rfc8785.dumps(shuffled | {"shuffling": terms | {"sealing_key": terms["sealing_key"][:16]}})
    crowded = rfc8785.dumps(shuffled | {"most_messages": 99})
    fewer_slots = rfc8785.dumps(shuffled | {"slots": 1})
    unsealed = rfc8785.dumps(shuffled | {"sealing_keys": []})
    refused = [
        ("changed after signing", changed, signature),
        ("signed without the prefix", document, own_key.sign(document, prefix=b"")),
        ("signed by another key", document, other_key.sign(document)),
        ("a signature of 63 bytes", document, signature[:-4] + "AAA="),
        ("another digest than the mechanism's, signed", other_digest, own_key.sign(other_digest)),
        ("not in canonical form, signed", spaced, own_key.sign(spaced)),
        ("of version 1, signed", first, own_key.sign(first)),
        ("a shuffler without a whole sealing key, signed", uncovered, own_key.sign(uncovered)),
        ("several people per upload to a shuffler, signed", crowded, own_key.sign(crowded)),
        ("fewer slots than messages, signed", fewer_slots, own_key.sign(fewer_slots)),
        ("shuffled without a sealing key, signed", unsealed, own_key.sign(unsealed)),
    ]
    assert changed != document
    return {
        "secret_key": own_key.secret.hex(),
        "public_key": own_key.public.hex(),
        "prefix": CAMPAIGN_PREFIX.hex(),
        "shuffler_secret_key": shuffler.secret.hex(),
        "shuffler_public_key": shuffler.public.hex(),
        "shuffler_prefix": SHUFFLER_PREFIX.hex(),
        "cases": cases,
        "refused": [
            {"about": about, "document": text.decode(), "signature": own, "name": json.loads(text)["name"]}
            for about, text, own in refused
        ],
    }


def uploads():
    """The request that sends messages, without its random Idempotency-Key and its address."""
    batches = {batch["mechanism"]: batch for batch in messages()["batches"]}
    cases = []
    for own, label in (("plain", "frameunit, d = 3"), ("full", "groupunit, a block per group")):
        campaign_, batch = campaigns()[own], batches[label]
        headers = {
            "Content-Type": "application/octet-stream",
            "SSTQ-Count": str(len(batch["messages"])),
            "SSTQ-Digest": campaign_.digest,
        }
        case = {"campaign": campaign_.name, "method": "POST", "path": f"/v1/campaigns/{campaign_.name}/messages"}
        case |= {"messages": batch["messages"], "headers": headers, "body": batch["packed"]}
        cases.append(case | {"answer": json.dumps({"count": len(batch["messages"])}, separators=(",", ":"))})
    return {"cases": cases}
