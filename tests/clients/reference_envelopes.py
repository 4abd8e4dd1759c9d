"""Envelopes as section 12.1 of `docs/client-specification.md` defines them, from HMAC, X25519 and AES-GCM alone."""

import hashlib
import hmac
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


def info_of(campaign, digest, slot):
    return b"sstq-envelope-v1\x00" + campaign.encode() + b"\x00" + bytes.fromhex(digest) + slot.to_bytes(4, "big")


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
