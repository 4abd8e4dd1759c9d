"""Envelopes against HPKE written down from RFC 9180 with nothing but its primitives."""

import hmac

import numpy as np
import pytest

import sstq

pytest.importorskip("cryptography.hazmat.primitives.hpke")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sstq.client.sealing import (
    OVERHEAD,
    SealingKey,
    cover_info,
    envelope_info,
    open_envelopes,
    payloads,
    seal,
    seal_person,
)

KEM = b"KEM" + (0x0020).to_bytes(2, "big")
HPKE = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in (0x0020, 0x0001, 0x0001))
CROWD = b"\xab" * 32
INFO = envelope_info(CROWD, 3)


def extract(suite, salt, label, secret):
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def expand(suite, secret, label, info, length):
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(secret, labeled + b"\x01", "sha256")[:length]


def opened(secret, info, envelope, extra=b""):
    """Sections 4.1 and 5.1 of RFC 9180, base mode, message 0."""
    key = X25519PrivateKey.from_private_bytes(secret)
    encapsulated = envelope[:32]
    shared = key.exchange(X25519PublicKey.from_public_bytes(encapsulated))
    context = encapsulated + key.public_key().public_bytes_raw()
    shared = expand(KEM, extract(KEM, b"", b"eae_prk", shared), b"shared_secret", context, 32)
    schedule = b"\x00" + extract(HPKE, b"", b"psk_id_hash", b"") + extract(HPKE, b"", b"info_hash", info)
    secret = extract(HPKE, shared, b"secret", b"")
    aead, nonce = (expand(HPKE, secret, label, schedule, size) for label, size in ((b"key", 16), (b"base_nonce", 12)))
    return AESGCM(aead).decrypt(nonce, envelope[32:], extra)


def test_the_reference_opens_the_vector_of_the_rfc():
    """RFC 9180, A.1.1.1, sequence number 0."""
    envelope = bytes.fromhex(
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )
    secret = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    info = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
    assert opened(secret, info, envelope, b"Count-0") == b"Beauty is truth, truth beauty"


def test_an_envelope_is_hpke_with_48_bytes_more():
    key = SealingKey.generate()
    envelope = seal(b"four", key.public, INFO)
    assert len(envelope) == 4 + OVERHEAD
    assert opened(key.secret, INFO, envelope) == b"four"
    assert open_envelopes(key.secret, INFO, [envelope]) == [b"four"]


def test_info_is_the_crowd_and_the_slot():
    assert INFO == b"sstq-envelope-v2\x00" + b"\xab" * 32 + b"\x00\x00\x00\x03"
    assert cover_info(CROWD) == b"sstq-cover-v2\x00" + b"\xab" * 32


def test_an_envelope_opens_nowhere_else():
    key, other = SealingKey.generate(), SealingKey.generate()
    envelope = seal(b"four", key.public, INFO)
    changed = [
        bytes([*envelope[:place], envelope[place] ^ 1, *envelope[place + 1 :]]) for place in range(len(envelope))
    ]
    # The highest bit of an X25519 key is ignored by the curve, but not by HPKE.
    changed.append(envelope[:31] + bytes([envelope[31] ^ 128]) + envelope[32:])
    found = open_envelopes(key.secret, INFO, [*changed, envelope, b"", envelope[:40]])
    assert found == [None] * len(changed) + [b"four", None, None]
    for info in (envelope_info(bytes(32), 3), envelope_info(CROWD, 2), cover_info(CROWD)):
        assert open_envelopes(key.secret, info, [envelope]) == [None]
    assert open_envelopes(other.secret, INFO, [envelope]) == [None]


def test_payloads_are_single_messages():
    mechanism = sstq.FrameUnit(dim=6, epsilon=2.0)
    messages = mechanism.encode(np.eye(6), 1)
    assert mechanism.message_bits % 8
    found = payloads(messages, mechanism.message_bits)
    assert [row.tobytes() for row in found] == [messages[place : place + 1].to_bytes() for place in range(6)]


def test_the_body_of_an_upload_is_a_person_in_a_cover():
    key, cover = SealingKey.generate(), SealingKey.generate()
    messages = [b"zero", b"one.", b"two."]
    body = seal_person(messages, CROWD, key.public, cover.public)
    assert body[:32] == CROWD
    assert len(body) == 32 + OVERHEAD + 3 * (4 + OVERHEAD)
    envelopes = opened(cover.secret, cover_info(CROWD), body[32:])
    size = 4 + OVERHEAD
    for slot, message in enumerate(messages):
        assert opened(key.secret, envelope_info(CROWD, slot), envelopes[slot * size : (slot + 1) * size]) == message
    # Nobody else opens the cover, and the shuffler opens no envelope.
    assert open_envelopes(key.secret, cover_info(CROWD), [body[32:]]) == [None]
    assert open_envelopes(cover.secret, envelope_info(CROWD, 0), [envelopes[:size]]) == [None]
