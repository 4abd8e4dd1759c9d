import pytest

import sstq
from sstq.accounting import Ledger, RoundAlreadySpent, RunExpenses, ledger_price, price
from sstq.mechanisms import FrameUnit


class Leaking(FrameUnit):
    """Agrees on less than its numbers give away."""

    def privacy_loss(self):
        return 2.5


def test_the_price_is_what_was_agreed_or_more():
    for name in ("frameunit", "sstq", "privunitg"):
        assert price(sstq.mechanism(name, dim=6, epsilon=2.0)) == 2.0
    assert price(Leaking(dim=6, epsilon=2.0)) == ledger_price(Leaking(dim=6, epsilon=2.0)) == 2.5
    assert price(sstq.mechanism("clean", dim=6)) == float("inf")


@pytest.mark.parametrize("name", ["csgm", "l2-csgm"])
def test_a_delta_has_a_price_but_no_ledger(name, tmp_path):
    mechanism = sstq.mechanism(name, dim=6, epsilon=1.0, clients=10, delta=1e-3)
    assert price(mechanism) == 1.0
    ledger = Ledger(tmp_path / "ledger", epsilon=10.0)
    with pytest.raises(ValueError, match=rf"pure ε, but mechanism '{name}' is \(ε, δ\)-private with delta = 0.001"):
        RunExpenses(mechanism).charge(ledger, 1)
    assert not ledger.entries


def test_a_round_is_paid_once_in_a_run_and_anew_in_another(tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=10.0)
    mechanism = Leaking(dim=6, epsilon=2.0)
    one, two = RunExpenses(mechanism), RunExpenses(mechanism)
    assert one.charge(ledger, 1).epsilon == 2.5
    with pytest.raises(RoundAlreadySpent):
        one.charge(ledger, 1)
    one.charge(ledger, 2)
    two.charge(ledger, 1)
    assert ledger.spent == 7.5
