"""Accounting against independent references: fractions, mpmath and enumeration of real channels."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import sstq
from sstq.accounting import (
    Ledger,
    compose,
    epsilon_per_round,
    rounds_allowed,
    shuffled_epsilon,
)
from sstq.accounting.bounds import answers_of
from sstq.accounting.composition import _walk
from sstq.checks import ArgumentError
from sstq.cli.account import account
from tests.accounting.references import (
    clones_delta,
    histograms,
    hockey_stick,
    shuffled_delta,
)

TOO_MUCH = 1 + 1e-6


def reference_delta(epsilon, rounds, total):
    """Kairouz, Oh, Viswanath (2015), Theorem 3.3, summed with 80 digits at any ε′."""
    with mpmath.workdps(80):
        grown = mpmath.exp(mpmath.mpf(epsilon))
        terms = (
            mpmath.binomial(rounds, lies)
            * (grown ** (rounds - lies) - mpmath.exp(total) * grown**lies)
            for lies in range(rounds + 1)
        )
        return float(sum(term for term in terms if term > 0) / (1 + grown) ** rounds)


def random_channel(generator, epsilon, inputs, outputs):
    """A random ε-LDP channel, its entries at the ends of the allowed range about half the time."""
    while True:
        base = generator.dirichlet(np.ones(outputs))
        lifts = np.where(
            generator.random((inputs, outputs)) < 0.5,
            generator.integers(0, 2, (inputs, outputs)),
            0.5,
        )
        rows = base * np.exp(epsilon * lifts)
        rows /= rows.sum(axis=1, keepdims=True)
        if np.log(rows.max(axis=0) / rows.min(axis=0)).max() <= epsilon:
            return rows


# Composition


@pytest.mark.parametrize("epsilon", [0.01, 30.0])
@pytest.mark.parametrize("rounds", [1, 7, pytest.param(501, marks=pytest.mark.slow)])
def test_optimal_delta_is_the_theorem(epsilon, rounds):
    for fraction in (0.02, 0.51, 0.999):
        total = fraction * rounds * epsilon
        expected = reference_delta(epsilon, rounds, total)
        # Above the errors of SciPy's masses, of about 1e-13.
        assert (
            expected
            <= _walk(epsilon, rounds).delta(total)
            <= expected * (1 + 2e-9) + 1e-300
        )


def test_masses_of_a_walk_leave_room_for_rounding():
    """SciPy's errors are about 1e-13 of a mass; each is enlarged by 1e-9."""
    epsilon = 1.0
    with mpmath.workdps(40):
        lie = 1 / (1 + mpmath.exp(epsilon))
        for lies, mass in zip(range(5, -1, -1), _walk(epsilon, 10).masses, strict=True):
            exact = mpmath.binomial(10, lies) * lie**lies * (1 - lie) ** (10 - lies)
            assert 1 + 0.9e-9 < mass / exact < 1 + 1.1e-9


@pytest.mark.parametrize("delta", [1e-7, 1e-30])
def test_very_many_rounds_are_like_gaussian_noise(delta):
    """The losses of 10⁸ rounds of 0.01 are normal with mean 5,000 and standard deviation 100."""
    total = compose(0.01, 10**8, delta)
    low, high = (
        mpmath.ncdf(50 - one / 100) - mpmath.exp(one) * mpmath.ncdf(-50 - one / 100)
        for one in (total * 0.998, total * 1.002)
    )
    assert high < delta < low


@given(st.floats(1e-3, 8), st.integers(1, 300), st.floats(-30, -0.5))
# δ is of the size of the rounding error of the loss
@example(3.235072902050229, 5, -15.0)
def test_optimal_composition_is_the_inverse_of_its_delta(epsilon, rounds, exponent):
    delta = 10**exponent
    total = compose(epsilon, rounds, delta)
    assert 0 <= total <= compose(epsilon, rounds)
    if total > 1e-9:
        assert reference_delta(epsilon, rounds, total) <= delta
        assert reference_delta(epsilon, rounds, total / TOO_MUCH) > delta * (1 - 1e-6)


@given(st.floats(1e-6, 50), st.integers(1, 1000))
def test_the_sum_is_exact_and_rounded_up(epsilon, rounds):
    total = compose(epsilon, rounds)
    exact = rounds * Fraction(epsilon)
    assert Fraction(math.nextafter(total, 0)) < exact <= Fraction(total)
    assert rounds_allowed(epsilon, total) >= rounds
    assert rounds_allowed(epsilon, math.nextafter(total, 0)) < rounds
    assert rounds * Fraction(epsilon_per_round(rounds, total)) <= Fraction(total)


# The inverse questions


@pytest.mark.parametrize(
    ("epsilon", "total", "delta"),
    [(0.1, 8.0, 1e-6), (0.5, 3.3, 1e-8), (0.02, 1.0, 1e-5)],
)
def test_rounds_allowed_is_the_edge(epsilon, total, delta):
    rounds = rounds_allowed(epsilon, total, delta)
    assert (
        compose(epsilon, rounds, delta) <= total < compose(epsilon, rounds + 1, delta)
    )


@pytest.mark.parametrize(
    ("rounds", "total", "delta"), [(1, 0.5, 1e-6), (100, 8.0, 1e-6), (3000, 2.0, 1e-9)]
)
def test_epsilon_per_round_is_the_edge(rounds, total, delta):
    epsilon = epsilon_per_round(rounds, total, delta)
    assert compose(epsilon, rounds, delta) <= total * (1 + 1e-11)
    assert compose(epsilon * TOO_MUCH, rounds, delta) > total


@pytest.mark.parametrize("rounds", [3, 5, 7, 11])
def test_a_total_just_below_the_sum_does_not_fit(rounds):
    """By the last bit: the loss of a walk that only goes up is above the total, with far more than δ."""
    for epsilon in np.linspace(0.3, 6, 40):
        total = math.nextafter(compose(float(epsilon), rounds), 0)
        assert reference_delta(float(epsilon), rounds, total) > 1e-60
        assert rounds_allowed(float(epsilon), total, 1e-60) < rounds


def test_nothing_is_counted_beyond_the_limits():
    assert rounds_allowed(1e-9, 1e6) == 10**9
    # the sum allows three fewer
    assert rounds_allowed(1e-9, 0.999999997, 1e-3) == 10**9
    assert epsilon_per_round(2, 199.99, 0.1) == 100.0
    assert rounds_allowed(50.0, 1.0) == 0
    assert rounds_allowed(50.0, 1.0, 1e-6) == 0


# Shuffling


def blanket_delta(first, second, epsilon, clients, total):
    """1/n·E(Z₁ + … + Z_n)⁺ of the proof, by enumeration: what is left of the others is told, the blanket is not."""
    blanket = math.exp(-epsilon) * np.maximum(first, second)
    terms = [
        *zip((first - math.exp(total) * second) / blanket, blanket, strict=True),
        (0.0, 1 - blanket.sum()),
    ]
    return (
        sum(
            math.prod(mass for _, mass in chosen)
            * max(0.0, sum(value for value, _ in chosen))
            for chosen in itertools.product(terms, repeat=clients)
        )
        / clients
    )


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_every_step_of_the_proof_holds_below_the_largest_total_variation(seed, share):
    """A part 1 − share of every message is drawn from what hardly depends on the vector, and differs between them."""
    generator = np.random.default_rng(seed)
    for _ in range(4):
        epsilon = generator.uniform(0.2, 3)
        clients = 4
        common = random_channel(generator, generator.uniform(0, epsilon), 3, 2)
        flip = 1 / (math.exp(epsilon) + 1)
        telling = np.array([[1 - flip, flip], [flip, 1 - flip], [0.5, 0.5]])
        channel = np.concatenate([share * telling, (1 - share) * common], axis=1)
        if share == 1.0:
            channel = channel[:, :2]
        for total in (0.0, 0.3 * epsilon, 0.9 * epsilon):
            blanket = blanket_delta(channel[0], channel[1], epsilon, clients, total)
            clones = clones_delta(epsilon, clients, total)
            assert (
                blanket
                <= clones * (1 + 1e-9)
                <= shuffled_delta(epsilon, clients, total) * (1 + 2e-9)
            )
            if share == 1.0:
                assert blanket == pytest.approx(clones, rel=1e-6)
            for others in itertools.combinations_with_replacement(
                range(3), clients - 1
            ):
                first, second = (
                    histograms([one, *channel[list(others)]]) for one in channel[:2]
                )
                assert hockey_stick(first, second, math.exp(total)) <= blanket + 1e-14


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 6.0])
@pytest.mark.parametrize("clients", [2, 30, 3000])
def test_groups_and_grids_cost_little_and_err_on_the_safe_side(epsilon, clients):
    for share in (0.01, 0.05, 0.3):
        exact = clones_delta(epsilon, clients, share * epsilon)
        delta = shuffled_delta(epsilon, clients, share * epsilon)
        assert exact * (1 - 1e-9) <= delta <= exact * 1.05 + 1e-30


@given(st.floats(0.01, 30), st.integers(1, 10**8), st.floats(-20, -1))
def test_shuffled_epsilon_is_the_inverse_and_falls_with_the_crowd(
    epsilon, clients, exponent
):
    delta = 10**exponent
    amplified = shuffled_epsilon(epsilon, clients, delta)
    assert 0 <= amplified <= epsilon
    # What is left out depends on the δ that is asked for, by far less than this.
    assert shuffled_delta(epsilon, clients, amplified) <= delta * (1 + 1e-4)
    if amplified > 1e-9:
        assert shuffled_delta(epsilon, clients, amplified / TOO_MUCH) > delta * (
            1 - 1e-2
        )
    # Groups of clones cost up to some thousandths, which may hide a few clients more but not twice as many.
    assert shuffled_epsilon(epsilon, 2 * clients, delta) <= amplified * 1.01


def test_almost_no_clone_hides_nobody():
    # e^100 ≫ n: δ of no clone at all is p − e^ε(1 − p) = (e^100 − e^ε)/(e^100 + 1)
    assert shuffled_epsilon(100.0, 10**12, 1e-6) == pytest.approx(
        100 + math.log1p(-1e-6), rel=1e-9
    )


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: compose(0.0, 3),
            r"epsilon must be a number in \[1e-09, 100\], got 0.0",
        ),
        (
            lambda: compose(1.0, 0),
            r"rounds must be an integer in \[1, 1000000000\], got 0",
        ),
        (
            lambda: compose(1.0, 3, -1e-6),
            r"delta must be a number in \[1e-100, 0.5\], got -1e-06",
        ),
        (lambda: compose(1.0, 3, False), "delta must be a number"),
        (lambda: epsilon_per_round(10**9, 1e-3), "leaves less than 1e-09"),
        (lambda: rounds_allowed(1.0, -1.0), "total_epsilon must be a number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("participation", ["twice", 0, -1, 1.5, True, None, 10**9 + 1])
def test_other_participations_are_refused(participation):
    sentence = rf"^participation must be 'once' or an integer in \[1, 1000000000\], got {participation!r}$"
    with pytest.raises(ArgumentError, match=sentence) as refused:
        answers_of(participation)
    assert refused.value.argument == "participation"
    assert [answers_of(each) for each in ("once", 1, 10**9)] == [1, 1, 10**9]


# The command


def run(*arguments, code=0):
    app = typer.Typer()
    app.command()(account)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def table(result):
    head, *rows = [
        line.split("\t") for line in result.stdout.splitlines() if "\t" in line
    ]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_account_shows_the_sum_and_the_bound_with_delta():
    rows = table(
        run("--epsilon", 0.1, "--rounds", 100, "--delta", 1e-6, "--total-epsilon", 8)
    )
    assert list(rows) == ["sum", "with δ"]
    assert rows["sum"]["epsilon of 100 rounds"] == "10"
    assert rows["sum"]["delta"] == "0"
    # 100 times the double 0.08 is over 8
    assert rows["sum"]["epsilon per round, 100 rounds within 8"] == "0.0799999"
    assert rows["with δ"]["delta"] == "1e-06"
    assert float(rows["with δ"]["epsilon of 100 rounds"]) == pytest.approx(
        compose(0.1, 100, 1e-6), rel=1e-5
    )
    assert float(rows["with δ"]["epsilon of 100 rounds"]) >= compose(0.1, 100, 1e-6)
    assert rows["with δ"]["rounds within 8"] == str(rounds_allowed(0.1, 8.0, 1e-6))
    assert float(
        rows["with δ"]["epsilon per round, 100 rounds within 8"]
    ) <= epsilon_per_round(100, 8.0, 1e-6)


def test_account_of_a_mechanisms_shuffled_messages(tmp_path):
    mechanism = sstq.FrameUnit(dim=10, epsilon=4.0)
    path = tmp_path / "m.json"
    path.write_text(mechanism.to_json())
    crowd = ("--clients", 10_000, "--delta", 1e-6, "--messages", 4)
    result = run("--mechanism", path, "--rounds", 2, *crowd)
    rows = table(result)
    by_law, any_other, cheating = (float(row["epsilon"]) for row in rows.values())
    expected = shuffled_epsilon(mechanism, 10_000, 1e-6, messages=4, rounds=2)
    assert expected <= by_law <= expected * (1 + 1e-5)
    assert by_law < any_other < cheating == pytest.approx(32, rel=1e-9)
    assert "trusted shuffler" in result.stderr


def test_account_shows_a_ledger(tmp_path):
    ledger = Ledger(tmp_path / "client.ledger", epsilon=2.0, round_cap=1.0)
    ledger.spend(0.5, "first")
    lines = dict(
        line.split("\t", 1) for line in run("--ledger", ledger.path).stdout.splitlines()
    )
    assert lines["spent"] == "0.5"
    assert lines["remaining"] == "1.5"
    assert lines["round cap"] == "1.0"
    assert lines["first"].startswith("0.5\t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", 1], "two of --epsilon, --rounds and --total-epsilon"),
        (["--ledger", "x", "--epsilon", 1], "--ledger cannot be combined"),
        (
            ["--epsilon", 1, "--rounds", 2, "--clients", 9],
            "--clients and --messages need --mechanism",
        ),
        (
            ["--mechanism", "m.json", "--delta", 0.1],
            "--mechanism needs --clients and --delta",
        ),
    ],
)
def test_account_refuses(arguments, message):
    assert message in str(run(*arguments, code=1).exception)
