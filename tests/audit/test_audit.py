"""The audits: what they find in sound mechanisms, and that they find what is broken."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import bisect
from scipy.stats import binom
from typer.testing import CliRunner

import sstq
from sstq.audit import (
    ExactAudit,
    check_encoder,
    empirical_audit,
    exact_audit,
    worst_pairs,
)
from sstq.cli import app
from sstq.exactness import TOTAL, exp_lower, exp_upper, log_interval, log_upper
from sstq.scalar.channels import flat_channel_of_size
from sstq.scalar.laws import EitherLaw, Law, law_from_dict, mass
from tests.contract.cases import EXACT, build
from tests.contract.test_mutants import AsksForMoreOnZero

exact_cases = pytest.mark.parametrize("case", EXACT)


# Laws


@exact_cases
def test_the_ratio_is_that_of_the_mechanism(case):
    mechanism = build(case)
    audit = exact_audit(mechanism)
    assert log_upper(audit.ratio) == mechanism.privacy_loss()
    assert audit.holds
    assert Fraction(audit.lower) <= Fraction(mechanism.privacy_loss())
    assert law_from_dict(mechanism.law().to_dict()) == mechanism.law()


@exact_cases
def test_cells_share_out_all_words(case):
    law = build(case).law()
    for number in range(law.cases):
        boxes = law.boxes(number, range(law.cells(number)))
        assert sum(map(mass, boxes)) == 1
        assert all(0 <= low <= high < TOTAL for box in boxes for low, high in box)


# One of two candidates, with odds of 3 to 1.
COIN = Law("two-level", 2, [(1, 3 * (TOTAL // 4))])


def test_a_message_that_tells_its_draw_is_as_private_as_the_worst_draw():
    worse = Law("two-level", 2, [(1, 7 * (TOTAL // 8))])
    for parts in ([COIN, worse], [worse, COIN]):
        assert EitherLaw(parts).ratio() == worse.ratio() == 7 > COIN.ratio()
        assert (
            EitherLaw(parts, [Fraction(1, 10**9), 1 - Fraction(1, 10**9)]).ratio() == 7
        )


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Law("flat", 3, [(TOTAL - 1, 1)]),
        lambda: Law("flat", 2, [(TOTAL, 0)]),
        lambda: Law("table", 2, [[TOTAL, 0], [TOTAL - 1, 1]]),
        lambda: Law("table", 1, [[TOTAL + 1, -1]]),
        lambda: Law(
            "table", 2, [[TOTAL // 2, TOTAL // 2], [TOTAL // 2, TOTAL // 2 - 1]]
        ),
        lambda: Law("two-level", 4, []),
        lambda: Law("two-level", 4, [(2, TOTAL)]),
        lambda: Law("two-level", 4, [(0, 5)]),
        lambda: Law("half-space", 4, [(5, 5)]),
        lambda: law_from_dict({"kind": "flat", "size": 2, "weights": [1, 2]}),
        lambda: law_from_dict({"kind": "two-level", "size": 2, "weights": [[1]]}),
        lambda: law_from_dict({"kind": "round", "size": 2, "weights": []}),
        lambda: law_from_dict([]),
        lambda: EitherLaw([COIN, COIN], [Fraction(1, 2), Fraction(1, 3)]),
        lambda: EitherLaw([COIN, COIN], [Fraction(3, 2), Fraction(-1, 2)]),
        lambda: EitherLaw([COIN, COIN], [Fraction(1)]),
        lambda: EitherLaw([]),
        lambda: EitherLaw([Law("flat", 2, [(3 * (TOTAL // 4), TOTAL // 4)])]),
    ],
)
def test_laws_that_are_none_are_refused(refused):
    with pytest.raises(ValueError, match=r"must|weight|law"):
        refused()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 20.0])
def test_ratios_are_compared_with_e_to_the_epsilon_exactly(epsilon):
    """Both ratios are the same double."""
    law = build("sstq").law()
    for ratio, holds in ((exp_lower(epsilon), True), (exp_upper(epsilon), False)):
        assert ExactAudit(law, epsilon, 1, ratio, Decimal(0), Decimal(0)).holds == holds
    totals = {
        count: ExactAudit(law, epsilon, count, ratio, Decimal(0), Decimal(0)).total
        for count in range(1, 60)
    }
    for count, total in totals.items():
        assert (
            Fraction(math.nextafter(total, 0))
            < count * Fraction(epsilon)
            <= Fraction(total)
        )


@pytest.mark.parametrize(
    "ratio",
    [Fraction(1), Fraction(TOTAL + 1, TOTAL), Fraction(20), Fraction(10**13, 3)],
)
def test_log_intervals_enclose(ratio):
    lower, upper = log_interval(ratio)
    assert upper - lower <= Decimal("1e-27")
    # Rounded outwards to doubles, the ends are on either side of the ratio.
    assert exp_lower(math.nextafter(float(lower), -1)) <= ratio
    assert ratio == 1 or ratio <= exp_lower(math.nextafter(float(upper), math.inf))


@pytest.mark.parametrize("name", ["privunit", "csgm", "turboquant"])
def test_what_has_no_weights_is_not_blessed(name):
    with pytest.raises(ValueError, match=f"{name} .* no integer weights to audit"):
        exact_audit(build(name))


# The encoder


@pytest.mark.slow
def test_too_many_outcomes_are_sampled():
    check = check_encoder(sstq.mechanism("vqsgd", dim=3000, epsilon=1.0))
    assert not check.complete
    assert not check.problem


class OffByOne(sstq.SSTQ):
    """Sends the next code for one word in 2^62."""

    def encode_rows(self, rows, source, report):
        counted = Recording(source)
        code, index = super().encode_rows(rows, counted, report)
        last = counted.drawn.reshape(len(rows), 3)[:, 2] >> np.uint64(2)
        return np.where(last == self.channel.own - 1, (code + 1) % 4, code), index


class Recording:
    """A source that remembers what it handed out."""

    simulated = True

    def __init__(self, source):
        self._source = source

    def words(self, count):
        self.drawn = self._source.words(count)
        return self.drawn


class LeaksTheSide(type(build("frameunit"))):
    """Always sends the best aligned row when it draws one inside."""

    def encode_rows(self, rows, source, report):
        (row,) = super().encode_rows(rows, source, report)
        (best,) = super().encode_rows(rows, Zeros(), report)
        return (np.where((row // 2) % 2 == 0, best, row),)


class Zeros:
    """A source of zeros."""

    simulated = True

    def words(self, count):
        return np.zeros(count, dtype=np.uint64)


@pytest.mark.parametrize(
    ("mutant", "problem"),
    [
        (OffByOne(dim=6, epsilon=2.0, bits=2), "does not follow the law"),
        (LeaksTheSide(dim=6, epsilon=2.0), "does not follow the law"),
        (AsksForMoreOnZero(dim=6, epsilon=2.0), "depends on the vector"),
    ],
)
def test_an_encoder_that_does_something_else_is_found(mutant, problem):
    assert exact_audit(mutant).holds
    assert problem in check_encoder(mutant).problem


# The empirical audit


def overspent(case, channel, **changes):
    mechanism = build(case, **changes)
    object.__setattr__(mechanism, "channel", channel)
    return mechanism


def test_a_guarantee_against_the_centre_only_is_found(seed):
    # p(m|x) is within e^ε of p(m|0) = 1/2, but within 2·e^ε − 1 of p(m|−x) only.
    mutant = overspent(
        "vqsgd", flat_channel_of_size(2, math.log(2 * math.e - 1)), dim=1, epsilon=1.0
    )
    # At this level either assertion fails falsely with a probability below 1e-8.
    audit = empirical_audit(mutant, alpha=1e-9, rng=seed)
    bounds = {result.pair: result.bound for result in audit.results}
    assert bounds["a vector and zero"] <= 1.0
    assert bounds["a spike and its opposite"] > 1.0
    assert audit.violation


@pytest.mark.parametrize("pairs", [1, 3])
def test_the_bound_of_one_pair_is_clopper_and_pearsons(pairs):
    """The level is shared by the pairs, and by the two sides of each; the bounds are found again by bisection."""
    mechanism = build("vqsgd", dim=1, epsilon=3.0)
    x = np.array([[mechanism.clip]])
    audit = empirical_audit(
        mechanism,
        400,
        0.01,
        rng=1,
        pairs={str(number): (x[0], -x[0]) for number in range(pairs)},
    )
    side = 0.01 / (2 * pairs)
    # All of 200 messages, and none of 200: p^200 = side, and (1 − q)^200 = side.
    least = side ** (1 / 200)
    assert audit.reach == pytest.approx(math.log(least / (1 - least)), rel=1e-9)
    for result in audit.results:
        low = bisect(
            lambda p, hits=result.likely: binom.sf(hits - 1, 200, p) - side,
            0.0,
            1.0,
            xtol=1e-14,
        )
        high = bisect(
            lambda q, hits=result.unlikely: binom.cdf(hits, 200, q) - side,
            0.0,
            1.0,
            xtol=1e-14,
        )
        assert result.bound == pytest.approx(math.log(low / high), rel=1e-6)


class TellsInTheFirstHalf(sstq.VqSGD):
    """Says the truth in the first half of the messages, and nothing in the second."""

    def encode_slots(self, rows, source, report, slots):
        places = np.arange(len(rows))
        told = np.where(places < len(rows) // 2, rows[:, 0] > 0, places % 2)
        return self.messages_from_columns(
            (told.astype(self.layout.fields[0].dtype),), True
        )


def test_an_event_is_tested_on_other_messages_than_those_that_selected_it():
    mechanism = TellsInTheFirstHalf(dim=1, epsilon=3.0)
    x = np.array([mechanism.clip])
    audit = empirical_audit(mechanism, 400, 0.01, rng=1, pairs={"opposite": (x, -x)})
    assert audit.lower_bound == 0.0
    assert [(result.likely, result.unlikely) for result in audit.results] == [
        (100, 100)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["vqsgd", "privunit"])
def test_false_alarms_are_rarer_than_alpha(case, seed):
    # The pair that spends all of ε, so that only the level protects it.
    mechanism = build(case, dim=8)
    alpha = 0.1
    runs = 40
    x = mechanism.clip * np.eye(8)[0]
    alarms = sum(
        empirical_audit(
            mechanism, 400, alpha, rng=seed + run, pairs={"opposite": (x, -x)}
        ).violation
        for run in range(runs)
    )
    # Binomial(40, α) exceeds this with probability below 1e-6.
    assert alarms <= binom.isf(1e-6, runs, alpha)


def test_too_few_messages_say_so():
    audit = empirical_audit(build("vqsgd", epsilon=16.0), samples=200)
    assert audit.reach < audit.epsilon


@pytest.mark.parametrize(("case", "arguments"), [("vqsgd", {"samples": 3})])
def test_what_cannot_be_audited_is_refused(case, arguments):
    with pytest.raises(ValueError, match="samples must be"):
        empirical_audit(build(case), **arguments)


def test_pairs_are_different_vectors_within_the_clip():
    for case in ("vqsgd", "sstq", "privunit"):
        for dim in (2, 6):
            mechanism = build(case, dim=dim)
            for x, other in worst_pairs(mechanism, np.random.default_rng(1)).values():
                assert np.any(x != other)
                assert max(
                    np.linalg.norm(x), np.linalg.norm(other)
                ) <= mechanism.clip * (1 + 1e-12)


# The command


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "mechanism.json"
    path.write_text(build("frameunit/small").to_json())
    return path


def test_the_exact_audit_prints_rational_ends(spec):
    done = run("exact", spec)
    assert done.exit_code == 0
    facts = dict(line.split("\t") for line in done.stdout.splitlines())
    assert (
        Decimal(facts["epsilon of one message is at least"])
        < Decimal(facts["epsilon of one message is at most"])
        <= 2
    )
    assert (
        Fraction(facts["largest ratio, exactly"])
        == build("frameunit/small").law().ratio()
    )


def test_the_empirical_audit_warns_of_too_few_messages(tmp_path):
    path = tmp_path / "mechanism.json"
    path.write_text(build("vqsgd", epsilon=12.0).to_json())
    done = run("empirical", path, "--samples", 500, "--seed", 1)
    assert "pass more --samples" in done.stderr


def test_certificates_are_written_and_verified(spec, tmp_path):
    certificate = tmp_path / "certificate.json"
    assert run("certify", spec, "--output", certificate).exit_code == 0
    assert run("verify", certificate, spec).exit_code == 0
    certificate.write_text(
        certificate.read_text().replace('"epsilon": 2.0', '"epsilon": 1.0')
    )
    done = run("verify", certificate)
    assert done.exit_code == 1
    assert "more than its epsilon" in done.stderr
