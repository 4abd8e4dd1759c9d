"""Test vectors of sealed messages. The ephemeral keys are fixed, which the library cannot do: it opens what is here."""

import hashlib
import json

import numpy as np

from tests.clients import reference_envelopes as reference
from tests.clients.campaign_steps import COVER_SECRET, SEALING_SECRETS, campaigns, document_of

# RFC 9180, appendix A.1.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode, sequence number 0.
RFC_9180 = {
    "ephemeral_key": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "public_key": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "enc": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "shared_secret": "fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "nonce": "56d890e5accaaf011cff4b7d",
    "aad": "436f756e742d30",
    "message": "4265617574792069732074727574682c20747275746820626561757479",
    "ciphertext": ("f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"),
}


def envelopes():
    """RFC 9180's own example, a campaign's crowd, messages sealed for it, and one person's upload in its cover."""
    from sstq.client.sealing import SealingKey

    key, cover, campaign = SealingKey(SEALING_SECRETS[0]), SealingKey(COVER_SECRET), campaigns()["shuffled"]
    document = json.loads(document_of(campaign))
    crowd = reference.crowd_of(document)
    cases = []
    for own, slot, message in (
        (crowd, 0, b"\x00\x00\x00"),
        (crowd, 1, b"\xff\x01\x80"),
        (bytes(32), 0, b"\x2a"),
        (b"\xff" * 32, 4095, bytes(range(16))),
        (crowd, 2**32 - 1, b""),
    ):
        info, ephemeral = reference.info_of(own, slot), _ephemeral(f"{own.hex()}/{slot}")
        case = {"crowd": own.hex(), "slot": slot, "message": message.hex()}
        case |= {"ephemeral_key": ephemeral.hex(), "info": info.hex()}
        cases.append(case | {"envelope": reference.seal(message, key.public, info, ephemeral).hex()})
    return {
        "secret_key": key.secret.hex(),
        "public_key": key.public.hex(),
        "cover_secret_key": cover.secret.hex(),
        "cover_public_key": cover.public.hex(),
        "rfc9180": RFC_9180,
        "crowds": [
            {"campaign": campaign.name, "crowd": crowd.hex(), "cover_info": reference.cover_info_of(crowd).hex()}
        ],
        "cases": cases,
        "uploads": [_upload(campaign, crowd, key, cover)],
    }


def _upload(campaign, crowd, key, cover):
    """A person's messages, one per slot; the last ephemeral key is that of the cover."""
    fields = campaign.mechanism.layout.fields
    messages = [[1000 * number + own for own in range(len(fields))] for number in range(1, 1 + campaign.slots)]
    messages = [[v % field.limit for v, field in zip(each, fields, strict=True)] for each in messages]
    ephemerals = [_ephemeral(f"upload/{slot}") for slot in range(campaign.slots + 1)]
    sealed = b""
    for slot, (message, ephemeral) in enumerate(zip(messages, ephemerals, strict=False)):
        packed = campaign.mechanism.layout.pack(tuple(np.array([value], dtype=np.uint64) for value in message))
        sealed += reference.seal(packed, key.public, reference.info_of(crowd, slot), ephemeral)
    body = crowd + reference.seal(sealed, cover.public, reference.cover_info_of(crowd), ephemerals[-1])
    headers = {"Content-Type": "application/octet-stream", "SSTQ-Count": "1", "SSTQ-Digest": campaign.digest}
    return {
        "campaign": campaign.name,
        "messages": messages,
        "ephemeral_keys": [own.hex() for own in ephemerals],
        "headers": headers,
        "body": body.hex(),
    }


def _ephemeral(label):
    return hashlib.sha256(f"ephemeral key of {label}".encode()).digest()
