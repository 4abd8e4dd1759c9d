import pytest

from sstq.accounting import Ledger
from sstq.integrations.flower.budget import Limits, NodeBudget

from .apps import frameunit


def budget(folder, app=None, **node_config):
    settings = {
        "sstq-max-epsilon": 2.0,
        "sstq-total-epsilon": 5.0,
        "sstq-ledger": str(folder),
    }
    return NodeBudget(app or Limits(), settings | node_config, node_id=2)


def test_a_spent_budget_is_refused_before_and_after_the_training(tmp_path):
    node = budget(tmp_path)
    assert node.path == tmp_path / "node-2.ledger"
    for number in (1, 2):
        node.permit(frameunit(2.0), f"round {number}")
        node.charge(frameunit(2.0), f"round {number}")
        assert Ledger(node.path).spent == 2.0 * number
    for ask in (node.permit, node.charge):
        with pytest.raises(ValueError, match=r"more than is left|BudgetExhausted"):
            ask(frameunit(2.0), "round 3")
    node.permit(frameunit(1.0), "round 3")
    assert Ledger(node.path).spent == 4.0


@pytest.mark.parametrize(("node", "app", "cap"), [(1.0, 3.0, 1.0), (3.0, 1.0, 1.0)])
def test_the_smaller_cap_of_a_message_counts(tmp_path, node, app, cap):
    used = budget(tmp_path, Limits(max_epsilon=app), **{"sstq-max-epsilon": node})
    used.permit(frameunit(cap), "round 1")
    with pytest.raises(ValueError, match=f"allows for one message, {cap}"):
        used.permit(frameunit(cap + 0.01), "round 1")
    used.permit(frameunit(cap / 4).replace(messages=4), "round 1")
    with pytest.raises(ValueError, match=f"allows for one message, {cap}"):
        used.permit(frameunit(cap / 4).replace(messages=5), "round 1")


def test_the_smaller_total_counts_and_the_ledger_is_the_nodes(tmp_path):
    thrifty = budget(tmp_path, Limits(total_epsilon=2.0))
    thrifty.charge(frameunit(2.0), "round 1")
    assert Ledger(thrifty.path).epsilon == 5.0
    with pytest.raises(ValueError, match="more than is left"):
        thrifty.permit(frameunit(1.0), "round 2")
    # another app, with no limit of its own
    budget(tmp_path).charge(frameunit(2.0), "round 2")
    with pytest.raises(ValueError, match="more than is left"):
        budget(tmp_path, **{"sstq-total-epsilon": 4.0}).permit(
            frameunit(0.5), "round 3"
        )


def test_a_smaller_total_holds_although_two_apps_ask_at_once(tmp_path):
    """Both were permitted; the second to pay finds the total overspent and does not send."""
    first, second = (budget(tmp_path, Limits(total_epsilon=2.0)) for _ in range(2))
    first.permit(frameunit(2.0), "a")
    second.permit(frameunit(2.0), "b")
    first.charge(frameunit(2.0), "a")
    with pytest.raises(ValueError, match="more than is left"):
        second.charge(frameunit(2.0), "b")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("sstq-max-epsilon", "no limit"),
        ("sstq-total-epsilon", "no limit"),
        ("sstq-ledger", "no ledger"),
    ],
)
def test_nothing_is_sent_without_a_cap_or_a_ledger(tmp_path, missing, reason):
    settings = {
        "sstq-max-epsilon": 2.0,
        "sstq-total-epsilon": 5.0,
        "sstq-ledger": str(tmp_path),
    }
    del settings[missing]
    with pytest.raises(ValueError, match=f"{reason}.*set {missing}"):
        NodeBudget(Limits(), settings, node_id=2)


def test_a_total_of_the_nodes_needs_a_folder_of_the_nodes(tmp_path):
    """In an app's folder it would begin anew with every app that names another one."""
    settings = {
        "sstq-max-epsilon": 2.0,
        "sstq-total-epsilon": 2.0,
        "sstq-node": "ward-3",
    }
    for name in ("a", "b"):
        with pytest.raises(ValueError, match=r"no ledger of its own.*set sstq-ledger"):
            NodeBudget(Limits(ledger=tmp_path / name), settings, node_id=2)
    with pytest.raises(ValueError, match="no ledger of its own: set sstq-ledger"):
        NodeBudget(Limits(total_epsilon=2.0), {"sstq-max-epsilon": 2.0}, node_id=2)


def test_a_budget_stays_where_it_is_when_the_process_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = Limits(2.0, 2.0, "ledgers")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert NodeBudget(app, {}, node_id=2).path == tmp_path / "ledgers" / "node-2.ledger"
    with pytest.raises(ValueError, match="sstq-ledger must be an absolute folder"):
        budget("ledgers")


def test_an_apps_caps_are_checked():
    for wrong in ({"max_epsilon": 0.0}, {"total_epsilon": -1.0}, {"ledger": ""}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Limits(**wrong)


def test_the_home_folder_is_written_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert budget("~/ledgers").path == tmp_path / "ledgers" / "node-2.ledger"
    assert Limits(ledger="~/ledgers").ledger == tmp_path / "ledgers"
    for unknown in ("sstq-ledger", "ledger"):
        with pytest.raises(
            ValueError, match=f"{unknown} begins with a home folder that is not known"
        ):
            budget("~nobody-of-this-name/x") if unknown == "sstq-ledger" else Limits(
                ledger="~nobody-of-this-name/x"
            )


@pytest.mark.parametrize(
    "config",
    [
        {"sstq-max-epsilon": float("nan")},
        {"sstq-total-epsilon": True},
        {"sstq-ledger": 7},
        {"sstq-ledger": ""},
        {"sstq-node": "../other"},
        {"sstq-node": 7},
    ],
)
def test_a_setting_that_cannot_be_read_is_never_passed_over(tmp_path, config):
    with pytest.raises(ValueError, match=next(iter(config))):
        budget(tmp_path, Limits(1.0, 1.0, tmp_path), **config)


def test_a_named_node_keeps_its_ledger_under_another_number(tmp_path):
    named = {
        "sstq-max-epsilon": 2.0,
        "sstq-total-epsilon": 2.0,
        "sstq-ledger": str(tmp_path),
        "sstq-node": "ward-3",
    }
    NodeBudget(Limits(), named, node_id=1).charge(frameunit(2.0), "round 1")
    with pytest.raises(ValueError, match="more than is left"):
        NodeBudget(Limits(), named, node_id=2).permit(frameunit(2.0), "round 2")


def test_a_ledger_that_is_there_keeps_its_terms(ledgers):
    Ledger(ledgers / "node-2.ledger", epsilon=0.5, round_cap=0.2)
    node = budget(ledgers)
    with pytest.raises(ValueError, match="more than is left"):
        node.permit(frameunit(0.3), "the ledger's own cap of a round")
    for number in range(4):
        node.permit(frameunit(0.1), f"round {number}")
        node.charge(frameunit(0.1), f"round {number}")
    with pytest.raises(ValueError, match="more than is left"):
        node.permit(frameunit(0.15), "its own total")


@pytest.mark.parametrize("damage", ["cut", "deleted"])
def test_a_damaged_ledger_is_refused_without_its_path(tmp_path, damage):
    node = budget(tmp_path)
    node.charge(frameunit(1.0), "round 1")
    if damage == "cut":
        node.path.write_bytes(node.path.read_bytes()[:-10])
    else:
        node.path.unlink()
    for ask in (node.permit, node.charge):
        with pytest.raises(ValueError, match="ledger cannot be used") as refusal:
            ask(frameunit(1.0), "round 2")
        assert str(tmp_path) not in str(refusal.value)
