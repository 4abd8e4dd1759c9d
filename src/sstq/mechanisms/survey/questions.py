"""All kinds of questions, their JSON form, and the questions of a survey."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from sstq.checks import ArgumentError
from sstq.inputs.tables import writable
from sstq.mechanisms.survey.label_questions import Choice, MultiChoice
from sstq.mechanisms.survey.number_questions import Count, Mean, Number
from sstq.mechanisms.survey.question import Question
from sstq.mechanisms.survey.vector_questions import By, Vector

_MOST_QUESTIONS = 1000
_LONGEST_NAME = 200
KINDS: dict[str, type[Any]] = {
    kind.type: kind for kind in (Choice, MultiChoice, Number, Count, Vector, Mean, By)
}


def question_to_dict(question: Question) -> dict[str, Any]:
    """The question as JSON values."""
    values = {
        each.name: getattr(question, each.name)
        for each in fields(cast("Any", question))
        if each.init
    }
    return {"type": question.type} | {
        name: list(v) if isinstance(v, tuple) else v for name, v in values.items()
    }


def question_from_dict(data: Any) -> Question:
    """Read a question from its JSON values; ValueError for anything else."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f"type of a question must be one of {', '.join(KINDS)}, got {data!r}"
        )
    try:
        made: Question = KINDS[kind](
            **{name: value for name, value in data.items() if name != "type"}
        )
    except TypeError as error:
        raise ValueError(
            f"a question of type {kind!r} is malformed: {error}"
        ) from error
    return made


def check_questions(questions: Any) -> dict[str, Question]:
    """The questions of a survey by name, each `Mean` and `By` with those that it names."""
    if not isinstance(questions, Mapping) or not 1 <= len(questions) <= _MOST_QUESTIONS:
        raise ArgumentError(
            "questions",
            f"must be 1 to {_MOST_QUESTIONS} questions by name, got {questions!r}",
        )
    for name, question in questions.items():
        if (
            not isinstance(name, str)
            or not 1 <= len(name) <= _LONGEST_NAME
            or not writable(name)
        ):
            raise ArgumentError(
                "questions",
                f"must have names of 1 to {_LONGEST_NAME} characters, got {name!r}",
            )
        if not isinstance(question, Question):
            wanted = ", ".join(kind.__name__ for kind in KINDS.values())
            raise ArgumentError("questions", f"must be of {wanted}, got {question!r}")
    derived = [
        question for question in questions.values() if isinstance(question, Mean | By)
    ]
    if twice := [question for question in derived if derived.count(question) > 1]:
        raise ArgumentError(
            "questions", f"must differ, got the same {type(twice[0]).__name__} twice"
        )
    return {
        name: asked.within(questions) if isinstance(asked, Mean | By) else asked
        for name, asked in questions.items()
    }
