"""Envelopes as section 12.1 of `docs/client-specification.md` defines them, from HMAC, X25519 and AES-GCM alone."""

import hashlib
import hmac
import json
from dataclasses import dataclass

_KEM = b"KEM" + bytes([0, 0x20])
_HPKE = b"HPKE" + bytes([0, 0x20, 0, 1, 0, 1])


@dataclass(frozen=True)
class Schedule:
    """What a sender derives for its one message."""

    enc: bytes
    shared_secret: bytes
    key: bytes
    nonce: bytes


def crowd_of(document):
    """The crowd of those who seal for the first key of a document."""
    agreed = {name: document[name] for name in ("name", "digest", "senders", "shuffling")}
    key = bytes.fromhex(document["sealing_keys"][0])
    # Names in ASCII without escapes and one number that is written alike: this is RFC 8785.
    text = json.dumps(agreed, sort_keys=True, separators=(",", ":")).replace("1e-06", "0.000001")
    return hashlib.sha256(b"sstq-crowd-v2\x00" + key + text.encode()).digest()


def info_of(crowd, slot):
    return b"sstq-envelope-v2\x00" + crowd + slot.to_bytes(4, "big")


def cover_info_of(crowd):
    return b"sstq-cover-v2\x00" + crowd


def schedule(public, info, ephemeral):
    """The key schedule for a recipient's public key and the sender's secret ephemeral key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    own = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    secret = _expand(_extract(b"", _KEM, b"eae_prk", shared), _KEM, b"shared_secret", enc + public, 32)
    context = b"\x00" + _extract(b"", _HPKE, b"psk_id_hash", b"") + _extract(b"", _HPKE, b"info_hash", info)
    scheduled = _extract(secret, _HPKE, b"secret", b"")
    key, nonce = (_expand(scheduled, _HPKE, *part) for part in ((b"key", context, 16), (b"base_nonce", context, 12)))
    return Schedule(enc, secret, key, nonce)


def seal(message, public, info, ephemeral, aad=b""):
    """An envelope; senders draw the ephemeral key anew for each."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    found = schedule(public, info, ephemeral)
    return found.enc + AESGCM(found.key).encrypt(found.nonce, message, aad)


def _extract(salt, suite, label, secret):
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, hashlib.sha256)


def _expand(key, suite, label, info, length):
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labeled + b"\x01", hashlib.sha256)[:length]
