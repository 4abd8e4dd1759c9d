"""Values whose methods raise: a device that refuses them would tell the collector what it holds."""

import pytest

import sstq
from sstq.learning import Question
from sstq.studies import Panel, Range, Words, answer
from sstq.studies.questions import Document


class RaisingText(str):
    def __str__(self):
        raise RuntimeError


class RaisingInteger(int):
    def __le__(self, _):
        raise RuntimeError

    __ge__ = __abs__ = __le__


class RaisingRecord(dict):
    def get(self, *_):
        raise RuntimeError


class RaisingList(list):
    def __iter__(self):
        raise RuntimeError

    __len__ = __iter__


class RaisingClass:
    @property
    def __class__(self):
        raise RuntimeError


class NowAndThen(str):
    """Every second time its text is asked for, it raises."""

    asked = 0

    def __str__(self):
        type(self).asked += 1
        if type(self).asked % 2:
            raise RuntimeError
        return "tea"


class ThenAndNow(NowAndThen):
    asked = 1


RAISING = [
    RaisingText("tea"),
    RaisingInteger(1),
    {"a": RaisingInteger(1)},
    {"a": RaisingClass()},
    RaisingRecord(a=1),
    RaisingList([1.0, 2.0]),
    RaisingClass(),
]


@pytest.mark.parametrize(
    "document",
    [
        Words(epsilon=2.0).question(100),
        Range(dim=2, epsilon=2.0).question(100),
        Range(columns=["a"], epsilon=2.0).question(100),
        Panel(sstq.Frequencies(3, 2.0), periods=3).question(100),
        Panel(sstq.Survey(2.0, {"a": sstq.Number(0, 1)}), periods=3).question(100),
        Question(
            "classes", sstq.GroupUnit(2, 3.0, groups=2), classes=("cat", "dog")
        ).to_json(),
    ],
)
def test_a_value_whose_methods_raise_is_answered_as_no_value(document):
    for value in RAISING:
        sent = [
            answer(document, held, most_epsilon=3.0, rng=1) for held in (value, None)
        ]
        assert sent[0] == sent[1]
    # Others of the same file are answered as ever.
    everybody = Document.from_json(document).encode_each([*RAISING, None], 1)
    assert len(everybody) == len(RAISING) + 1


@pytest.mark.parametrize("kind", [NowAndThen, ThenAndNow])
def test_a_value_that_raises_now_and_then_is_answered(kind):
    question = Document.from_json(Words(epsilon=2.0).question(100))
    for _ in range(4):
        assert len(question.encode_each([kind("tea"), "tea"])) == 2
