"""The vectors never change, and the library sends, opens and refuses what they say."""

import hashlib

import numpy as np
import pytest
import rfc8785

import sstq
from sstq.accounting.ledger import price
from tests.clients.vectors import (
    FOLDER,
    load,
    mechanisms_of,
    packed,
    read_doubles,
    read_singles,
    read_words,
    records_of,
    sent_by_library,
    vector_of,
)
from tests.scripted import ScriptedBits


def test_the_files_stay_as_they_are():
    files = b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.json")))
    assert (
        hashlib.sha256(files).hexdigest()
        == "891c600addba67c4c36843ac7bffdfae85e0655ee40513acef08cc0120204e49"
    )


def test_what_follows_from_the_json_of_a_mechanism():
    file = load("mechanisms")
    surveys = [load(name) for name in ("surveys", "numbers")]
    agreed = [
        (case, each["mechanisms"][case["mechanism"]])
        for each in surveys
        for case in each["agreements"]
    ]
    for case, text in [(case, case["json"]) for case in file["cases"]] + agreed:
        mechanism = sstq.from_json(text)
        assert (mechanism.to_json(), mechanism.digest()) == (text, case["digest"])
        assert [[field.name, field.bits] for field in mechanism.layout.fields] == case[
            "fields"
        ]
        if "json" in case:
            known = (
                mechanism.message_bits,
                mechanism.words_each,
                mechanism.frame.rounds,
                mechanism.messages,
            )
            assert known == (
                case["message_bits"],
                case["words"],
                case["rounds"],
                case.get("messages", 1),
            )
        if "epsilon_of_all" in case:
            assert price(mechanism) == read_doubles(case["epsilon_of_all"])[0]
    for case in file["numbers"]:
        assert (
            rfc8785.dumps(float(read_doubles(case["double"])[0])).decode()
            == case["text"]
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["messages", "surveys", "numbers"])
def test_messages(name):
    file = load(name)
    mechanisms = mechanisms_of(name)
    for case in file["cases"]:
        mechanism = mechanisms[case["mechanism"]]
        people = records_of(
            mechanism,
            [case["value"] if "value" in case else vector_of(case)],
            [case["group"]] if "group" in case else None,
        )
        sent = sent_by_library(mechanism, people, read_words(case["words"]))
        fields = dict(
            zip((field.name for field in mechanism.layout.fields), sent[0], strict=True)
        )
        assert {
            field: type(value)(fields[field]) for field, value in case["fields"].items()
        } == case["fields"]
        assert (fields.keys(), packed(mechanism, sent)) == (
            case["fields"].keys(),
            case["packed"],
        )
    for case in file.get("batches", ()):
        assert packed(mechanisms[case["mechanism"]], case["messages"]) == case["packed"]
    for case in file.get("slots", ()):
        mechanism = mechanisms[case["mechanism"]]
        values = (
            case["values"]
            if "values" in case
            else [read_singles(row) for row in case["x"]]
        )
        people = records_of(mechanism, values, case.get("groups"))
        words = ScriptedBits(read_words(case["words"]))
        sent = mechanism.encode_slots(people, words, None, mechanism.messages)
        assert [
            list(row) for row in zip(*map(np.ravel, sent.columns), strict=True)
        ] == case["messages"]


def test_the_numbers_are_not_trivial():
    """A message that never depends on its vector would pass every other test."""
    cases = load("messages")["cases"]
    assert (
        len(
            {
                tuple(case["fields"].values())
                for case in cases
                if case["mechanism"] == "frameunit, d = 3"
            }
        )
        > 10
    )
    assert any(case["fields"].get("frame") for case in cases)
    # The known answer of Philox's authors for zeros; the others are of the same list.
    assert load("philox")["blocks"][0]["output"].startswith("16554d9eca36314c")


def test_the_library_refuses_the_surveys_that_clients_must_refuse():
    for case in load("surveys")["refused"] + load("numbers")["refused"]:
        with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
            sstq.from_json(case["json"])


def test_campaigns_and_uploads():
    pytest.importorskip("cryptography")
    from sstq.client.campaigns import read_document
    from sstq.client.signing import CAMPAIGN_PREFIX, SHUFFLER_PREFIX, SigningKey, signer

    file = load("campaign")
    campaigns = {}
    assert (file["prefix"], file["shuffler_prefix"]) == (
        CAMPAIGN_PREFIX.hex(),
        SHUFFLER_PREFIX.hex(),
    )
    key, shuffler = (
        SigningKey(bytes.fromhex(file[name]))
        for name in ("secret_key", "shuffler_secret_key")
    )

    def check(case):
        document = case["document"].encode()
        campaign, keys, _ = read_document(document)
        assert (
            signer(document, case["signature"], keys, file["public_key"])
            == key.public.hex()
        )
        return campaign

    for case in file["cases"]:
        campaign = campaigns[case["name"]] = check(case)
        assert (campaign.name, campaign.digest, campaign.mechanism.epsilon) == (
            case["name"],
            case["digest"],
            case["epsilon"],
        )
        document = case["document"].encode()
        assert key.sign(document) == case["signature"]
        assert case.get("shuffler_signature") in (
            None,
            shuffler.sign(document, SHUFFLER_PREFIX),
        )
        assert ("shuffler_signature" in case) == (campaign.shuffling is not None)
    for case in file["refused"]:
        with pytest.raises(
            ValueError, match=r"signature|canonical|sealing_key|version 1|most_messages"
        ):
            check(case)
    for case in load("upload")["cases"]:
        campaign = campaigns[case["campaign"]]
        assert packed(campaign.mechanism, case["messages"]) == case["body"]
        assert case["headers"]["SSTQ-Digest"] == campaign.digest


def test_envelopes():
    """The library opens envelopes that were made from HMAC, X25519 and AES-GCM alone, with fixed keys."""
    pytest.importorskip("cryptography")
    from sstq.client.campaigns import read_document
    from sstq.client.sealing import (
        CROWD_BYTES,
        SealingKey,
        cover_info,
        envelope_info,
        open_envelopes,
    )

    file = load("envelope")
    keys = [
        SealingKey(bytes.fromhex(file[name]))
        for name in ("secret_key", "cover_secret_key")
    ]
    assert [key.public.hex() for key in keys] == [
        file["public_key"],
        file["cover_public_key"],
    ]
    secret, cover_secret = (key.secret for key in keys)
    for case in file["cases"]:
        info = envelope_info(bytes.fromhex(case["crowd"]), case["slot"])
        assert info.hex() == case["info"]
        assert open_envelopes(secret, info, [bytes.fromhex(case["envelope"])]) == [
            bytes.fromhex(case["message"])
        ]
    documents = {
        case["name"]: case["document"].encode() for case in load("campaign")["cases"]
    }
    for case, agreed in zip(file["uploads"], file["crowds"], strict=True):
        campaign, _, sealing_keys = read_document(documents[case["campaign"]])
        body = bytes.fromhex(case["body"])
        size = campaign.envelope_bytes
        layout = campaign.mechanism.layout
        assert (case["headers"]["SSTQ-Count"], len(body)) == (
            "1",
            campaign.upload_bytes(1),
        )
        crowd = body[:CROWD_BYTES]
        assert (
            crowd == campaign.crowd(sealing_keys[0]) == bytes.fromhex(agreed["crowd"])
        )
        assert cover_info(crowd).hex() == agreed["cover_info"]
        (envelopes,) = open_envelopes(
            cover_secret, cover_info(crowd), [body[CROWD_BYTES:]]
        )
        for slot, message in enumerate(case["messages"]):
            envelope = envelopes[slot * size : (slot + 1) * size]
            (opened,) = open_envelopes(secret, envelope_info(crowd, slot), [envelope])
            assert [int(column[0]) for column in layout.unpack(opened, 1)] == message


def test_studies():
    """What a mechanism encodes of each value, and what documents are refused; the messages are those of mechanisms."""
    from sstq.studies import Document, Question

    file = load("studies")
    for case in file["cases"]:
        question = Question.from_json(case["document"])
        assert question.to_json() == case["document"]
        for value, expected in zip(case["values"], case["held"], strict=True):
            held = question.held([value])
            if isinstance(held, dict):
                assert {name: cells[0] for name, cells in held.items()} == expected
            else:
                np.testing.assert_allclose(held[0], expected, rtol=1e-12)
    for case in file["examples"]:
        question = Document.from_json(case["document"])
        assert (question.to_json(), question.purpose) == (
            case["document"],
            case["purpose"],
        )
        for (features, label), expected in zip(
            case["values"], case["held"], strict=True
        ):
            row = question.vectors([features], [label])[0]
            if question.kind == "classes":
                assert question.labels([label], 1)[0] == expected[1]
                expected = expected[0]
            elif question.scores:
                expected = [np.nan if expected is None else expected]
            np.testing.assert_allclose(row, expected, rtol=1e-12)
    for document in file["refused"]:
        with pytest.raises(ValueError, match=r"must|not a question"):
            Document.from_json(document)
