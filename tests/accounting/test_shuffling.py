"""The public functions: bounds of one and of many shuffled messages, their inverses and their errors."""

import itertools
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from sstq.accounting import shuffled_epsilon, two_level_local_epsilon
from sstq.accounting.shuffling import normal_local_epsilon, normal_power
from sstq.scalar.channels import flat_channel_of_size
from sstq.scalar.laws import Law
from tests.accounting.references import attained_delta, two_level_shuffled_epsilon

WORSE = {
    "more inside": lambda crowd: crowd | {"share": min(0.5, 1.5 * crowd["share"])},
    "more messages": lambda crowd: crowd | {"messages": 2 * crowd["messages"]},
    "a larger epsilon": lambda crowd: crowd | {"epsilon": 1.2 * crowd["epsilon"]},
    "a smaller delta": lambda crowd: crowd | {"delta": crowd["delta"] / 100},
    "fewer clients": lambda crowd: crowd | {"clients": crowd["clients"] // 2},
}
CROWDS = {
    "epsilon": st.floats(0.1, 10),
    "share": st.floats(-3, -0.31).map(lambda exponent: 10**exponent),
    "clients": st.integers(10**3, 10**7),
    "delta": st.sampled_from([1e-4, 1e-6, 1e-12]),
    "messages": st.sampled_from([1, 2, 16]),
}


@given(st.fixed_dictionaries(CROWDS), st.sampled_from(sorted(WORSE)))
def test_fewer_inside_more_clients_and_fewer_messages_are_better(crowd, change):
    total = two_level_shuffled_epsilon(**crowd)
    assert 0 <= total <= crowd["messages"] * crowd["epsilon"] * (1 + 1e-15)
    # Groups, cells and the grid may hide half a percent.
    assert total <= two_level_shuffled_epsilon(**WORSE[change](crowd)) * 1.005


@pytest.mark.parametrize(
    ("share", "clients", "messages"),
    [(0.002, 59_000, 1), (0.01, 10**5, 16), (0.1, 10**5, 256), (0.5, 1000, 3)],
)
def test_the_largest_local_epsilon_is_the_inverse(share, clients, messages):
    local = two_level_local_epsilon(1.0, share, clients, 1e-6, messages)
    assert two_level_shuffled_epsilon(local, share, clients, 1e-6, messages) <= 1.0
    assert (
        two_level_shuffled_epsilon(local + 1e-3, share, clients, 1e-6, messages) > 1.0
    )


@pytest.mark.parametrize("messages", [4, 16])
def test_with_normal_losses_the_largest_local_epsilon_is_nearly_the_same(messages):
    power = normal_power(1.0, 1e-6, 10**6, messages)
    exact = two_level_local_epsilon(1.0, 0.1, 10**6, 1e-6, messages)
    assert normal_local_epsilon(power, 0.1) == pytest.approx(exact, abs=0.05)


def test_the_largest_local_epsilon_has_ends():
    # One client alone is not hidden: δ allows for log(1/(1 − δ)) more, or the like.
    assert two_level_local_epsilon(1.0, 0.1, 1, 1e-6) == pytest.approx(1.0, abs=1e-4)
    assert two_level_local_epsilon(200.0, 0.5, 1000, 1e-6) == 100


def test_one_client_alone_shares_the_total_among_its_messages():
    local = two_level_local_epsilon(1.0, 0.1, 1, 1e-6, messages=4)
    assert 0.25 <= local < 0.252
    assert two_level_shuffled_epsilon(local, 0.1, 1, 1e-6, messages=4) <= 1.0


@pytest.mark.parametrize(
    ("clients", "messages", "expected"),
    [(10**5, 16, 5.34), pytest.param(10**5, 256, 2.79, marks=pytest.mark.slow)],
)
def test_many_messages_against_numbers_computed_elsewhere(clients, messages, expected):
    """The local ε of a message at (1, 1e-6), by two floating-point programs; the best κ is not known from them."""
    local = [
        two_level_local_epsilon(1.0, share, clients, 1e-6, messages)
        for share in (0.003, 0.4)
    ]
    assert local[1] < expected < local[0]


def test_slots_and_rounds_are_the_same():
    slots = shuffled_epsilon(1.0, 100_000, 1e-6, messages=100)
    assert slots == shuffled_epsilon(1.0, 100_000, 1e-6, messages=4, rounds=25)


def test_without_a_crowd_a_person_spends_the_sum_of_all_messages():
    """The exact sum is the most that is ever stated, and a δ of 1e-30 hides next to nothing of it."""
    for messages, rounds in ((1, 1), (3, 1), (1, 4), (2, 3)):
        total = shuffled_epsilon(0.7, 1, 1e-30, messages=messages, rounds=rounds)
        exact = messages * rounds * Fraction(0.7)
        assert (
            exact * (1 - Fraction(1, 10**12))
            < Fraction(total)
            <= exact * (1 + Fraction(1, 2**52))
        )


def test_a_law_that_does_not_explain_the_whole_loss_is_not_used():
    """A mechanism of ε = 2 whose draw alone has 0.5: only its whole privacy loss counts."""
    draw = flat_channel_of_size(4, 0.5)
    partly = SimpleNamespace(
        name="partly",
        epsilon=2.0,
        delta=0.0,
        exact=True,
        law=lambda: Law("flat", 4, [(draw.own, draw.other)]),
        privacy_loss=lambda: 2.0,
    )
    assert shuffled_epsilon(partly, 1000, 1e-6) == shuffled_epsilon(2.0, 1000, 1e-6)
    partly.privacy_loss = draw.privacy_loss
    assert shuffled_epsilon(partly, 1000, 1e-6) < shuffled_epsilon(0.5, 1000, 1e-6)
    # Alone a client spends what its message tells, and not what the mechanism was allowed.
    assert shuffled_epsilon(partly, 1, 1e-30) == pytest.approx(0.5, abs=1e-6)


def test_a_mechanisms_own_number_of_messages_counts():
    mechanism = sstq.FrameUnit(dim=10, epsilon=4.0)
    many = shuffled_epsilon(mechanism, 10_000, 1e-6, messages=4)
    object.__setattr__(mechanism, "messages", 4)
    assert (
        shuffled_epsilon(mechanism, 10_000, 1e-6)
        == many
        > shuffled_epsilon(mechanism, 10_000, 1e-6, messages=1)
    )


@pytest.mark.parametrize("clients", [1, 2, 10**12])
@pytest.mark.parametrize(
    "epsilon", [1e-9, 0.5, 20.0, pytest.param(100.0, marks=pytest.mark.soak)]
)
def test_the_corners_of_the_ranges(epsilon, clients):
    for messages in (2, 1000):
        total = shuffled_epsilon(epsilon, clients, 1e-6, messages=messages)
        assert 0 <= total <= messages * epsilon * (1 + 1e-15)


def documented(head):
    """The rows of the table in docs/budgets.md whose head begins like this."""
    lines = (
        (Path(__file__).parents[2] / "docs/budgets.md")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    start = next(
        number for number, line in enumerate(lines) if line.startswith(f"| {head}")
    )
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_of_the_page_is_true():
    rows = documented("ε of a message")
    assert len(rows) == 4
    for epsilon, *cells in rows:
        for cell, clients in zip(cells, (100, 1000, 10**4, 10**5, 10**6), strict=True):
            rounded_up = float(cell) - shuffled_epsilon(float(epsilon), clients, 1e-6)
            assert 0 <= rounded_up < 1e-3


def test_the_bound_by_the_law_is_nearly_attained():
    epsilon = 7.53
    share = 0.002
    clients = 59_000
    assert two_level_shuffled_epsilon(epsilon, share, clients, 1e-6) == pytest.approx(
        1.002, abs=6e-4
    )
    low, high = (
        attained_delta(epsilon, share, clients, 1.002 + change)
        for change in (6e-4, -6e-4)
    )
    assert low < 1e-6 < high
    assert shuffled_epsilon(epsilon, clients, 1e-6) == pytest.approx(1.226, abs=6e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: shuffled_epsilon(1.0, 100, 1e-6, messages=0),
            r"messages must be an integer in \[1, 1000000\], got 0",
        ),
        (
            lambda: shuffled_epsilon(1.0, 100, 1e-6, messages=10**4, rounds=10**4),
            "messages times rounds must be",
        ),
        (lambda: shuffled_epsilon("1", 100, 1e-6), "epsilon must be a number"),
        (lambda: shuffled_epsilon(1.0, 0, 1e-6), "clients must be an integer"),
        (lambda: shuffled_epsilon(1.0, 100, 0.0), "delta must be a number"),
        (
            lambda: two_level_local_epsilon(1.0, 1.5, 100, 1e-6),
            "share must be a number in",
        ),
        (
            lambda: two_level_local_epsilon(0.0, 0.5, 100, 1e-6),
            "total_epsilon must be a number",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_tiny_delta_is_bounded_as_well():
    """The exact claim of `sstq.accounting.blanket` in 60 digits of mpmath, where nearly all messages are alike."""
    assert two_level_shuffled_epsilon(5.0, 1e-18, 2, 4.872e-33 * 0.999) >= 4.75
