"""One suite that every mechanism passes."""

import copy
import hashlib
import inspect
import json
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import rfc8785

import sstq
from sstq.mechanisms import Unbiased, mechanism_class
from sstq.messages.batch import Messages
from sstq.messages.files import read_messages, write_messages
from tests.contract import checks
from tests.contract.cases import CASES, DIM, EPSILON, build, encode, reread

# What a user has after `from sstq import *` and the third party's import.
NAMES = {name: getattr(sstq, name) for name in sstq.__all__} | {"CoordinateSign": mechanism_class("coordinate-sign")}

every_case = pytest.mark.parametrize("case", CASES)
private_cases = pytest.mark.parametrize("case", [c for c in CASES if c.split("/")[0] not in ("clean", "turboquant")])
local_cases = pytest.mark.parametrize(
    "case", [c for c in CASES if c.split("/")[0] not in ("clean", "turboquant", "csgm", "l2-csgm")]
)
# For the quick lane, and more.
VECTORS = ["gaussian", "spike", "zero"]
MORE_VECTORS = ["heavy-tailed", "constant", "alternating", "block", "sparse", "hadamard", "short"]


def some_rows(count, dim=DIM):
    return np.random.default_rng(count).standard_normal((count, dim)) / 4


def test_every_mechanism_has_a_case():
    assert {case.split("/")[0] for case in CASES} >= set(sstq.list_mechanisms())


@every_case
def test_surface(case):
    mechanism = build(case)
    assert mechanism.name == case.split("/")[0]
    assert isinstance(mechanism.message_bits, int)
    assert mechanism.message_bits > 0
    assert isinstance(mechanism.unbiased, Unbiased)
    assert bool(mechanism.unbiased) == (mechanism.unbiased == "always")
    assert isinstance(mechanism.exact, bool)
    assert mechanism.trust in ("local", "aggregator", "none")
    assert mechanism.coin in ("private", "public")
    assert mechanism.epsilon > 0
    assert (mechanism.privacy_loss() <= mechanism.epsilon) or math.isinf(mechanism.epsilon)


@every_case
def test_options_are_kept_as_given(case):
    given = {"dim": DIM, "clip": 0.5} | CASES[case]
    mechanism = build(case)
    assert mechanism.options == given
    assert list(mechanism.options) == [name for name in inspect.signature(type(mechanism)).parameters if name in given]
    assert (
        repr(mechanism)
        == f"{type(mechanism).__name__}({', '.join(f'{k}={v!r}' for k, v in mechanism.options.items())})"
    )
    assert eval(repr(mechanism), dict(NAMES)) == mechanism  # noqa: S307


@every_case
def test_a_variant_is_as_built_anew(case):
    mechanism = build(case)
    changes = [{}, {"clip": 0.75}, {"dim": DIM + 1}, {"dim": DIM + 1, "clip": 3}]
    if mechanism.seed_option:
        changes += [{mechanism.seed_option: 2**64 - 1}, {mechanism.seed_option: 5, "clip": 2.0}]
        assert mechanism.with_seed(5) == build(case, **{mechanism.seed_option: 5})
    else:
        assert mechanism.with_seed(5) is mechanism
    for change in changes:
        variant, anew = mechanism.replace(**change), build(case, **change)
        assert variant == anew
        assert variant.options == anew.options
        assert repr(variant) == repr(anew)
        assert variant.digest() == anew.digest()
        assert (variant == mechanism) == (not change)
        x = some_rows(20, variant.dim)
        assert encode(variant, x, rng=3).to_bytes() == encode(anew, x, rng=3).to_bytes()
    for bad in ({"clip": 0.0}, {"clip": "1"}, {"dim": 0}, {mechanism.seed_option or "dim": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
            mechanism.replace(**bad)
    with pytest.raises(TypeError, match="flavour"):
        mechanism.replace(flavour="vanilla")


@every_case
def test_mechanisms_are_values(case):
    mechanism = build(case)
    before = mechanism.digest()
    for attribute in ("epsilon", "clip", "flavour"):
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(mechanism, attribute, 9.0)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del mechanism.clip
    with pytest.raises(TypeError, match="not support item assignment"):
        mechanism.options["clip"] = 9.0
    for same in (pickle.loads(pickle.dumps(mechanism)), copy.copy(mechanism), copy.deepcopy(mechanism)):  # noqa: S301
        assert type(same) is type(mechanism)
        assert same == mechanism
        assert hash(same) == hash(mechanism)
        assert same.options == mechanism.options
        assert same.digest() == before
        assert encode(same, some_rows(20), rng=3).to_bytes() == encode(mechanism, some_rows(20), rng=3).to_bytes()
    assert mechanism != "sstq"


@every_case
@pytest.mark.parametrize("count", [0, 1, 9])
def test_bits_on_the_wire(case, count):
    mechanism = build(case)
    messages = encode(mechanism, some_rows(count), rng=1)
    raw = messages.to_bytes()
    sent = count * mechanism.messages
    assert len(messages) == sent
    assert len(raw) == -(-sent * mechanism.message_bits // 8) == -(-count * mechanism.bundle_bits // 8)
    again = mechanism.messages_from_bytes(raw, sent, clients=messages.clients)
    assert again.to_bytes() == raw
    np.testing.assert_array_equal(mechanism.decode(again), mechanism.decode(messages))
    assert mechanism.decode(messages).shape == (sent, mechanism.estimate_dim)


@every_case
def test_malformed_bytes_are_value_errors(case):
    mechanism = build(case)
    clients = np.arange(3) if mechanism.coin == "public" else None
    raw = encode(mechanism, some_rows(3), rng=1).to_bytes()
    for damaged in (raw[:-1], raw + b"\0", b""):
        with pytest.raises(ValueError, match="messages are"):
            mechanism.messages_from_bytes(damaged, 3 * mechanism.messages, clients=clients)


@every_case
def test_json_round_trip(case):
    mechanism = build(case)
    again = sstq.from_json(mechanism.to_json())
    assert type(again) is type(mechanism)
    assert again == mechanism
    assert again.digest() == mechanism.digest()
    assert again.to_json() == mechanism.to_json()
    assert again.message_bits == mechanism.message_bits
    x = some_rows(20)
    assert encode(again, x, rng=3).to_bytes() == encode(mechanism, x, rng=3).to_bytes()
    assert build(case, clip=0.75).digest() != mechanism.digest()
    assert again.replace(clip=0.75) == build(case, clip=0.75)
    assert again.with_seed(7) == mechanism.with_seed(7)


@every_case
def test_every_language_computes_the_same_digest(case):
    """JavaScript has doubles only: what it reads and writes with sorted keys must be the same text."""
    mechanism = build(case)
    seeded = mechanism.with_seed(2**64 - 1)
    for text, digest in ((m.to_json(), m.digest()) for m in (mechanism, seeded)):
        integers = []
        json.loads(text, parse_int=integers.append)
        assert all(abs(int(integer)) < 2**53 for integer in integers if integer is not None)
        as_javascript = json.loads(text, parse_int=float)
        assert rfc8785.dumps(as_javascript).decode() == text
        assert hashlib.sha256(rfc8785.dumps(json.loads(text))).hexdigest() == digest


def wrong_values(value):
    """What no part of a JSON form may be instead of the value; or a list of one with one such entry."""
    for wrong in (None, True, [], {}, "", "word", [value], 1e300, str(value), {"value": value}):
        if wrong is True or wrong != value:
            yield wrong
    if isinstance(value, list):
        for place in {0, len(value) - 1}:
            yield from ([*value[:place], wrong, *value[place + 1 :]] for wrong in wrong_values(value[place]))


@every_case
def test_tampered_json_is_refused(case):
    """Whatever is missing, of another type, out of any range or unknown."""
    mechanism = build(case)
    data = json.loads(mechanism.to_json())
    for key, value in data.items():
        for wrong in (-1, -1.5, *wrong_values(value)):
            with pytest.raises(ValueError, match=r"."):
                reread(mechanism, **{key: wrong})
        missing = json.dumps({other: data[other] for other in data if other != key})
        if key == "messages":
            # Without it there is one message per person: another mechanism, with another digest.
            assert sstq.from_json(missing) == build(case, messages=1) != mechanism
            continue
        with pytest.raises(ValueError, match=r"."):
            sstq.from_json(missing)
    for unknown in ("extra", "frame_sede", "_stated", "self"):
        with pytest.raises(ValueError, match="unknown or inconsistent"):
            reread(mechanism, **{unknown: None})
    for version in (1, 3, 2.0, "2"):
        with pytest.raises(ValueError, match="version"):
            reread(mechanism, version=version)
    assert reread(mechanism) == mechanism


@every_case
def test_seeds_are_reproducible_and_entropy_is_fresh(case, monkeypatch):
    mechanism, x = build(case), some_rows(64)
    seen = set()
    for threads in ("1", "3"):
        monkeypatch.setenv("SSTQ_THREADS", threads)
        seen.add(encode(mechanism, x, rng=5).to_bytes())
    assert len(seen) == 1
    assert encode(mechanism, x, rng=5).simulated
    assert not encode(mechanism, x).simulated
    if mechanism.trust != "none":
        assert encode(mechanism, x).to_bytes() != encode(mechanism, x).to_bytes()


@every_case
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((2, DIM), np.nan), "finite"),
        (np.full((2, DIM), np.inf), "finite"),
        (np.ones(DIM + 1), "shape"),
        (np.ones((2, 2, DIM)), "shape"),
        (np.ones(DIM, dtype=complex), "dtype"),
        (np.ones(DIM).astype(str), "dtype"),
        ([[*[0.1] * (DIM - 1), None]], "NoneType in row 0"),
        (np.full(DIM, 2**53 + 1), "2^53"),
        (np.ma.array(np.ones((2, DIM)), mask=np.eye(2, DIM, dtype=bool)), "masked"),
    ],
)
def test_bad_vectors_are_refused_before_anything_is_sampled(case, bad, message, monkeypatch):
    mechanism = build(case)

    def no_words(_source, _count):
        raise AssertionError("sampled before the input was checked")

    monkeypatch.setattr("sstq.randomness.secret.SecureBits.words", no_words)
    with pytest.raises(ValueError, match=re.escape(message)):
        encode(mechanism, bad)


@every_case
def test_bad_arguments_are_refused_by_name(case):
    for argument, value in (("dim", 0), ("dim", 2.5), ("clip", 0.0), ("clip", math.nan)):
        with pytest.raises(ValueError, match=argument):
            build(case, **{argument: value})
    with pytest.raises(TypeError, match=f"^{case.split('/')[0]} takes no option 'flavour'; it takes dim, "):
        build(case, flavour="vanilla")
    chosen = type(build(case))
    with pytest.raises(TypeError, match="flavour"):
        chosen(**CASES[case], dim=DIM, flavour="vanilla")
    with pytest.raises(TypeError, match="dim"):
        chosen(**CASES[case])
    with pytest.raises(TypeError, match="positional"):
        chosen(DIM, EPSILON, 0.5)
    if "epsilon" in CASES[case]:
        for value in (0.0, -1.0, math.nan, math.inf, "2"):
            with pytest.raises(ValueError, match="epsilon"):
                build(case, epsilon=value)


@every_case
@pytest.mark.parametrize("vector", [*VECTORS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_VECTORS)])
def test_expectation_is_the_stated_one(case, vector, seed):
    mechanism = checks.fresh_coin(build(case), seed)
    checks.check_expectation(mechanism, checks.contract_vectors(mechanism, seed)[vector], seed, count=4000)


@every_case
@pytest.mark.parametrize("vector", ["gaussian", "spike", "short", "zero"])
def test_error_is_the_expected_one(case, vector, seed):
    mechanism = checks.fresh_coin(build(case), seed)
    if mechanism.trust == "aggregator":
        pytest.skip("the aggregator adds noise; see the mechanism's own tests")
    checks.check_error(mechanism, checks.contract_vectors(mechanism, seed)[vector], seed, count=4000)


@pytest.mark.slow
@local_cases
@pytest.mark.usefixtures("remembered_streams")
def test_no_privacy_violation_in_samples(case, seed):
    checks.check_privacy(build(case), seed, count=8000)


@private_cases
def test_the_same_number_of_random_words_for_every_input(case, seed):
    checks.check_words(build(case), seed)


@every_case
def test_aggregation_is_the_mean_of_the_estimates(case):
    mechanism = build(case)
    if mechanism.trust == "aggregator":
        pytest.skip("the aggregator adds noise; see the mechanism's own tests")
    messages = encode(mechanism, some_rows(300), rng=2)
    aggregator = mechanism.aggregator()
    aggregator.update(messages)
    estimate = aggregator.mean()
    if estimate.estimator == "mean":
        decoded = mechanism.decode(messages)
        np.testing.assert_allclose(estimate.value, decoded.mean(axis=0), atol=1e-9 * np.abs(decoded).max())
    assert estimate.count == 300 * mechanism.messages
    shards = [mechanism.aggregator() for _ in range(3)]
    for shard, part in zip(shards, (messages[200:], messages[:50], messages[50:200]), strict=True):
        shard.update(part)
    shards[0].merge(shards[1])
    shards[0].merge(shards[2])
    np.testing.assert_array_equal(shards[0].mean().value, estimate.value)
    np.testing.assert_array_equal(shards[0].mean().stderr, estimate.stderr)


@every_case
def test_aggregators_are_saved_and_refuse_foreign_messages(case, tmp_path: Path):
    mechanism, other = build(case), build(case, clip=0.75)
    aggregator = mechanism.aggregator()
    aggregator.update(encode(mechanism, some_rows(30), rng=2))
    aggregator.save(tmp_path / "state")
    resumed = mechanism.load_aggregator(tmp_path / "state")
    assert resumed.count == 30 * mechanism.messages
    with pytest.raises(ValueError, match="another mechanism"):
        resumed.update(encode(other, some_rows(3), rng=2))
    with pytest.raises(ValueError, match="another mechanism"):
        other.load_aggregator(tmp_path / "state")
    with pytest.raises(ValueError, match="at least one message"):
        mechanism.aggregator().mean()


@every_case
@pytest.mark.parametrize("suffix", [".sstq", ".parquet"])
def test_files_hold_the_messages(case, suffix, tmp_path: Path):
    mechanism = build(case)
    messages = encode(mechanism, some_rows(40), rng=2)
    path = tmp_path / f"messages{suffix}"
    write_messages(path, messages)
    again = Messages.concatenate(list(read_messages(path, mechanism)))
    assert again.to_bytes() == messages.to_bytes()
    assert again.simulated
    aggregator = mechanism.aggregator()
    assert aggregator.update_from_file(path)
    assert aggregator.count == 40 * mechanism.messages
