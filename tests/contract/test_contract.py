"""One suite that every mechanism passes: `sstq.testing`."""

import inspect
import json

import numpy as np
import pytest
from scipy.stats import binom

import sstq
from sstq import testing
from sstq.mechanisms.agreement import Agreement
from sstq.testing import accuracy, draws, forms, tools
from tests.contract.cases import (
    BOUNDED,
    CASES,
    DIM,
    EPSILON,
    NOT_LOCAL,
    RECORDS,
    build,
    build_small,
    each,
    reread,
)

every_case = pytest.mark.parametrize("case", each([*CASES, *RECORDS]))
vector_case = pytest.mark.parametrize("case", each(CASES))
# The quick lane has the first vectors only, `make test` the second as well, and `make soak` all others.
VECTORS = ("gaussian", "spike", "zero")
SECOND = ("constant", "short")
OTHERS = ("heavy-tailed", "alternating", "block", "sparse", "hadamard")
# What sends continuous values is not enumerated but sampled, which takes long; ProjUnit draws as PrivUnit does.
SAMPLED = ("privunit", "privunit/hemisphere", "privunitg")
CONTINUOUS = (*SAMPLED, "projunit")


def test_every_mechanism_has_a_case():
    assert {case.split("/")[0] for case in [*CASES, *RECORDS, *NOT_LOCAL]} >= set(
        sstq.list_mechanisms()
    )


OTHER_CHECKS = [
    check
    for check in testing.CHECKS
    if check not in (accuracy.check_estimates, draws.check_privacy)
]


@pytest.mark.parametrize("case", each([*CASES, *RECORDS, *BOUNDED]))
@pytest.mark.parametrize("check", OTHER_CHECKS)
def test_the_contract_holds(case, check, seed):
    assert check(build(case), seed) is None


@pytest.mark.parametrize(
    "case",
    each([case for case in [*CASES, *RECORDS, *BOUNDED] if case not in CONTINUOUS]),
)
def test_the_encoder_follows_its_law(case, seed):
    mechanism = build_small(case)
    draws.check_privacy(mechanism, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*SAMPLED, pytest.param("projunit", marks=pytest.mark.soak)]
)
@pytest.mark.usefixtures("remembered_streams")
def test_no_privacy_violation_in_samples(case, seed):
    draws.check_privacy(build(case), seed)


@pytest.mark.parametrize("case", each([*CASES, *RECORDS, *BOUNDED]))
@pytest.mark.usefixtures("remembered_streams")
def test_mean_and_error_are_the_stated_ones(case, seed):
    accuracy.check_estimates(build(case), seed, VECTORS)


@pytest.mark.slow
@vector_case
@pytest.mark.parametrize(
    "vectors",
    [SECOND, pytest.param(OTHERS, marks=pytest.mark.soak)],
    ids=["second", "others"],
)
@pytest.mark.usefixtures("remembered_streams")
def test_mean_and_error_of_other_vectors_are_the_stated_ones(case, vectors, seed):
    assert {*VECTORS, *SECOND, *OTHERS} == accuracy.trials(build(case), seed).keys()
    accuracy.check_estimates(build(case), seed, vectors)


def test_a_variant_shows_its_options_in_the_order_of_the_signature():
    variant = sstq.FrameUnit(dim=6, epsilon=2.0, frame_size=8).replace(clip=0.75)
    assert repr(variant) == "FrameUnit(dim=6, epsilon=2.0, clip=0.75, frame_size=8)"


def test_check_mechanism_runs_every_check(monkeypatch):
    ran = []
    monkeypatch.setattr(testing, "CHECKS", [lambda *given: ran.append(given)] * 3)
    mechanism = build("vqsgd")
    testing.check_mechanism(mechanism, seed=7)
    assert ran == [(mechanism, 7)] * 3

    def check_nothing(_mechanism, _seed):
        raise AssertionError("it is wrong")

    monkeypatch.setattr(testing, "CHECKS", [check_nothing])
    with pytest.raises(
        AssertionError, match=r"^check_nothing \(seed 7\): it is wrong$"
    ):
        testing.check_mechanism(mechanism, seed=7)


SMALLEST = {
    "two numbers": (sstq.SSTQ(1, 2.0, bits=2), {}),
    "four rows": (sstq.FrameUnit(1, 2.0, frame_size=8), {}),
    # One of 160,000 answers is another category.
    "nearly no noise": (sstq.Frequencies(2, 12.0), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_check_mechanism_accepts_the_smallest_and_says_what_it_left_out(name, seed):
    mechanism, left_out = SMALLEST[name]
    assert testing.check_mechanism(mechanism, seed) == left_out


def test_all_checks_are_listed():
    named = {
        name: check
        for module in (accuracy, draws, forms)
        for name, check in vars(module).items()
    }
    ours = {
        check
        for name, check in named.items()
        if name.startswith("check_") and name != "check_encoder"
    }
    assert ours == {*testing.CHECKS}
    assert len({*testing.CHECKS}) == len(testing.CHECKS)


@pytest.mark.parametrize("n", [50, 4000])
def test_a_statistical_test_of_what_is_correct_fails_with_the_stated_probability(n):
    """Exactly, for answers of two kinds: also where the rarer one does not occur, or once."""
    hits = np.arange(n + 1)
    margins = []
    for count in hits:
        values = np.zeros(n)
        values[:count] = 1.0
        margins.append(accuracy.margin_of(values, 1.0))
    for p in np.concatenate(
        [np.logspace(-9, -0.31, 60), 1 - np.logspace(-9, -0.31, 60)]
    ):
        off = np.abs(hits / n - p) > margins
        assert binom.pmf(hits, n, p)[off].sum() < 1e-9


def test_a_statistical_test_has_power():
    """A bias of a fifth of the standard deviation of 4,000 answers is beyond the margin, if none is long."""
    values = np.tile([-1.0, 1.0], 2000)
    assert 0.1 < accuracy.margin_of(values, 2.0) < 0.2


@every_case
def test_bad_options_are_refused_by_name(case):
    mechanism = build(case)
    for name in {"epsilon", "clip"} & {*mechanism.options}:
        for bad in (0.0, float("nan"), "2"):
            for make in (
                mechanism.replace,
                lambda **bad: type(mechanism)(**{**mechanism.options, **bad}),
            ):
                with pytest.raises(ValueError, match=f"{name} must be"):
                    make(**{name: bad})
    option = "clip" if "clip" in mechanism.options else "epsilon"
    others = tools.some_messages(
        mechanism.replace(**{option: 0.6 * getattr(mechanism, option)}), 3, 1
    )
    with pytest.raises(ValueError, match="another mechanism"):
        mechanism.aggregator().update(others)
    with pytest.raises(ValueError, match="at least one message"):
        mechanism.aggregator().mean()


@every_case
def test_options_are_kept_as_given(case):
    given = RECORDS.get(case) or {"dim": DIM, "clip": 0.5} | CASES[case]
    mechanism = build(case)
    taken = inspect.signature(type(mechanism)).parameters
    given = {
        name: value for name, value in given.items() if value != taken[name].default
    }
    assert mechanism.options == given
    assert list(mechanism.options) == [
        name for name in inspect.signature(type(mechanism)).parameters if name in given
    ]


@vector_case
def test_bad_arguments_are_refused_by_name(case):
    with pytest.raises(
        TypeError,
        match=f"^{case.split('/')[0]} takes no option 'flavour'; it takes dim, ",
    ):
        build(case, flavour="vanilla")
    chosen = type(build(case))
    with pytest.raises(TypeError, match="dim"):
        chosen(**CASES[case])
    with pytest.raises(TypeError, match="positional"):
        chosen(DIM, EPSILON, 0.5)


@every_case
def test_json_with_unknown_fields_says_so(case):
    mechanism = build(case)
    for unknown in ("extra", "frame_sede", "self"):
        with pytest.raises(ValueError, match="unknown or inconsistent"):
            reread(mechanism, **{unknown: None})
    for version in (1, 3, 2.0, "2"):
        with pytest.raises(
            ValueError,
            match=r"has version .*, this library reads version 2; write it with `sstq spec`",
        ):
            reread(mechanism, version=version)
    assert reread(mechanism) == mechanism
    data = json.loads(mechanism.to_json())
    if data.pop("messages", None):
        # Without it there is one message per person: another mechanism, with another digest.
        assert sstq.from_json(json.dumps(data)) == build(case, messages=1) != mechanism


@every_case
def test_json_with_any_number_changed_is_sound_or_a_value_error(case):
    """What is read is private as it says, encodes, and is written again as it was read."""
    fields = json.loads(build(case).to_json())
    refused = 0
    for name in fields.keys() - {"format", "version", "mechanism"}:
        numbers = ["0", "1"] if isinstance(fields[name], str) else [0, 1, -1, 1e300]
        for number in numbers if isinstance(fields[name], str | int | float) else []:
            try:
                found = sstq.from_json(json.dumps(fields | {name: number}))
            except ValueError:
                refused += 1
                continue
            assert found.privacy_loss() <= found.epsilon
            assert json.loads(found.to_json()) == fields | {name: number}
            assert len(
                found.messages_from_bytes(
                    tools.some_messages(found, 2, 1).to_bytes(), 2 * found.messages
                )
            )
    assert refused >= 2  # -1 and 10^300 at least


@every_case
def test_the_same_messages_whatever_the_threads(case, monkeypatch):
    seen = set()
    for threads in ("1", "3"):
        monkeypatch.setenv("SSTQ_THREADS", threads)
        seen.add(tools.some_messages(build(case), 64, rng=5).to_bytes())
    assert len(seen) == 1


@every_case
def test_nobody_overrides_what_another_class_has_made_concrete(case):
    """Public methods of the base are final, and no hook is replaced twice between it and a mechanism."""
    mechanism = type(build(case))
    ours = [
        cls
        for cls in mechanism.__mro__
        if issubclass(cls, Agreement) and cls is not Agreement
    ]
    between = ours[: ours.index(sstq.Mechanism)]
    base = ours[ours.index(sstq.Mechanism) :]
    attributes = {"layout", "unbiased", "words_each", "estimator"}
    # Those that have a default.
    attributes |= {
        "check_solved",
        "check_messages",
        "bias_of_mean",
        "typical_error",
        "mean_error",
        "prospect",
        "uniform_coordinates",
        # whose estimates are more, or noisy
        "aggregator",
        "load_aggregator",
    }
    attributes |= {"largest_biased_mean", "uniform_coordinates"}
    for name, value in (item for cls in base for item in vars(cls).items()):
        concrete = inspect.isfunction(value) and not getattr(
            value, "__isabstractmethod__", False
        )
        if concrete and not name.startswith("_") and name not in attributes:
            assert not [cls.__name__ for cls in between if name in vars(cls)], name
    for name in {
        name
        for cls in between
        for name in vars(cls)
        if inspect.isfunction(vars(cls)[name])
    }:
        makers = [cls.__name__ for cls in between if name in vars(cls)]
        abstract = [
            getattr(vars(cls)[name], "__isabstractmethod__", False)
            for cls in between
            if name in vars(cls)
        ]
        if name != "__init__":
            assert len(makers) - sum(abstract) <= 1, f"{name} is in {makers}"
