"""The specification is complete: a client that was written from it alone reproduces every vector."""

import base64
import json
import math

import numpy as np
import pytest

import sstq
from tests.clients import cases as fresh
from tests.clients import reference, reference_envelopes
from tests.clients.written import FOLDER, read_doubles, read_singles, read_words, sha256_of_singles, singles, vector_of

# Plain Python takes longer than that is worth.
_LARGEST = 1 << 13


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def ints(text):
    return [int(word) for word in read_words(text)]


def double(text):
    return float(read_doubles(text)[0])


def same(numbers, case, name):
    """Whether float32 numbers are those of a case, bit by bit."""
    first = case.get(name, case.get(f"{name}_first"))
    return singles(numbers[: len(first.split())]) == first and sha256_of_singles(numbers) == case[f"{name}_sha256"]


def test_public_randomness():
    file = load("philox")
    for case in file["blocks"]:
        assert reference.philox(ints(case["counter"]), ints(case["key"])) == ints(case["output"])
    # The authors' known answer for zeros; the others are of the same list.
    assert file["blocks"][0]["output"].startswith("16554d9eca36314c")
    for case in file["streams"]:
        assert reference.stream(int(case["seed"]), case["purpose"], 9) == ints(case["words"])
    for case in file["identifiers"]:
        found = [reference.word_of(int(case["seed"]), case["purpose"], own) for own in ints(case["identifiers"])]
        assert found == ints(case["words"])
    for case in load("signs")["cases"]:
        found = reference.signs(int(case["seed"]), case["purpose"], case["count"])
        assert "".join("+" if sign > 0 else "-" for sign in found) == case["signs"]
    for case in load("columns")["cases"]:
        assert reference.columns(int(case["seed"]), case["dim"], case["size"]) == case["columns"]
    for case in load("frames")["cases"]:
        found = [reference.frame_seed(int(case["seed"]), case["frames"], number) for number in case["numbers"]]
        assert found == [int(seed) for seed in case["seeds"]]


def test_words():
    for case in load("words")["cases"]:
        (word,) = ints(case["word"])
        assert (reference.unit(word), reference.integer(word)) == (double(case["unit"]), int(case["integer"]))
        assert {limit: reference.index_below(word, int(limit)) for limit in case["index_below"]} == case["index_below"]
        assert {limit: reference.place_below(word, int(limit)) for limit in case["place_below"]} == case["place_below"]


def test_length_flip_and_clipping():
    for case in load("norm")["cases"]:
        x, clip = vector_of(case), double(case["clip"])
        assert reference.length(x) == double(case["length"])
        assert reference.share_of_clip(x, clip) == (double(case["share"]), case["longer"])
        assert sha256_of_singles(reference.clipped(x, clip)) == case["unit_sha256"]
    for case in load("norm")["doubles"]:
        scaled, inverse = reference.rescued(read_doubles(case["x_doubles"]), double(case["clip"]))
        norm = reference.length(scaled)
        assert norm == double(case["length"])
        assert min(inverse * norm, 1.0) == double(case["share"])
        factor = 1 / norm if inverse * norm > 1 else inverse
        assert singles((scaled * factor).astype(np.float32)) == case["unit"]
    for case in load("flip")["cases"]:
        assert reference.is_negative(double(case["share"]), *ints(case["word"])) == case["negative"]


def test_transform_mixing_and_selection():
    for case in load("transform")["cases"]:
        x = vector_of(case)
        reference.transform(x)
        assert same(x, case, "y")
    for case in load("mixing")["cases"]:
        if case["size"] <= _LARGEST:
            x, seed = vector_of(case), int(case["seed"])
            assert same(reference.scores(x, case["negative"], seed, case["size"], case["rounds"]), case, "scores")
    for case in load("selection")["cases"]:
        scores = read_singles(case["scores"])
        found = [reference.signed_row(scores, case["inside"], place) for place in range(2 * len(scores))]
        assert found == case["rows"]


@pytest.mark.slow
def test_representation():
    for case in load("representation")["cases"]:
        shape, level = (case["dim"], case["size"]), double(case["level"])
        assert singles(reference.schedule(*shape, level, case["steps"])) == case["schedule"]
        if case["size"] <= _LARGEST:
            found = reference.representation(vector_of(case), *shape, int(case["seed"]), level, case["steps"])
            assert same(found, case, "values")


def test_draws():
    for case in load("two-level")["cases"]:
        draw = case["size"], case["inside"], int(case["threshold"])
        assert reference.two_level(*draw, *ints(case["words"])) == case["place"]
    file = load("rounding")
    for case in file["cases"]:
        codebook = read_doubles(file["codebooks"][case["codebook"]]).tolist()
        assert reference.rounded(codebook, read_singles(case["y"])[0], *ints(case["word"])) == case["token"]
    for case in load("flat")["cases"]:
        assert reference.flat(int(case["own"]), int(case["other"]), case["token"], *ints(case["word"])) == case["code"]


def test_groups():
    file = load("groups")
    for case in file["blocks"]:
        own = math.ceil(case["groups"] / case["blocks"])
        found = [divmod(group, own) for group in range(case["groups"])]
        assert [list(pair) for pair in zip(*found, strict=True)] == [case["block"], case["place"]]
    for case in file["shares"]:
        assert reference.vector_frames(case["frames"], double(case["share_people"])) == case["vector_frames"]
        spec = case | {"frame_seed": case["seed"], "frame_size": case["candidates"] // 2, "blocks": 1}
        for own in case["cases"]:
            assert reference.share_row(spec, own["group"], own["frame"], ints(own["words"])) == own["row"]
    for case in file["other_blocks"]:
        other, rest = divmod(case["place"] - case["block_size"], case["block_size"])
        assert (other + (other >= case["block"])) * case["block_size"] + rest == case["row"]


def test_packing():
    for case in load("packing")["cases"]:
        assert reference.pack(case["fields"], case["messages"]).hex() == case["packed"]


def test_mechanisms():
    for case in load("mechanisms")["cases"]:
        spec = json.loads(case["json"])
        assert reference.digest(case["json"]) == case["digest"]
        assert [list(field) for field in reference.fields_of(spec)] == case["fields"]
        assert sum(bits for _, bits in case["fields"]) == case["message_bits"]
        assert reference.spends_at_most(spec)
        if "threshold" in spec:
            more = spec | {"threshold": str(int(spec["threshold"]) + 2**20)}
            assert not reference.spends_at_most(more)


@pytest.mark.slow
def test_messages():
    file = load("messages")
    assert _tried(file) > 250
    for case in file["batches"]:
        fields = reference.fields_of(json.loads(file["mechanisms"][case["mechanism"]]))
        assert reference.pack(fields, case["messages"]).hex() == case["packed"]


@pytest.mark.slow
def test_surveys():
    file = load("surveys")
    specs = {label: json.loads(text) for label, text in file["mechanisms"].items()}
    for case in file["agreements"]:
        label = case["mechanism"]
        assert reference.digest(file["mechanisms"][label]) == case["digest"]
        assert [list(field) for field in reference.fields_of(specs[label])] == case["fields"]
        assert reference.spends_at_most(specs[label])
    for case in file["cases"]:
        if "long" in case["mechanism"] and case["about"] not in ("usual", "nothing"):
            continue  # 2^16 rows take long in plain Python
        text = file["mechanisms"][case["mechanism"]]
        found = reference.encode(text, case["value"], ints(case["words"]))
        assert list(map(str, found)) == list(case["fields"].values()), (case["mechanism"], case["about"])
        assert reference.pack(reference.fields_of(specs[case["mechanism"]]), [found]).hex() == case["packed"]
    for case in file["slots"]:
        drawn, each = ints(case["words"]), len(ints(case["words"])) // len(case["messages"])
        for number, message in enumerate(case["messages"]):
            own = drawn[number * each : (number + 1) * each]
            assert reference.encode(file["mechanisms"][case["mechanism"]], case["values"][number % 2], own) == message


def test_the_library_refuses_the_surveys_that_clients_must_refuse():
    for case in load("surveys")["refused"]:
        with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
            sstq.from_json(case["json"])


def _tried(file):
    """How many messages of a file were the same; the others take too long."""
    tried = 0
    for case in file["cases"]:
        text = file["mechanisms"][case["mechanism"]]
        spec, client = json.loads(text), int(case["client"]) if "client" in case else None
        if spec["mechanism"] == "sstq" and spec["frame_size"] > _LARGEST:
            continue
        found = reference.encode(text, vector_of(case), ints(case["words"]), case.get("group"), client)
        assert found == list(case["fields"].values()), (case["mechanism"], case["about"])
        if client is None:
            assert reference.pack(reference.fields_of(spec), [found]).hex() == case["packed"]
        tried += 1
    return tried


@pytest.mark.slow
def test_public_coins():
    for case in load("permutations")["cases"]:
        word = reference.word_of(int(case["seed"]), case["purpose"], int(case["identifier"]))
        assert [word] == ints(case["word"])
        assert reference.permuted(word, range(len(case["images"])), case["bits"]) == case["images"]
    assert _tried(load("public-coin")) > 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(("frameunit", options) for options in fresh.FRAMEUNITS),
        *(("groupunit", options) for options in fresh.GROUPUNITS),
        *(("sstq", options) for options in fresh.SSTQS),
        *(("frequencies", options) for options in fresh.FREQUENCIES),
        *(("survey", options) for options in fresh.SURVEYS),
    ],
)
def test_fresh_messages(kind, options, seed):
    """No vector was looked at while the specification was written."""
    mechanism = sstq.mechanism(kind, **options)
    made = fresh.cases(mechanism, 4 if mechanism.dim > 1000 else 16, np.random.default_rng(seed))
    assert reference.digest(made["mechanism"]) == made["digest"]
    sent = []
    for case in made["cases"]:
        x = np.frombuffer(bytes.fromhex(case["vector"]), dtype="<f4") if "vector" in case else case["value"]
        sent.append(reference.encode(made["mechanism"], x, [int(word) for word in case["words"]], case["group"]))
        assert sent[-1] == case["message"]
    assert reference.pack(reference.fields_of(json.loads(made["mechanism"])), sent).hex() == made["packed"]


def test_campaign():
    pytest.importorskip("cryptography")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    file = load("campaign")
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(file["public_key"]))

    def verify(case):
        signed = bytes.fromhex(file["prefix"]) + case["document"].encode()
        key.verify(base64.b64decode(case["signature"]), signed)

    for case in file["cases"]:
        verify(case)
        stated = json.loads(case["document"])
        assert (stated["name"], stated["digest"]) == (case["name"], case["digest"])
    for case in file["refused"]:
        if not case["about"].endswith(", signed"):
            with pytest.raises(InvalidSignature):
                verify(case)


def test_slots():
    """Words are drawn slot by slot, and in a slot person by person."""
    file = load("messages")
    for case in file["slots"]:
        text, people, drawn = file["mechanisms"][case["mechanism"]], len(case["x"]), ints(case["words"])
        each = len(drawn) // len(case["messages"])
        assert len(case["messages"]) == people * json.loads(text)["messages"]
        for number, message in enumerate(case["messages"]):
            x, group = read_singles(case["x"][number % people]), case.get("groups", [None] * people)[number % people]
            assert reference.encode(text, x, drawn[number * each : (number + 1) * each], group) == message


def test_envelopes():
    """The reference agrees with RFC 9180 and with the file, and the library opens what the file has."""
    pytest.importorskip("cryptography")
    from sstq.client.campaigns import read_document
    from sstq.client.sealing import cover_info, open_envelopes

    file = load("envelope")
    rfc = {name: bytes.fromhex(value) for name, value in file["rfc9180"].items()}
    found = reference_envelopes.schedule(rfc["public_key"], rfc["info"], rfc["ephemeral_key"])
    assert found.enc == rfc["enc"]
    assert (found.shared_secret, found.key, found.nonce) == (rfc["shared_secret"], rfc["key"], rfc["nonce"])
    given = (rfc["message"], rfc["public_key"], rfc["info"], rfc["ephemeral_key"], rfc["aad"])
    assert reference_envelopes.seal(*given) == rfc["enc"] + rfc["ciphertext"]

    public, secret = bytes.fromhex(file["public_key"]), bytes.fromhex(file["secret_key"])
    documents = {case["name"]: case["document"] for case in load("campaign")["cases"]}
    for case in file["crowds"]:
        text, crowd = documents[case["campaign"]], bytes.fromhex(case["crowd"])
        read = read_document(text.encode())
        assert reference_envelopes.crowd_of(json.loads(text)) == read.campaign.crowd(read.sealing_keys[0]) == crowd
        assert reference_envelopes.cover_info_of(crowd) == cover_info(crowd) == bytes.fromhex(case["cover_info"])
    for case in file["cases"]:
        info = reference_envelopes.info_of(bytes.fromhex(case["crowd"]), case["slot"])
        assert info.hex() == case["info"]
        message, ephemeral = bytes.fromhex(case["message"]), bytes.fromhex(case["ephemeral_key"])
        assert reference_envelopes.seal(message, public, info, ephemeral).hex() == case["envelope"]
        assert open_envelopes(secret, info, [bytes.fromhex(case["envelope"])]) == [message]


def test_the_upload_of_envelopes():
    pytest.importorskip("cryptography")
    from sstq.client.campaigns import read_document
    from sstq.client.sealing import CROWD_BYTES, cover_info, envelope_info, open_envelopes

    file = load("envelope")
    documents = {case["name"]: case["document"] for case in load("campaign")["cases"]}
    for case in file["uploads"]:
        campaign, _, sealing_keys = read_document(documents[case["campaign"]].encode())
        body, size = bytes.fromhex(case["body"]), campaign.envelope_bytes
        assert (case["headers"]["SSTQ-Count"], len(body)) == ("1", campaign.upload_bytes(1))
        crowd = body[:CROWD_BYTES]
        assert crowd == campaign.crowd(sealing_keys[0])
        cover_secret = bytes.fromhex(file["cover_secret_key"])
        (envelopes,) = open_envelopes(cover_secret, cover_info(crowd), [body[CROWD_BYTES:]])
        fields = reference.fields_of(json.loads(campaign.mechanism.to_json()))
        for slot, message in enumerate(case["messages"]):
            envelope = envelopes[slot * size : (slot + 1) * size]
            opened = open_envelopes(bytes.fromhex(file["secret_key"]), envelope_info(crowd, slot), [envelope])
            assert opened == [reference.pack(fields, [message])]


def test_the_numbers_are_not_trivial():
    """A message that never depends on its vector would pass every other test."""
    file = load("messages")
    rows = {tuple(case["fields"].values()) for case in file["cases"] if case["mechanism"] == "frameunit, d = 3"}
    assert len(rows) > 10
    assert np.any([case["fields"].get("frame", 0) for case in file["cases"]])
