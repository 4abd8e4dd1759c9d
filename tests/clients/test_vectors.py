"""The vectors are what the library does today, and the library opens and refuses what they say."""

import hashlib
import json

import pytest

import sstq
from tests.clients import reference_envelopes as reference
from tests.clients.files import FILES, STEPS, text_of
from tests.clients.written import FOLDER


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_library_does(name):
    if name in ("campaign.json", "upload.json", "envelope.json"):
        pytest.importorskip("sstq.service", exc_type=ImportError)
    # Compared as lines: of two long texts pytest would show all.
    written, expected = (FOLDER / name).read_text(encoding="utf-8").splitlines(), text_of(name).splitlines()
    changed = [number for number, pair in enumerate(zip(written, expected, strict=False), 1) if pair[0] != pair[1]]
    assert not changed, f"{name} differs in lines {changed[:9]}: run `python -m tests.clients` if that is deliberate"
    assert len(written) == len(expected)


@pytest.mark.slow
def test_the_library_s_client_accepts_and_refuses_the_same_documents():
    pytest.importorskip("sstq.service", exc_type=ImportError)
    from sstq.client.campaigns import read_document
    from sstq.client.signing import signer

    file = load("campaign")

    def check(case):
        document = case["document"].encode()
        campaign, keys, _ = read_document(document)
        assert signer(document, case["signature"], keys, file["public_key"]) == file["public_key"]
        return campaign

    for case in file["cases"]:
        assert check(case).digest == case["digest"]
    for case in file["refused"]:
        with pytest.raises(ValueError, match=r"signature|canonical|sealing_key|version 1|most_messages"):
            check(case)


def test_the_steps_stay_as_they_are():
    assert {path.name for path in FOLDER.iterdir()} == {*FILES, *(f"{name}.json" for name in STEPS), "README.md"}
    steps = b"".join((FOLDER / f"{name}.json").read_bytes() for name in STEPS)
    assert hashlib.sha256(steps).hexdigest() == "dd23f9711e120efbded49f34686cf131d2a397d27858f45bd507121c967c0578"


def test_the_library_refuses_the_surveys_that_clients_must_refuse():
    for case in load("surveys")["refused"]:
        with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
            sstq.from_json(case["json"])


def test_the_numbers_are_not_trivial():
    """A message that never depends on its vector would pass every other test."""
    cases = load("messages")["cases"]
    assert len({tuple(case["fields"].values()) for case in cases if case["mechanism"] == "frameunit, d = 3"}) > 10
    assert any(case["fields"].get("frame") for case in cases)
    # The known answer of Philox's authors for zeros; the others are of the same list.
    assert load("philox")["blocks"][0]["output"].startswith("16554d9eca36314c")


def test_envelopes():
    """The envelopes are made as RFC 9180 says, with fixed keys, and the library opens them."""
    pytest.importorskip("cryptography")
    from sstq.client.campaigns import read_document
    from sstq.client.sealing import CROWD_BYTES, cover_info, envelope_info, open_envelopes

    file = load("envelope")
    rfc = {name: bytes.fromhex(value) for name, value in file["rfc9180"].items()}
    found = reference.schedule(rfc["public_key"], rfc["info"], rfc["ephemeral_key"])
    assert found.enc == rfc["enc"]
    assert (found.shared_secret, found.key, found.nonce) == (rfc["shared_secret"], rfc["key"], rfc["nonce"])
    given = (rfc["message"], rfc["public_key"], rfc["info"], rfc["ephemeral_key"], rfc["aad"])
    assert reference.seal(*given) == rfc["enc"] + rfc["ciphertext"]

    secret, cover_secret = bytes.fromhex(file["secret_key"]), bytes.fromhex(file["cover_secret_key"])
    for case in file["cases"]:
        info = envelope_info(bytes.fromhex(case["crowd"]), case["slot"])
        assert info.hex() == case["info"]
        assert open_envelopes(secret, info, [bytes.fromhex(case["envelope"])]) == [bytes.fromhex(case["message"])]
    documents = {case["name"]: case["document"].encode() for case in load("campaign")["cases"]}
    for case in file["uploads"]:
        campaign, _, sealing_keys = read_document(documents[case["campaign"]])
        body, size, layout = bytes.fromhex(case["body"]), campaign.envelope_bytes, campaign.mechanism.layout
        assert (case["headers"]["SSTQ-Count"], len(body)) == ("1", campaign.upload_bytes(1))
        crowd = body[:CROWD_BYTES]
        assert crowd == campaign.crowd(sealing_keys[0])
        (envelopes,) = open_envelopes(cover_secret, cover_info(crowd), [body[CROWD_BYTES:]])
        for slot, message in enumerate(case["messages"]):
            envelope = envelopes[slot * size : (slot + 1) * size]
            (opened,) = open_envelopes(secret, envelope_info(crowd, slot), [envelope])
            assert [int(column[0]) for column in layout.unpack(opened, 1)] == message
