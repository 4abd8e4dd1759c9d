"""Panel: curves over time for one ε. A device draws its period before it looks at its data, and answers once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.aggregation import Aggregator, Estimate
from sstq.checks import ArgumentError, check_number, check_option
from sstq.files.strict_json import JsonObject
from sstq.mechanisms import FrameUnit, Frequencies, Mechanism
from sstq.mechanisms.registry import from_document
from sstq.mechanisms.survey import Survey
from sstq.randomness import streams
from sstq.randomness.secret import RngLike, bit_source
from sstq.studies.base import Study, StudyPlan, register_study
from sstq.studies.panel_results import PanelResult
from sstq.studies.questions import Question, register_question, require

_MOST_PERIODS = 1000
_LONGEST_NAME = 40
LATE = ("skip", "answer")


@register_question
@dataclass(frozen=True, eq=False, kw_only=True)
class PeriodQuestion(Question):
    """What a person holds in one period, for those who drew this period.

    Attributes:
        period: what a period is called, such as "week".
        number: the number of the period, from 1.
        periods: how many there are.
        late: "skip" if a person who was away does not answer, "answer" if in the next period.
    """

    kind = "period"
    mechanism: Survey | Frequencies | FrameUnit
    period: str
    number: int
    periods: int
    late: str

    def check(self) -> None:
        """Check the fields."""
        check_number("periods", self.periods, 2, _MOST_PERIODS, integer=True)
        check_number("number", self.number, 1, self.periods, integer=True)
        check_option("late", self.late, LATE)
        named = isinstance(self.period, str) and 0 < len(self.period) <= _LONGEST_NAME
        if not named:
            allowed = f"must be a name of up to {_LONGEST_NAME} letters"
            raise ArgumentError("period", f"{allowed}, got {self.period!r}")
        require(
            self.mechanism.messages == 1,
            f"mechanism must be one with one message, got {self.mechanism!r}",
        )

    def held(self, values: Sequence[Any]) -> Any:
        """What the mechanism encodes; what it cannot is no answer, a random category, or the zero vector."""
        return self.mechanism.input.together(values)


def draw_turn(document: str, rng: RngLike = None) -> int:
    """Draw the period in which a device answers, of this one and those that are left; keep it until it has answered.

    A device calls this once, with the first document of the study that it sees and before it looks at any data.

    Examples:
        >>> import sstq
        >>> panel = Panel(sstq.Frequencies(4, 1.0), periods=12)
        >>> 1 <= draw_turn(panel.question(people=100)) <= 12
        True
    """
    question = PeriodQuestion.from_json(document)
    left = question.periods - question.number + 1
    return question.number + int(
        streams.multiply_shift(bit_source(rng).words(1), left)[0]
    )


def is_turn(document: str, turn: int) -> bool:
    """Return whether a device that drew this period, and has not answered, answers the document."""
    question = PeriodQuestion.from_json(document)
    return turn == question.number or (
        question.late == "answer" and turn < question.number
    )


@register_study
class Panel(Study):
    """Follow answers over time: each person answers once, in a period drawn before looking, with the whole ε.

    The server has an estimate per period, and smooths (`sstq.studies.smoothing`). The result is there from the first
    period on. A period in which nobody answered has no estimate of its own. To simulate it, pass one list per period:
    what everybody holds then, people in the same order.

    Args:
        mechanism: a `Survey`, `Frequencies` or `FrameUnit`, asked in every period.
        periods: the number of periods, 2 to 1,000.
        period: what one is called.
        late: "skip", or "answer": then a person who was away answers in the first period of being there. That has more
            answers, but these periods tell of those who come back as well, who may differ from others.

    Examples:
        >>> import sstq
        >>> rng = np.random.default_rng(1)
        >>> weeks = [(rng.random(20_000) < share).astype(int) for share in np.linspace(0.2, 0.6, 10)]
        >>> result = Panel(sstq.Frequencies(2, 2.0), periods=10).simulate(weeks, rng=1)
        >>> curve = result.curve(item="1")
        >>> bool(abs(curve.newest[0] - 0.6) < 4 * curve.newest[1])
        True
    """

    kind = "panel"
    may_be_empty = True

    def __init__(
        self,
        mechanism: Mechanism,
        periods: int = 52,
        period: str = "week",
        *,
        late: str = "skip",
    ) -> None:
        super().__init__(
            mechanism=mechanism,
            periods=periods,
            period=period,
            late=late,
            epsilon=mechanism.epsilon,
        )
        self.ask("1", 1)

    @classmethod
    def options_from_dict(cls, options: JsonObject) -> dict[str, Any]:
        """Return the arguments, with the mechanism of its JSON."""
        given = {name: value for name, value in options.items() if name != "epsilon"}
        return given | {"mechanism": from_document(options["mechanism"])}

    def options_to_dict(self) -> JsonObject:
        """Write the mechanism as its JSON."""
        return self.options | {
            "mechanism": json.loads(self.options["mechanism"].to_json())
        }

    @property
    def weights(self) -> dict[str, float]:
        """The periods that are left."""
        numbers = range(1, self.options["periods"] + 1)
        return self._left(
            {f"{self.options['period']} {number}": 1.0 for number in numbers}
        )

    def ask(self, cohort: str, people: int) -> PeriodQuestion:  # noqa: ARG002
        """Ask the mechanism's question in the next period."""
        options = {
            name: self.options[name]
            for name in ("mechanism", "periods", "period", "late")
        }
        return PeriodQuestion(
            study=self.identifier, number=len(self.learned) + 1, **options
        )

    def take(
        self,
        cohort: str,  # noqa: ARG002
        question: Any,  # noqa: ARG002
        aggregator: Aggregator[Estimate],
    ) -> JsonObject:
        """Keep the estimate of every item, and its standard error; None for what nobody told."""
        if not aggregator.count:
            return {"people": 0, "items": []}
        items = [_item(*item) for item in aggregator.mean().followed()]
        return {"people": aggregator.count, "items": items}

    @property
    def result(self) -> PanelResult:
        """The curves so far; ValueError before the first period."""
        require(
            bool(self.learned),
            f"there is no result before the first {self.options['period']}",
        )
        return self.conclude()

    @property
    def so_far(self) -> PanelResult | None:
        """The curves, from the first period on."""
        return self.conclude() if self.learned else None

    def conclude(self) -> PanelResult:
        """Return the curves of all items."""
        people = [facts["people"] for facts in self.learned]
        periods = [
            {(name, item): told for name, item, *told in facts["items"]}
            for facts in self.learned
        ]
        return PanelResult(
            self.options["period"], people, periods, self.options["epsilon"]
        )

    def plan(self, people: int) -> StudyPlan:
        """Tell the error of one period before smoothing, of the question with the largest one."""
        sizes = self.cohort_sizes(people)
        mechanism = self.options["mechanism"]
        each = max(1, people // self.options["periods"])
        _, works = mechanism.prospect(people)
        error, _ = mechanism.prospect(each)
        works = works and people >= self.options["periods"]
        problem = "" if works else "even all periods together are too few people"
        of = f"the error of one {self.options['period']} before smoothing, which leaves about a third of it"
        return StudyPlan(people, sizes, error, of, problem)

    def _split(
        self, values: Sequence[Any], generator: np.random.Generator
    ) -> Iterator[Sequence[Any]]:
        """Yield what those hold who drew each period."""
        periods = self.options["periods"]
        require(
            len(values) == periods,
            f"values must be {periods}, one list per {self.options['period']}",
        )
        turn = generator.integers(periods, size=len(values[0]))
        for number, held in enumerate(values):
            yield [held[place] for place in np.flatnonzero(turn == number)]


def _item(
    name: str, item: Any, value: float, error: float, of_answers: int
) -> list[Any]:
    """An item of an estimate as JSON values; None for what nobody told."""
    is_known = math.isfinite(value) and math.isfinite(error)
    pair = [float(value), float(error)] if is_known else [None, None]
    return [name, str(item), *pair, of_answers]
