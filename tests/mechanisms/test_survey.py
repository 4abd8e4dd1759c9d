"""Surveys: the law of every part, results in the units of columns, nulls, bands, plans, and what is refused."""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet as pq
import pytest

import sstq
from sstq.exactness import TOTAL
from sstq.inputs import LocalWarning
from sstq.mechanisms.answers import answer
from sstq.mechanisms.survey.question_estimates import student
from sstq.mechanisms.survey.questions import KINDS, question_to_dict
from sstq.mechanisms.survey.schema import guess_schema
from sstq.randomness.secret import bit_source
from tests.contract.cases import build, reread
from tests.scripted import law_of

QUESTIONS = {
    "country": sstq.Choice(["AT", "CH", "DE"]),
    "used": sstq.MultiChoice(["search", "export", "share"]),
    "age": sstq.Number(0, 110, bins=22),
    "embedding": sstq.Vector(8, clip=1.0),
    "age by country": sstq.By("country", "age"),
}


def some_table(count, seed=0):
    """People with nulls in every column, and the truths over those who have an answer."""
    rng = np.random.default_rng(seed)
    country = rng.choice(["AT", "CH", "DE"], count, p=[0.2, 0.3, 0.5]).astype(object)
    age = rng.uniform(10, 90, count)
    age[country == "AT"] = rng.uniform(60, 90, np.count_nonzero(country == "AT"))
    used = [
        [
            w
            for w, p in (("search", 0.8), ("export", 0.3), ("share", 0.1))
            if rng.random() < p
        ]
        for _ in country
    ]
    country[::10] = None
    used[::4] = [None] * len(used[::4])
    age[::5] = np.nan
    embedding = np.full((count, 8), 0.3)
    return {"country": country, "used": used, "age": age, "embedding": list(embedding)}


def law_of_part(survey, place, row, word):
    """The exact distribution of the answers to one question, the words beside those of the draw being given."""
    inner = survey.parts[place].mechanism
    draw = inner.choice if hasattr(inner, "choice") else inner.draw
    if word and getattr(inner, "share_sets", None) is not None:
        draw = inner.share_sets.draw
    law = law_of(survey, draw, row, word, word, sum(survey.draws[:place]) << 2, word)
    assert max(law) < survey.parts[place].size
    return law


def laws(survey):
    """For any public words and question: the laws of all records, as lists over the same answers."""
    held = survey.input.extremes(np.random.default_rng(0)).values()
    rows = np.concatenate([survey.input.read(**one) for one in held])
    for place in range(len(survey.parts)):
        for word in (0, (1 << 64) - 1):
            found = [law_of_part(survey, place, row, word) for row in rows]
            answers = sorted(set().union(*found))
            yield [[law.get(code, Fraction(0)) for code in answers] for law in found]


def results(survey, table, seed=1):
    aggregator = survey.aggregator()
    aggregator.update(survey.encode(table, seed))
    return aggregator.mean()


def test_the_question_is_drawn_with_its_weight_and_nothing_else():
    survey = build("survey/messages")
    assert sum(survey.draws) == TOTAL
    assert survey.draws[0] / TOTAL == pytest.approx(2 / 3)
    starts = np.array(
        [0, survey.draws[0] - 1, survey.draws[0], TOTAL - 1], dtype=np.uint64
    ) << np.uint64(2)
    assert survey._question(starts).tolist() == [0, 0, 1, 1]


def test_results_are_near_the_truth_in_the_units_of_the_columns():
    """|z| < 6 for all of 30 numbers: a false alarm in 1e-7 runs, and the seed is fixed."""
    table = some_table(8000)
    survey = sstq.Survey(epsilon=3.0, questions=QUESTIONS)
    result = results(survey, table)
    country = table["country"]
    age = table["age"]
    shares = [
        np.mean(country[country != None] == label)  # noqa: E711
        for label in ("AT", "CH", "DE")
    ]
    known = ~np.isnan(age)
    used = [row for row in table["used"] if row is not None]
    marks = [
        np.mean([label in row for row in used])
        for label in ("search", "export", "share")
    ]
    groups = [np.mean(age[known & (country == label)]) for label in ("AT", "CH", "DE")]
    for name, truth in (
        ("country", shares),
        ("used", marks),
        ("embedding", [0.3] * 8),
        ("age by country", groups),
        ("age", np.histogram(age[known], bins=22, range=(0, 110))[0] / known.sum()),
    ):
        found = result[name]
        assert np.all(np.abs(found.estimate - truth) < 6 * found.stderr), name
    assert result["country"].over == result["age"].over == "answers"
    assert result["embedding"].over == "people"
    assert abs(result["country"].answered[0] - 0.9) < 6 * result["country"].answered[1]
    mean = result["age"].mean(0.999)
    median = result["age"].quantile(0.5, 0.999)
    assert mean.low <= np.mean(age[known]) <= mean.high
    assert median.low <= np.median(age[known]) <= median.high
    assert (
        sum(found.count for name, found in result.results.items() if name != "used")
        < 8000
    )


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables_of_all_libraries_give_the_same_messages(library):
    module = pytest.importorskip(library)
    table = some_table(200)
    survey = sstq.Survey(epsilon=2.0, questions=QUESTIONS)
    plain = table | {
        "age": [None if math.isnan(a) else a for a in table["age"]],
        "country": table["country"].tolist(),
    }
    plain["embedding"] = [row.tolist() for row in table["embedding"]]
    made = module.table(plain) if library == "pyarrow" else module.DataFrame(plain)
    assert survey.encode(made, 3).to_bytes() == survey.encode(table, 3).to_bytes()


@pytest.mark.soak
def test_errors_of_ratios_and_bands_of_quantiles_hold(seed):
    """The mean square of z is at most 1, and 95 % bands hold, over 60 rounds with new people each.

    The square's mean over 3 labels and 60 rounds has a deviation of at most √(2/60): 6 of them. A band fails in 5 % of
    rounds: more than 17 of 60 have probability below 1e-8.
    """
    rng = np.random.default_rng(seed)
    asked = {"country": sstq.Choice(["a", "b", "c"]), "age": sstq.Number(0, 1, bins=10)}
    survey = sstq.Survey(epsilon=2.0, questions=asked)
    squares = []
    failures = 0
    for _ in range(60):
        country = rng.choice(["a", "b", "c", None], 4000, p=[0.6, 0.2, 0.1, 0.1])
        age = np.where(rng.random(4000) < 0.2, np.nan, rng.beta(2, 5, 4000))
        result = results(survey, {"country": country, "age": age}, rng)
        squares.append(
            (
                (result["country"].shares - np.array([6, 2, 1]) / 9)
                / result["country"].stderr
            )
            ** 2
        )
        for share, truth in ((0.1, 0.09259), (0.5, 0.26445), (0.9, 0.51032)):
            low, high = result["age"].quantile(share)[1:]
            if not low <= truth <= high:
                failures += 1
                break
    assert np.mean(squares) < 1 + 6 * math.sqrt(2 / 60)
    assert failures <= 17


def test_isotonic_values_never_narrow_a_band(seed):
    survey = sstq.Survey(epsilon=1.0, questions={"x": sstq.Number(0, 1, bins=32)})
    number = results(survey, {"x": np.linspace(0, 1, 300)}, seed)["x"]
    low, high = number.cdf_band()
    assert np.all((low <= number.cdf) & (number.cdf <= high))
    assert np.all(np.diff(number.cdf) >= 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"country": [1, 2]},
            "column 'country' must be labels of type str, got 1 in row 0",
        ),
        ({"age": ["x", 3]}, "column 'age' must be numbers, got 'x' in row 0"),
        (
            {"used": ["search", None]},
            "column 'used' must be lists of labels, got 'search' in row 0",
        ),
        (
            {"used": [[], [True]]},
            r"column 'used' must be lists of labels of type str, got \[True\] in row 1",
        ),
        (
            {"used": [np.array("search"), None]},
            "column 'used' must be lists of labels, got array",
        ),
        ({"embedding": [[10**400] * 8, None]}, "lists of 8 numbers, got .* in row 0"),
        ({"embedding": [["0.1"] * 8] * 2}, "lists of 8 numbers, got .* in row 0"),
        ({"embedding": [[0.1] * 8, [0.1] * 7]}, "lists of 8 numbers, got .* in row 1"),
        ({"age": [3]}, "columns of one length"),
        (
            {"age": None},
            "must have the columns country, used, age, embedding, got none called age",
        ),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_sampled(change, words):
    table = {
        "country": ["AT", None],
        "used": [["search"], []],
        "age": [3, 4.5],
        "embedding": [[0.1] * 8] * 2,
    } | change
    table = {name: column for name, column in table.items() if column is not None}
    survey = sstq.Survey(epsilon=2.0, questions=QUESTIONS)
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    with pytest.raises(ValueError, match=words):
        survey.encode(table, rng)
    assert rng.bit_generator.state == before
    # A device answers all the same, unless there is no column of one length.
    if "one length" not in words:
        assert len(answer(survey, table, rng=1)) == 2


def test_columns_of_one_name_are_refused(tmp_path):
    survey = sstq.Survey(epsilon=2.0, questions={"c": sstq.Choice(["A", "B"])})
    names = ["c", "c"]
    rows = [["A", "B"], ["B", "A"], ["A", "A"]]
    table = pyarrow.table([*zip(*rows, strict=True)], names=names)
    for twice in (pandas.DataFrame(rows, columns=names), table):
        with pytest.raises(
            ValueError, match="every column once, got several called 'c'"
        ):
            survey.encode(twice)
    (tmp_path / "people.csv").write_text("c,b,c\nA,1,B\n")
    pq.write_table(table, tmp_path / "people.parquet")
    for name in ("people.csv", "people.parquet"):
        with pytest.raises(
            ValueError, match="every column once, got several called 'c'"
        ):
            survey.input.open(tmp_path / name)


def test_nobodys_vector_has_numbers_of_somebody_else():
    read = sstq.Vector(4).read
    for flat in ([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0, 3.0, 4.0]):
        assert not read(flat, "v", False).any()
    hidden = np.ma.masked_array(np.ones((2, 4)), mask=[[True] * 4, [False] * 4])
    assert read(hidden, "v", True).sum(axis=1).tolist() == [0, 4]


@pytest.mark.parametrize("value", [b"AB", {"A", "B"}, {"A": 0, "B": 1}, 3, iter("AB")])
def test_what_is_no_column_is_one_persons_value(value):
    """Texts and sets have other items than one per person: a device sends one message, and the owner is told."""
    survey = sstq.Survey(epsilon=2.0, questions={"c": sstq.Choice(["A", "B"])})
    with pytest.raises(
        ValueError, match=r"column 'c' must be labels of type str, got .* in row 0"
    ):
        survey.encode({"c": value})
    assert len(answer(survey, {"c": value})) == 1


def test_one_person_is_a_dict_of_values():
    questions = {
        "os": sstq.Choice(["mac", "win"]),
        "used": sstq.MultiChoice(["a", "b"]),
        "v": sstq.Vector(2),
    }
    survey = sstq.Survey(epsilon=2.0, questions=questions)
    record = {"os": "win", "used": ["a"], "v": [0.5, 0.5]}
    expected = survey.input.read({name: [value] for name, value in record.items()})
    assert survey.input.read(record).tolist() == expected.tolist()
    assert (
        survey.encode(record, rng=3).to_bytes()
        == survey.encode({n: [v] for n, v in record.items()}, 3).to_bytes()
    )
    # On a device what is missing has no answer; a list of lists is a column.
    for partly in (
        {"os": "win"},
        {"os": None},
        {},
        {"used": ["a"]},
        {"used": []},
        {"v": [1, None]},
    ):
        assert len(answer(survey, partly)) == 1
    assert len(answer(survey, {"used": [["a"], None, []]})) == 3
    assert len(answer(survey, {"used": [None, None]})) == 2
    assert len(answer(survey, {"os": ["win", 3]})) == 2


def test_integers_of_any_size_are_answered_as_any_other():
    survey = sstq.Survey(
        epsilon=2.0, questions={"n": sstq.Number(0, 10, bins=4), "v": sstq.Vector(2)}
    )
    table = {
        "n": [10**400, -(10**400), True],
        "v": [[10**400, 0], 10**400, [1e308, 1e308]],
    }
    held = survey.input.by_column(survey.input.substitute(table, source=bit_source(1)))
    assert held["n"].ravel()[:2].tolist() == [10, 0]
    assert math.isnan(held["n"][2, 0])
    assert held["v"][:2].tolist() == [[0, 0], [0, 0]]
    assert len(answer(survey, table)) == 3
    with pytest.warns(sstq.ClippedWarning, match="1 of 1 values of 'n' .* are beyond"):
        survey.encode({"n": [10**400], "v": [None]})


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("people", [2, 3])
def test_intervals_of_very_few_answers_hold_by_the_exact_law(epsilon, people):
    # Messages that are all alike have no scatter; before, a quarter of the bands missed.
    survey = sstq.Survey(epsilon, {"n": sstq.Number(0, 2, bins=2)})
    values = [0.2, 1.7, 1.9][:people]
    (inside, outside) = survey.parts[0].mechanism.draw.probabilities
    missed = 0.0
    for codes in itertools.product(range(3), repeat=people):
        aggregator = survey.aggregator()
        aggregator.update(survey.messages_from_columns((np.array(codes),), True))
        found = aggregator.mean()["n"]
        low, high = found.cdf_band()
        mean = found.mean()
        median = found.quantile(0.5)
        outside_of = (
            low[0] > 1 / people
            or high[0] < 1 / people
            or mean.low > np.mean(values)
            or mean.high < np.mean(values)
        )
        outside_of |= not median.low <= sorted(values)[(people - 1) // 2] <= median.high
        # The set of a message is that of one category, by its number.
        law = (
            inside if c == (v >= 1) else outside
            for c, v in zip(codes, values, strict=True)
        )
        missed += outside_of * math.prod(law)
    assert missed < 0.05


def test_nulls_unknown_labels_and_values_beyond_bounds():
    survey = sstq.Survey(epsilon=2.0, questions=QUESTIONS)
    table = {
        "country": ["XX", None, "AT"],
        "used": [["other"], [], None],
        "age": [-5, 1e400, None],
    }
    table["embedding"] = [None, [math.nan] * 8, [1.0] * 8]
    held = survey.input.by_column(survey.input.read(table))
    assert held["country"].ravel().tolist() == [3, 3, 0]
    assert held["used"].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert held["age"].ravel()[:2].tolist() == [0, 110]
    assert math.isnan(held["age"][2, 0])
    assert held["embedding"].sum(axis=1).tolist() == [0, 0, 8]
    assert survey.parts[-1].records(held)[0][:, 0].tolist() == [3, 3, 3]
    with pytest.warns(LocalWarning) as told:
        survey.encode(table, rng=1)
    # whose data it is about
    assert {warning.filename for warning in told} == {__file__}
    beyond, country, used = [str(warning.message) for warning in told]
    assert beyond.startswith("2 of 2 values of 'age' (100 %) are beyond its bounds")
    assert country.startswith(
        "1 of 2 values of 'country' (50 %) have labels that are none of its own and count as no answer"
    )
    assert "such as 'XX'" in country
    assert "such as 'other'" in used


def test_values_with_unknown_labels_are_counted_once_each():
    survey = sstq.Survey(
        2.0,
        {"used": sstq.MultiChoice(["a", "b"]), "os": sstq.Choice(["mac", "win"])},
    )
    table = {"used": [["a", "x"], ["x", "y", "z"], ["a"]], "os": ["mac;win", None, ""]}
    with pytest.warns(LocalWarning) as told:
        survey.encode(table, rng=1)
    used, os = [str(warning.message) for warning in told]
    assert used.startswith("2 of 3 values of 'used' (66.7 %) have labels that are none")
    assert "such as 'x', 'y', 'z'. This" in used
    assert os.startswith("2 of 2 values of 'os' (100 %) have labels")
    assert 'make the question a MultiChoice ("type": "multichoice"). This' in os


@pytest.mark.parametrize(
    ("labels", "problem"),
    [(["a", "b"], ""), (["a", "b", "nobody"], "1 of 3 groups have too few")],
)
def test_only_labels_have_too_few_people(labels, problem):
    """Everybody answers: the group of those who do not is empty, which is no problem."""
    asked = {
        "c": sstq.Choice(labels),
        "age": sstq.Number(0, 100),
        "mean": sstq.By("c", "age"),
    }
    result = results(
        sstq.Survey(6.0, asked), {"c": ["a", "b"] * 4000, "age": [30.0, 50.0] * 4000}
    )
    assert problem in result.note
    assert bool(problem) == bool(result.note)


def test_what_nobody_answered_is_unknown():
    survey = sstq.Survey(epsilon=2.0, questions=QUESTIONS)
    result = results(
        survey, {name: column[:1] for name, column in some_table(1, 3).items()}
    )
    frame = pytest.importorskip("pandas") and result.to_frame()
    assert len(frame) == 3 + 3 + 4 + 22 + 8 + 3
    assert math.isnan(result["age"].mean().value)
    # Nothing is known of it.
    assert tuple(result["age"].quantile(0.5))[1:] == (0, 110)
    low, high = result["age"].cdf_band()
    assert not low[:-1].any()
    assert high.all()


@pytest.mark.slow
def test_the_tidy_table_and_the_picture():
    pytest.importorskip("pandas")
    result = results(sstq.Survey(epsilon=4.0, questions=QUESTIONS), some_table(5000))
    frame = result.to_frame()
    assert list(frame.columns) == [
        "question",
        "item",
        "estimate",
        "stderr",
        "low",
        "high",
        "status",
    ]
    assert set(frame["question"]) == set(QUESTIONS)
    assert (frame["low"] <= frame["high"]).all()
    # The bias of the frames is in the intervals of means by group.
    by = result["age by country"]
    low, high = by.interval()
    assert np.all((high - low) / 2 > 1.0001 * student(0.95, 3, by.count) * by.stderr)
    pytest.importorskip("matplotlib")
    panels = dict(zip(QUESTIONS, result.plot().axes, strict=True))
    # A number's panel is in its own units.
    low, high = panels["age"].get_xlim()
    assert low < QUESTIONS["age"].low < QUESTIONS["age"].high < high
    assert high - low < 2 * (QUESTIONS["age"].high - QUESTIONS["age"].low)
    assert panels["age"].get_xlabel().startswith("median ")
    with pytest.raises(KeyError, match="name must be one of country"):
        result["height"]


def test_the_plan_says_which_questions_cannot_work():
    survey = sstq.Survey(epsilon=1.0, questions=QUESTIONS)
    few = survey.plan(clients=300)
    many = survey.plan(clients=10**7)
    assert many.works
    assert not few["embedding"].works
    assert str(few).splitlines()[0].startswith("question")
    needed = few["age"].needed
    assert survey.plan(clients=needed + needed // 100)["age"].works


def test_a_plan_says_of_what_each_error_is():
    questions = {
        "os": sstq.Choice(["a", "b"]),
        "used": sstq.MultiChoice(["a", "b"]),
        "age": sstq.Number(0, 110, bins=22),
        "kids": sstq.Count(5),
        "mean": sstq.Mean("age"),
        "v": sstq.Vector(2, clip=3.0),
        "age by os": sstq.By("os", "age"),
        "v by os": sstq.By("os", "v"),
    }
    plan = sstq.Survey(2.0, questions).plan(clients=1000)
    assert {name: one.error_of for name, one in plan.items()} == {
        "os": "share",
        "used": "share",
        "age": "share below a value",
        "kids": "share below a value",
        "mean": "mean / range",
        "v": "mean / clip",
        "age by os": "group mean / half range",
        "v by os": "group mean / clip",
    }
    assert all(
        one.error_of in line
        for one, line in zip(plan.values(), str(plan).splitlines()[1:], strict=True)
    )


def test_each_marked_label_is_better_one_by_one_or_all_at_once():
    """By the formula: at small ε one of two labels is drawn, at larger ε the cube is sent."""
    small, large = (
        sstq.Survey(e, {"u": sstq.MultiChoice(["a", "b"])}).parts[0] for e in (0.5, 3.0)
    )
    assert (small.mechanism.name, small.items) == ("frequencies", 3)
    assert (large.mechanism.name, large.items) == ("frameunit", 1)


def test_predicted_errors_are_the_measured_ones():
    """Of shares, and of marks: everybody answers with half of the labels, and errors of marks and answers add up."""
    people = {
        "x": np.random.default_rng(1).choice(list("abcdefgh"), 8000),
        "u": [["a", "b"], ["c", "d"]] * 4000,
    }
    survey = sstq.Survey(
        3.0, {"x": sstq.Choice(list("abcdefgh")), "u": sstq.MultiChoice(list("abcd"))}
    )
    plan = survey.plan(clients=8000)
    result = results(survey, people)
    for name in people:
        assert np.mean(result[name].stderr) == pytest.approx(plan[name].error, rel=0.1)


def test_the_plan_needs_more_people_for_what_is_rarely_drawn():
    questions = {
        "a": sstq.Choice(["x", "y"]),
        "b": sstq.Choice(["x", "y"]),
        "v": sstq.Vector(2),
    }
    plan = sstq.Survey(2.0, questions, weights={"a": 1.0, "b": 1e-6, "v": 1e-6}).plan(
        100
    )
    assert plan["b"].needed == pytest.approx(1e6 * plan["a"].needed, rel=0.1)
    assert not plan["b"].works
    assert plan["v"].needed > 1e5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (dict, "1 to 1000 questions"),
        (
            lambda: {"x": 3},
            "must be of Choice, MultiChoice, Number, Count, Vector, Mean, By",
        ),
        (lambda: {"x": sstq.Mean("y")}, "value must name a Number or a Count"),
        (
            lambda: {"y": sstq.Choice(["a"]), "x": sstq.Mean("y")},
            "value must name a Number or a Count",
        ),
        (
            lambda: QUESTIONS | {"m": sstq.Mean("age"), "again": sstq.Mean("age")},
            "same Mean twice",
        ),
        (lambda: sstq.Count(0), r"most must be an integer in \[1, 511\]"),
        (lambda: {"x": sstq.By("y", "z")}, "group must name a Choice"),
        (
            lambda: {"y": sstq.Choice(["a"]), "x": sstq.By("y", "y")},
            "value must name a Number, a Count or a Vector",
        ),
        (lambda: QUESTIONS | {"again": sstq.By("country", "age")}, "same By twice"),
        (lambda: {"\udc00": sstq.Choice(["a"])}, "questions must have names"),
        (lambda: sstq.Choice([]), "labels must be"),
        (lambda: sstq.Choice("abc"), "labels must be a list"),
        (lambda: sstq.Choice(["a", "a"]), "distinct"),
        (lambda: sstq.Choice(["a", "no answer"]), "is added"),
        (lambda: sstq.Choice(["a", 1]), "labels must be"),
        (lambda: sstq.Choice(["\ud800"]), "texts in UTF-8"),
        (lambda: sstq.MultiChoice([-(2**53), 1]), "integers of at most"),
        (lambda: sstq.Number(3, 3), "low must be below high"),
        (lambda: sstq.Number(0, 1, bins=1), "bins must be"),
        (lambda: sstq.Vector(0), "dim must be"),
        (
            lambda: sstq.Survey(1.0, {"x": sstq.Choice(["a"])}, weights={"y": 1.0}),
            "weights must name",
        ),
        (
            lambda: sstq.Survey(1.0, {"x": sstq.Choice(["a"])}, weights=[1.0]),
            "weights must be numbers by the name",
        ),
    ],
)
def test_bad_questions_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        sstq.Survey(epsilon=1.0, questions=make())


def test_tampered_documents_are_refused():
    survey = build("survey")
    data = json.loads(survey.to_json())
    other = json.loads(
        sstq.Survey(epsilon=3.0, questions=survey.questions, people=20).to_json()
    )
    lower = json.loads(
        sstq.Survey(
            epsilon=survey.epsilon / 2, questions=survey.questions, people=20
        ).to_json()
    )
    for change in (
        {"draws": data["draws"][:-1]},
        {"draws": [*data["draws"][:-1], str(int(data["draws"][-1]) - 1)]},
        {"parts": other["parts"]},
        {"parts": data["parts"][::-1]},
        {"parts": lower["parts"], "draws": lower["draws"]},
        {"parts": [{**data["parts"][0], "mechanism": "survey"}, *data["parts"][1:]]},
        {"questions": [*data["questions"][:-1], {"name": "x", "type": "riddle"}]},
        {
            "questions": [
                {**data["questions"][0], "labels": ["AT", "CH"]},
                *data["questions"][1:],
            ]
        },
        {"weights": {"country": 1.0}},
    ):
        with pytest.raises(ValueError, match=r"."):
            reread(survey, **change)
    # Another text of the same survey would have another digest.
    shorter = [dict(question) for question in data["questions"]]
    assert shorter[2].pop("bins")
    with pytest.raises(ValueError, match="unknown or inconsistent fields"):
        reread(survey, questions=shorter)
    # Draws this near to those of the weights are those of another machine, as long as they sum to all words.
    for by in (1, -1):
        with pytest.raises(ValueError, match="sum to 2"):
            reread(
                survey, draws=[*data["draws"][:-1], str(int(data["draws"][-1]) + by)]
            )
    with pytest.raises(ValueError, match="answer to question 0 must be below"):
        survey.messages_from_columns((np.array([300]), np.array([0])), True)


def test_a_schema_is_guessed_from_names_and_read_back(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("country,age,tags,income_eur\nAT,34,a;b,1000\n,,,\nDE,200,,5\n")
    schema = guess_schema(path, 2.0)
    assert schema["questions"]["age"] == {
        "type": "number",
        "low": 0,
        "high": 110,
        "bins": 22,
    }
    assert schema["questions"]["income_eur"]["low"] is None
    assert schema["questions"]["country"] == {"type": "choice", "labels": []}
    with pytest.raises(
        ValueError, match="'country': fill in labels; they must not come from the data"
    ):
        sstq.Survey.from_schema(schema)
    schema["questions"]["country"]["labels"] = ["AT", "DE"]
    schema["questions"]["tags"] = {"type": "multichoice", "labels": ["a", "b"]}
    schema["questions"]["income_eur"] |= {"low": 0, "high": 1e5}
    survey = sstq.Survey.from_schema(schema)
    [piece] = survey.input.open(path).pieces()
    table = piece.X
    assert table["country"] == ["AT", None, "DE"]
    assert table["tags"] == [["a", "b"], None, None]
    assert table["age"] == [34.0, None, 200.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "Expecting value"),
        ("[]", "format must be 'sstq-survey'"),
        (
            '{"format": "sstq-survey", "epsilon": 1, "epsilon": 20, "questions": {}}',
            "'epsilon' occurs twice",
        ),
        (
            '{"format": "sstq-survey", "epsilon": 1, "questions": {"a": {}, "a": {}}}',
            "'a' occurs twice",
        ),
        (
            '{"format": "sstq-survey", "epsilon": 1, "questions": {"a": 3}}',
            "question 'a' must have a type",
        ),
        (
            '{"format": "sstq-survey", "epsilon": 1, "questions": {"a": {"type": ["x"]}}}',
            "type of a question",
        ),
        (
            '{"format": "sstq-survey", "epsilon": 1, "questions": {}, "delta": 1}',
            "nothing unknown",
        ),
    ],
)
def test_ambiguous_schemas_are_refused(text, words, tmp_path):
    (tmp_path / "survey.json").write_text(text)
    with pytest.raises(ValueError, match=words):
        sstq.Survey.from_schema(tmp_path / "survey.json")


def test_numbers_of_a_csv_file_are_numbers_and_identifiers_are_left_out(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(
        ",user_id,customerId,plan,logins,note,age\n0,7,8,free,3,,\n1,9,10,2,,,\n2,1,5,paid,4.5,x,\n"
    )
    questions = guess_schema(path, 2.0)["questions"]
    assert {name: entry["type"] for name, entry in questions.items()} == {
        "plan": "choice",
        "logins": "number",
        "note": "choice",
        "age": "number",
    }
    # Bounds and labels never come from the data.
    assert questions["logins"] == {
        "type": "number",
        "low": None,
        "high": None,
        "bins": 16,
    }
    assert questions["plan"]["labels"] == []


@pytest.mark.parametrize(
    "change", [{}, {"epsilon": 0}, {"people": 1.5}, {"delta": 1}, {"format": "survey"}]
)
def test_the_json_schema_says_what_a_schema_is(change):
    """It takes every kind of question, and refuses what the library refuses."""
    jsonschema = pytest.importorskip("jsonschema")
    published = json.loads(
        (Path(__file__).parents[2] / "docs" / "survey.schema.json").read_text()
    )
    questions = QUESTIONS | {"visits": sstq.Count(10), "mean age": sstq.Mean("age")}
    entries = {name: question_to_dict(question) for name, question in questions.items()}
    assert {entry["type"] for entry in entries.values()} == KINDS.keys()
    schema = {"format": "sstq-survey", "epsilon": 2.0, "questions": entries} | change
    if not change:
        jsonschema.validate(schema, published)
        assert sstq.Survey.from_schema(schema) == sstq.Survey(2.0, questions)
        return
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(schema, published)
    with pytest.raises(ValueError, match=r"."):
        sstq.Survey.from_schema(schema)


def test_integers_that_nulls_turned_into_floats_are_labels():
    survey = sstq.Survey(2.0, {"c": sstq.Choice([1, 2]), "m": sstq.MultiChoice([7, 8])})
    table = pandas.DataFrame({"c": [1, None, 2], "m": [[7.0], [8], None]})
    for rows in (
        survey.input.read(table),
        survey.input.substitute(table, source=bit_source(1)),
    ):
        assert rows.tolist() == [[0, 1, 0, 0], [2, 0, 1, 0], [1, 0, 0, 1]]
    with pytest.raises(ValueError, match=r"labels of type int, got 1\.5 in row 0"):
        survey.encode({"c": [1.5], "m": [[]]})


def test_shuffled_surveys_take_their_own_law():
    questions = {"x": sstq.Choice(["a", "b"]), "y": sstq.Number(0, 1)}
    spent = [
        sstq.accounting.shuffled_epsilon(
            sstq.Survey(3.0, questions, messages=m), clients=100_000, delta=1e-6
        )
        for m in (1, 2)
    ]
    assert spent[0] < spent[1] < 3.0
    assert spent[0] < sstq.accounting.shuffled_epsilon(3.0, clients=100_000, delta=1e-6)


def test_own_weights_have_the_least_sum_of_variances(seed):
    survey = sstq.Survey(epsilon=2.0, questions=QUESTIONS)
    variances = np.array([part.precision().item for part in survey.parts])
    shares = np.array(survey.draws) / TOTAL
    others = np.random.default_rng(seed).dirichlet(np.ones(len(shares)), 100)
    assert np.all(np.sum(variances / others, axis=1) >= np.sum(variances / shares))
    assert np.ptp(shares) > 0.05


def test_a_message_has_a_limit(monkeypatch):
    monkeypatch.setattr("sstq.mechanisms.survey.survey._MOST_BITS", 5)
    with pytest.raises(ValueError, match=r"at most 5 bits, got 6: \{'x': 5, 'y': 2\}"):
        sstq.Survey(1.0, {"x": sstq.Choice(list(range(7))), "y": sstq.Choice(["a"])})
