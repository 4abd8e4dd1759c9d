"""The contract of studies: what a third party's study must pass, as ours do."""

import json
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sstq.accounting import shuffled_epsilon
from sstq.accounting.ledger import ledger_price
from sstq.audit import check_encoder
from sstq.mechanisms.answers import answer as encode_or_substitute
from sstq.studies import Document, Question, Study, StudyResult, answer
from sstq.testing.tools import raises, require, run_check

# What no device may stumble over, whatever a study is about.
_STRANGE: tuple[Any, ...] = (
    *(
        None,
        "",
        "\ud800",
        "x" * 10_000,
        math.nan,
        math.inf,
        -1,
        10**400,
        1e308,
        [],
        [[]],
        {},
        {"a": object()},
    ),
    *(
        object(),
        b"\xff",
        [math.nan],
        np.array([1e308, -1e308]),
        np.zeros((2, 2)),
        "0",
        True,
        [None, None],
    ),
)
_LEDGER_MOST = 1e4


def check_study(
    make: Callable[[], Study], values: Sequence[Any], seed: int | None = None
) -> None:
    """Run every check on a study; AssertionError with the check's name if one fails.

    Args:
        make: returns a new study, with the options that matter and nothing learned.
        values: one value per person, at least 50 people; values that differ as much as they can.
        seed: that of the simulations; a fresh one unless given. It is part of the error.
    """
    seed = secrets.randbits(32) if seed is None else seed
    for check in (
        check_answers,
        check_documents,
        check_total,
        check_restarts,
        check_few_people,
    ):
        run_check(check, make, values, seed=seed)


def _asked(study: Study, values: Sequence[Any], seed: int) -> Iterator[tuple[str, Any]]:
    """Run a study, and yield the document and the question of every cohort before it answers."""
    rng = np.random.default_rng(seed)
    left = rng.permutation(len(values))
    while study.cohorts_left:
        who, left = _next_cohort(study, left)
        yield study.question(len(who)), study.asked
        study.learn([answer_of(study.asked, values[place], rng) for place in who])


def _next_cohort(study: Study, left: Any) -> tuple[Any, Any]:
    """As many people as the next cohort wants of those who are left, and the others."""
    require(len(left), "values must be enough people for every cohort")
    size = max(1, next(iter(study.cohort_sizes(len(left)).values())))
    return left[:size], left[size:]


def answer_of(question: Document, value: Any, rng: np.random.Generator) -> bytes:
    """One answer as bytes."""
    return answer(question.to_json(), value, most_epsilon=_LEDGER_MOST, rng=rng)


def check_answers(make: Callable[[], Study], values: Sequence[Any], seed: int) -> None:
    """Every value is answered, by the law of the mechanism, from the same number of random words."""
    for document, question in _asked(make(), values[:50], seed):
        mechanism = question.mechanism
        require(
            mechanism.exact, f"the mechanism must have an exact law, got {mechanism!r}"
        )
        report = check_encoder(mechanism, rng=seed)
        require(not report.problem, report.problem)
        require(
            mechanism.privacy_loss() <= mechanism.epsilon, "the law must be within ε"
        )
        states = set()
        for value in (*_STRANGE, *values[:20]):
            rng = np.random.default_rng(seed)
            sent = answer(document, value, most_epsilon=_LEDGER_MOST, rng=rng)
            states.add(json.dumps(rng.bit_generator.state))
            if isinstance(question, Question):
                lawful = encode_or_substitute(
                    mechanism, question.held([value]), rng=np.random.default_rng(seed)
                )
                require(
                    sent == lawful.to_bytes(),
                    f"the answer of {value!r:.50} must be the mechanism's message",
                )
            mechanism.messages_from_bytes(sent, mechanism.messages)
        require(
            len(states) == 1, "the number of random words must not depend on the value"
        )
        for several in ([None, None], list(_STRANGE), [*values[:3], *_STRANGE]):
            told = question.encode_each(several, np.random.default_rng(seed))
            require(
                len(told) == len(several) * mechanism.messages,
                "everybody must be answered for, whatever the others hold",
            )


def check_documents(
    make: Callable[[], Study], values: Sequence[Any], seed: int
) -> None:
    """A document is read as it was written, and refused as a whole if anything in it is wrong."""
    for document, question in _asked(make(), values[:50], seed):
        require(
            Document.from_json(document).to_json() == document,
            "a document must survive JSON",
        )
        data = json.loads(document)
        wrong: list[Any] = [
            {name: data[name] for name in data if name != left_out} for left_out in data
        ]
        wrong += [
            data | more
            for more in (
                {"extra": 1},
                {"version": 2},
                {"study": "1"},
                {"kind": "nonsense"},
            )
        ]
        if isinstance(question, Question):
            wrong += [
                data | {name: bad}
                for name in data
                for bad in (None, -1, 1e300, [[-1]], {}, {"a": 1})
            ]
        for tampered in wrong:
            if tampered != data:
                raises(
                    ValueError,
                    answer,
                    json.dumps(tampered),
                    None,
                    most_epsilon=_LEDGER_MOST,
                )
        raises(
            ValueError,
            answer,
            document,
            None,
            most_epsilon=ledger_price(question.mechanism) * (1 - 1e-9),
        )


def check_total(make: Callable[[], Study], values: Sequence[Any], seed: int) -> None:
    """No question costs more than the study's ε, and all questions have the study's name, so a ledger pays one."""
    study = make()
    options = study.options
    for _, question in _asked(study, values[:50], seed):
        named = not isinstance(question, Question) or question.study == study.identifier
        require(named, "every question must have the identifier of the study")
        spent = ledger_price(question.mechanism)
        if options.get("trust", "local") == "shuffler":
            spent = shuffled_epsilon(
                question.mechanism, study.people_asked, options["delta"]
            )
        require(
            spent <= options["epsilon"],
            f"a question costs {spent}, more than epsilon = {options['epsilon']}",
        )
    require(
        make().identifier != make().identifier,
        "every study must have an identifier of its own",
    )


def check_restarts(make: Callable[[], Study], values: Sequence[Any], seed: int) -> None:
    """A study that is written and read again after every step ends as one that is not."""
    begun = make().to_json()
    ends = []
    for restarted in (lambda study: study, _again):
        study = Study.from_json(begun)
        left = np.random.default_rng(seed).permutation(len(values))
        while study.cohorts_left:
            who, left = _next_cohort(study, left)
            # What a question draws must not differ between the two.
            document = study.question(len(who))
            study = restarted(study)
            require(
                study.question(len(who)) == document,
                "a question that waits must be the same again",
            )
            some = [values[place] for place in who]
            study.learn(
                study.asked.encode_each(some, np.random.default_rng([seed, len(left)]))
            )
            study = restarted(study)
        check_result(study)
        ends.append((study.to_json(), repr(study.result)))
    require(ends[0] == ends[1], "a restart must not change what is learned")


def check_result(study: Study) -> None:
    """The result is a table, and tells which total ε it cost."""
    result = study.result
    require(
        isinstance(result, StudyResult),
        f"the result must be a StudyResult, got {type(result).__name__}",
    )
    columns = list(result.columns().values())
    require(
        bool(columns) and len(set(map(len, columns))) == 1,
        "the columns of the result must be equally long",
    )
    require(result.epsilon > 0, "the result must have the total epsilon per person")
    require(bool(repr(result)), "the result must tell something")


def _again(study: Study) -> Study:
    again = type(study).from_json(study.to_json())
    require(again.to_json() == study.to_json(), "a study must survive JSON")
    require(
        again.cohorts_left == study.cohorts_left,
        "a restart must not change the cohorts that are left",
    )
    return again


def check_few_people(
    make: Callable[[], Study], values: Sequence[Any], seed: int
) -> None:
    """One person per cohort gives a result, and nobody none, unless a cohort may be empty."""
    study = make()
    rng = np.random.default_rng(seed)
    if not study.may_be_empty:
        raises(ValueError, getattr, study, "result")
    while study.cohorts_left:
        study.question(1)
        before = study.to_json()
        if not study.may_be_empty:
            raises(ValueError, study.learn, [])
        require(
            study.to_json() == before, "answers that are refused must change nothing"
        )
        study.learn(
            [answer_of(study.asked, values[int(rng.integers(len(values)))], rng)]
        )
    check_result(study)
    for people in (1, 10**6):
        require(
            bool(str(make().plan(people))),
            "a plan must say what to expect, or why it cannot work",
        )
    require(
        not make().plan(1).works, "a plan for one person must say why it cannot work"
    )
