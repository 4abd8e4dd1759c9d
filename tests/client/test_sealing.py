"""Envelopes: where they open, and what an upload consists of. `tests/clients/test_vectors.py` opens known ones."""

import numpy as np
import pytest

import sstq

pytest.importorskip("cryptography.hazmat.primitives.hpke")

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

CROWD = b"\xab" * 32
INFO = envelope_info(CROWD, 3)


def test_an_envelope_opens_nowhere_else():
    key = SealingKey.generate()
    other = SealingKey.generate()
    envelope = seal(b"four", key.public, INFO)
    assert len(envelope) == 4 + OVERHEAD
    changed = [
        bytes([*envelope[:place], envelope[place] ^ 1, *envelope[place + 1 :]])
        for place in range(len(envelope))
    ]
    # The highest bit of an X25519 key is ignored by the curve, but not by HPKE.
    changed.append(envelope[:31] + bytes([envelope[31] ^ 128]) + envelope[32:])
    found = open_envelopes(key.secret, INFO, [*changed, envelope, b"", envelope[:40]])
    assert found == [None] * len(changed) + [b"four", None, None]
    for info in (
        envelope_info(bytes(32), 3),
        envelope_info(CROWD, 2),
        cover_info(CROWD),
    ):
        assert open_envelopes(key.secret, info, [envelope]) == [None]
    assert open_envelopes(other.secret, INFO, [envelope]) == [None]


def test_payloads_are_single_messages():
    mechanism = sstq.FrameUnit(dim=6, epsilon=2.0)
    messages = mechanism.encode(np.eye(6), 1)
    assert mechanism.message_bits % 8
    assert payloads(messages) == [
        messages[place : place + 1].to_bytes() for place in range(6)
    ]


def test_the_body_of_an_upload_is_a_person_in_a_cover():
    key = SealingKey.generate()
    cover = SealingKey.generate()
    messages = [b"zero", b"one.", b"two."]
    size = 4 + OVERHEAD
    body = seal_person(messages, CROWD, key.public, cover.public)
    assert (body[:32], len(body)) == (CROWD, 32 + OVERHEAD + 3 * size)
    (envelopes,) = open_envelopes(cover.secret, cover_info(CROWD), [body[32:]])
    for slot, message in enumerate(messages):
        envelope = envelopes[slot * size : (slot + 1) * size]
        assert open_envelopes(key.secret, envelope_info(CROWD, slot), [envelope]) == [
            message
        ]
    # Each cover and envelope is bound to its crowd and slot.
    assert open_envelopes(cover.secret, cover_info(bytes(32)), [body[32:]]) == [None]
    infos = [envelope_info(CROWD, slot) for slot in range(3)]
    assert (
        len(
            {
                cover_info(CROWD),
                cover_info(bytes(32)),
                envelope_info(bytes(32), 0),
                *infos,
            }
        )
        == 6
    )
    # Nobody else opens the cover, and the shuffler opens no envelope.
    assert open_envelopes(key.secret, cover_info(CROWD), [body[32:]]) == [None]
    assert open_envelopes(
        cover.secret, envelope_info(CROWD, 0), [envelopes[:size]]
    ) == [None]
