"""Words: the strings that many people hold, which nobody listed. Each cohort is asked about longer prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sstq.accounting.bounds import check_delta
from sstq.aggregation import Aggregator, Estimate
from sstq.array_types import Ints
from sstq.checks import check_argument, check_number, check_option
from sstq.files.strict_json import JsonObject
from sstq.mechanisms import Frequencies
from sstq.messages.batch import Messages
from sstq.studies.base import Study, StudyPlan, register_study
from sstq.studies.files import read_texts
from sstq.studies.questions import Question, register_question, require
from sstq.studies.shuffled import trusted_frequencies
from sstq.studies.spelling import END, LETTERS, Spelling
from sstq.studies.words_results import WordsResult

# symbols of the first cohort, and how many more of each later one
_FIRST = 3
_STEP = 2
_LONGEST = 64
_MOST_WORDS = 1 << 16
# The letters of a string with a category of its own: whoever publishes longer ones would choose how long devices take.
_MOST_LETTERS = 1000
# A message of so many categories has 37 bits. With sets of so many members a million messages take less than a minute.
_MOST_CATEGORIES = 1 << 19
_WIDEST_SET = 1 << 15
# Prefixes and strings are asked about again from so many standard errors on; at the end a share of the strings that are
# listed may be false.
_GATE = 2.5
_FALSE_SHARE = 0.01
# Each cohort has so many people for each one of the cohort before.
_DECLINE = 0.7


@register_question
@dataclass(frozen=True, eq=False, kw_only=True)
class WordsQuestion(Question):
    """Which string, or which prefix with its next symbols, a person holds.

    The categories are the strings, then per prefix all next symbols after which a string goes on, and all after which
    it ends, and one for everything else.

    Attributes:
        alphabet, case: how strings are spelled (`sstq.studies.spelling.Spelling`).
        words: strings that have a category each.
        prefixes: rows of symbols, all of one length.
        step: the number of next symbols.
        longest: the most symbols of a string that is not one of `words`.
    """

    kind = "words"
    mechanism: Frequencies
    alphabet: str
    case: str
    words: Sequence[str]
    prefixes: Sequence[Sequence[int]]
    step: int
    longest: int

    def check(self) -> None:
        """Check the fields."""
        spelling = self.spelling
        texts = isinstance(self.words, list) and all(
            isinstance(word, str)
            and len(word) <= _MOST_LETTERS
            and spelling.normalised(word) == word
            for word in self.words
        )
        require(
            texts and len(set(self.words)) == len(self.words),
            f"words must be different normalised strings of up to {_MOST_LETTERS} letters",
        )
        rows = isinstance(self.prefixes, list) and all(
            isinstance(row, list) for row in self.prefixes
        )
        require(
            rows and len(set(map(len, self.prefixes))) <= 1,
            "prefixes must be lists of one length",
        )
        numbers = {symbol for row in self.prefixes for symbol in row}
        require(
            all(type(one) is int and END < one < spelling.size for one in numbers),
            "prefixes must be of symbols",
        )
        require(
            len(set(map(tuple, self.prefixes))) == len(self.prefixes),
            "prefixes must be different",
        )
        check_number("step", self.step, 1, _FIRST, integer=True)
        check_number("longest", self.longest, _FIRST, _LONGEST, integer=True)
        wanted = max(2, len(self.words) + len(self.prefixes) * self._following + 1)
        require(
            self.mechanism.categories == wanted,
            f"categories must be {wanted}, got {self.mechanism.categories}",
        )

    @cached_property
    def spelling(self) -> Spelling:
        """How strings are spelled."""
        return Spelling(self.alphabet, self.case)

    @property
    def _following(self) -> int:
        """The number of categories of a prefix."""
        return 2 * int(self.spelling.size**self.step)

    @cached_property
    def _places(self) -> tuple[dict[Any, int], dict[Any, int], int]:
        """The number of each word and of each prefix, and the length of a prefix."""
        words = {word: place for place, word in enumerate(self.words)}
        prefixes = {tuple(row): place for place, row in enumerate(self.prefixes)}
        return words, prefixes, len(self.prefixes[0]) if self.prefixes else 0

    def held(self, values: Sequence[Any]) -> Ints:
        """The category of each value; what is no string, or has no category of its own, is something else."""
        category = cache(self._category)
        other = self.mechanism.categories - 1
        return np.array(
            [
                category(str(value))
                if isinstance(value, str) and len(value) <= self._most_letters
                else other
                for value in values
            ],
            dtype=np.int64,
        )

    @cached_property
    def _most_letters(self) -> int:
        """No longer string has a category of its own: normalisation makes one letter of four or fewer.

        It takes quadratic time, which would tell the server of long strings.
        """
        return 4 * max([self.longest, *map(len, self.words)])

    def encode_file(self, path: Path, column: str | None = None) -> Messages:
        """Return one private message per person: a column of a table, or the lines of a .txt file."""
        return self.encode(read_texts(path, column))

    def _category(self, value: str) -> int:
        words, prefixes, length = self._places
        other = self.mechanism.categories - 1
        text = self.spelling.normalised(value)
        if text is None:
            return other
        if text in words:
            return words[text]
        symbols = self.spelling.symbols(text)
        place = prefixes.get(symbols[:length])
        if place is None or len(symbols) > self.longest:
            return other
        end = length + self.step
        number = 0 if len(symbols) > end else 1
        for symbol in (*symbols, *[END] * self.step)[length:end]:
            number = number * self.spelling.size + symbol
        return len(words) + place * self._following + number

    def symbols_of(self, category: int) -> tuple[tuple[int, ...], bool]:
        """The symbols of a category that is that of a prefix, and whether strings end after them."""
        size = self.spelling.size
        place, number = divmod(category - len(self.words), self._following)
        following = [number // size**i % size for i in reversed(range(self.step))]
        return (*self.prefixes[place], *following), number >= size**self.step


@register_study
class Words(Study):
    """Find the strings that many people hold, and their shares, from one private message per person.

    People are split into cohorts. The first is asked for the first three letters, each later one for two more of the
    prefixes that were found (`Frequencies` over prefixes with their next letters). Strings that are complete are asked
    about again, and the answers of all their cohorts count. In the end those strings are listed of which 1 % are
    expected to be false (Benjamini and Hochberg).

    Strings are texts in Unicode, normalised (NFC) and, by default, in lower case. One longer than `longest` is counted
    as “other”, as is everything that is no string. A letter that is not in the alphabet counts as two letters per byte
    of its UTF-8.

    Args:
        epsilon: the ε of a person's only message, and so the person's total; behind a shuffler that of what it mixes.
        longest: the most letters of a string, 3 to 64.
        candidates: public strings, such as a dictionary. They are asked about in every cohort, and others are found as
            without them. A candidate may be longer than `longest`.
        alphabet: the letters of most strings; others need more cohorts.
        case: "lower" or "keep".
        trust: "local", or "shuffler": then each cohort's messages are mixed before the server sees them.
        delta: the total δ per person behind a shuffler.

    Examples:
        >>> rng = np.random.default_rng(1)
        >>> study = Words(epsilon=4.0, longest=5)
        >>> found = study.simulate(rng.choice(["tea", "coffee", "Tee"], 20_000, p=[0.5, 0.3, 0.2]), rng=1)
        >>> found.words, found.shares.round(1).tolist()
        (('tea', 'tee'), [0.5, 0.2])
    """

    kind = "words"

    def __init__(
        self,
        epsilon: float,
        longest: int = 16,
        *,
        candidates: Sequence[str] = (),
        alphabet: str = LETTERS,
        case: str = "lower",
        trust: str = "local",
        delta: float = 1e-6,
    ) -> None:
        self.spelling = Spelling(alphabet, case)
        texts = [self.spelling.normalised(one) for one in candidates]
        fine = all(text is not None and len(text) <= _MOST_LETTERS for text in texts)
        require(fine, f"candidates must be strings of up to {_MOST_LETTERS} letters")
        require(
            len(texts) <= _MOST_WORDS,
            f"candidates must be at most {_MOST_WORDS:,} strings, got {len(texts):,}",
        )
        super().__init__(
            epsilon=check_argument("epsilon", epsilon),
            longest=check_number("longest", longest, _FIRST, _LONGEST, integer=True),
            candidates=list(dict.fromkeys(texts)),
            alphabet=alphabet,
            case=case,
            trust=check_option("trust", trust, ("local", "shuffler")),
            delta=check_delta(delta, positive=True),
        )

    @property
    def weights(self) -> dict[str, float]:
        """One cohort per prefix length; none once nothing is left to ask about."""
        ends = [*range(_FIRST, self.options["longest"], _STEP), self.options["longest"]]
        if not any(self._kept):
            return {}
        return self._left(
            {f"letters 1 to {end}": _DECLINE**number for number, end in enumerate(ends)}
        )

    @property
    def _kept(self) -> tuple[list[str], list[list[int]]]:
        """The strings and the prefixes that the next cohort is asked about."""
        if not self.learned:
            return self.options["candidates"], [[]]
        return self.learned[-1]["words"], self.learned[-1]["prefixes"]

    def ask(self, cohort: str, people: int) -> WordsQuestion:
        """Ask about what was kept."""
        end = int(cohort.rpartition(" ")[2])
        words, prefixes = self._kept
        step = max(1, end - len(prefixes[0])) if prefixes else 1
        categories = len(words) + len(prefixes) * 2 * self.spelling.size**step + 1
        return WordsQuestion(
            study=self.identifier,
            mechanism=self._frequencies(max(2, categories), people),
            alphabet=self.options["alphabet"],
            case=self.options["case"],
            words=words,
            prefixes=prefixes,
            step=step,
            longest=self.options["longest"],
        )

    def _frequencies(self, categories: int, people: int) -> Frequencies:
        options = {name: self.options[name] for name in ("epsilon", "trust", "delta")}
        return trusted_frequencies(categories, people, **options)

    def take(
        self, cohort: str, question: Any, aggregator: Aggregator[Estimate]
    ) -> JsonObject:
        """Keep what may be there, and how often messages hit the strings that are complete."""
        people = aggregator.count
        rates = question.mechanism.sets.rates
        end = int(cohort.rpartition(" ")[2])
        shares = aggregator.mean().value[:-1]
        gate = _GATE * math.sqrt(rates.variance_at(0.0) / people)
        words = list(zip(question.words, shares, strict=False))
        prefixes = []
        wide = 2 * self.spelling.size**_STEP
        room = min(
            _MOST_CATEGORIES,
            int(_WIDEST_SET * (1 + math.exp(question.mechanism.epsilon))),
        ) - len(words)
        listed = {None, *question.words}
        following = len(words) + np.flatnonzero(shares[len(words) :] > gate)
        for place in following[np.argsort(-shares[following], kind="stable")]:
            symbols, ends = question.symbols_of(int(place))
            text = question.spelling.text(symbols)
            if ends and text not in listed and room > 0:
                words.append((text, shares[place]))
                room -= 1
            elif (
                not ends
                and END not in symbols
                and end < self.options["longest"]
                and room > wide
            ):
                prefixes.append(list(symbols))
                room -= wide
        return {
            "people": people,
            "rates": list(rates),
            "tested": max(
                1, len(question.prefixes) * question.spelling.size**question.step
            ),
            "words": [word for word, _ in words],
            "hits": [
                round((rates.other + share * rates.gap) * people) for _, share in words
            ],
            "prefixes": prefixes,
        }

    def conclude(self) -> WordsResult:
        """List the strings that are surely there."""
        public = len(self.options["candidates"])
        return WordsResult.from_cohorts(
            self.learned, public, self.options["epsilon"], _FALSE_SHARE
        )

    @property
    def so_far(self) -> WordsResult | None:
        """The strings of which all letters were asked, from the first cohort on."""
        return self.conclude() if self.learned else None

    @property
    def asks_next(self) -> list[str] | None:
        """The beginnings of strings that the next cohort is asked about, as far as they are whole letters."""
        if not self.learned:
            return None
        kept = self.learned[-1]["prefixes"]
        texts = [self.spelling.text(tuple(row)) for row in kept]
        return [text for text in texts if text is not None]

    def plan(self, people: int) -> StudyPlan:
        """Tell which share a string needs to be found in 19 of 20 studies."""
        sizes = self.cohort_sizes(people)
        least = min(sizes.values())
        rates = self._frequencies(_MOST_CATEGORIES, max(1, least)).sets.rates
        # As likely as a false one of a hundred that are listed among so many, and 1.64 standard errors above.
        share = (4.7 + 1.64) * math.sqrt(rates.variance_at(0.0) / max(1, least))
        problem = ""
        if share > 1 / 2:
            which = (
                f"only strings of {share:.0%} of the people"
                if share < 1
                else "no strings"
            )
            problem = (
                f"{which} would be found: ask more people, or take a larger epsilon"
            )
        if least < 2:
            problem = (
                f"each of {len(sizes)} cohorts needs 2 people or more: "
                "ask more people, or take a smaller longest"
            )
        return StudyPlan(
            people,
            sizes,
            share,
            "the share of a string that is found in 19 of 20 studies",
            problem,
        )
