import pytest
from flwr.app import ConfigRecord, RecordDict

import sstq
from sstq.accounting import price
from sstq.integrations.flower.wire import RECORD, Answer, Request
from tests.contract.cases import reread

from .apps import NAMES, frameunit


def content(**changes):
    record = Request(frameunit(), 3, NAMES).to_record()
    for key, value in changes.items():
        record[key] = value
    return RecordDict({RECORD: record})


def test_a_request_survives_the_wire():
    assert Request.from_content(content()) == Request(frameunit(), 3, NAMES)
    assert Request.from_content(content(evaluates=True)).evaluates


def test_a_node_has_another_name_in_every_round_and_no_other_node_has_it():
    used, nodes = sstq.mechanism("mmrc", dim=6, epsilon=2.0), [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    rounds = [[Request(used, number, NAMES).clients(node)[0] for node in nodes] for number in (0, 1, 2**32 - 1)]
    for names in rounds:
        assert len(set(names)) == len(nodes)
        assert all(0 <= name < 2**64 for name in names)
    for names in zip(*rounds, strict=True):
        assert len(set(names)) == len(names)
    assert Request(frameunit(), 1, NAMES).clients(5) is None


def test_an_answer_survives_the_wire():
    answer = Answer(b"\x01\x02", frameunit().digest(), 3)
    assert Answer.from_record(answer.to_record()) == answer


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mechanism": 3}, "no mechanism"),
        ({"mechanism": "{}"}, "format"),
        ({"digest": frameunit(epsilon=1.0).digest()}, "digest"),
        ({"round": -1}, "round"),
        ({"round": 1.0}, "round"),
        ({"arrays": []}, "name the arrays"),
        ({"arrays": [1, 2]}, "name the arrays"),
    ],
)
def test_other_requests_are_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        Request.from_content(content(**changes))


def test_a_message_without_a_request_is_refused():
    with pytest.raises(ValueError, match="SstqStrategy"):
        Request.from_content(RecordDict())


@pytest.mark.parametrize(
    "record",
    [
        {"message": b"1", "digest": b"2"},
        {"message": b"1", "digest": b"2", "round": 1, "loss": 0.1},
        {"message": "1", "digest": b"2", "round": 1},
        {"message": b"1", "digest": "2", "round": 1},
        {"message": b"1", "digest": b"2", "round": 1.0},
    ],
)
def test_other_answers_are_refused(record):
    with pytest.raises(ValueError, match="answer"):
        Answer.from_record(ConfigRecord(record))


@pytest.mark.parametrize(
    "name", sorted({*sstq.list_mechanisms()} - {"clean", "turboquant", "groupunit", "frequencies", "survey"})
)
def test_an_epsilon_that_is_written_smaller_is_not_believed(name):
    """A server that writes a smaller ε into the JSON of a mechanism is refused, or charged what it really costs."""
    original = sstq.mechanism(name, dim=8, epsilon=3.0, **({"clients": 10} if "csgm" in name else {}))
    try:
        loaded = reread(original, epsilon=0.5)
    except ValueError:
        return
    assert price(loaded) >= original.privacy_loss() - 1e-9
