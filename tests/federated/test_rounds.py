"""What both sides derive of a round on their own."""

import pytest

import sstq
from sstq.federated.rounds import client_identifier, round_mechanism

NOT_VECTORS = {"groupunit", "frequencies", "survey"}
# The last is the example of a third party, which other tests register.
SEEDLESS = {"clean", "privunit", "privunitg", "vqsgd", "coordinate-sign"}


def build(name, **arguments):
    given = {} if name in ("clean", "turboquant") else {"epsilon": 2.0}
    given |= {"clients": 5} if "csgm" in name else {}
    return sstq.mechanism(name, dim=6, **given, **arguments)


@pytest.mark.parametrize("name", [name for name in sstq.list_mechanisms() if name not in NOT_VECTORS])
def test_every_frame_and_every_public_coin_is_fresh_in_a_round(name):
    mechanism = build(name)
    if name in SEEDLESS:
        assert round_mechanism(mechanism, 7, 1) is mechanism
    else:
        assert round_mechanism(mechanism, 7, 3) == build(name, **{mechanism.seed_option: sstq.mix_seed(7, 3)})
        assert round_mechanism(mechanism, 7, 3) != round_mechanism(mechanism, 7, 4)


def test_updates_have_no_private_groups():
    with pytest.raises(ValueError, match=r"without private groups, got groupunit; use frameunit"):
        round_mechanism(build("groupunit", groups=3), 7, 1)
    with pytest.raises(ValueError, match=r"mechanism must be for vectors, got frequencies; use frameunit"):
        round_mechanism(sstq.Frequencies(3, 1.0), 7, 1)


def test_a_client_has_another_name_in_every_round_and_no_client_s_name_in_its_own():
    mechanism = build("mmrc")
    clients = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    rounds = [[client_identifier(mechanism, client, number) for client in clients] for number in (0, 1, 2**32 - 1)]
    for names in rounds:
        assert len(set(names)) == len(clients)
        assert all(0 <= name < 2**64 for name in names)
    for names in zip(*rounds, strict=True):
        assert len(set(names)) == len(names)


def test_names_are_for_public_coins():
    assert client_identifier(build("frameunit"), None, 1) is None
    with pytest.raises(ValueError, match="client must be given"):
        client_identifier(build("mmrc"), None, 1)
    with pytest.raises(ValueError, match="round_number"):
        client_identifier(build("mmrc"), 1, 2**32)
    with pytest.raises(ValueError, match="client must be"):
        client_identifier(build("mmrc"), 2**64, 1)
