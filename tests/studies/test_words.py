import json
import math
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import bdtrc, ndtri

import sstq
from sstq.studies import (
    NormQuestion,
    Question,
    Range,
    Study,
    Words,
    WordsResult,
    answer,
)
from sstq.studies.spelling import LETTERS, Spelling
from sstq.studies.words import WordsQuestion
from sstq.testing import check_study

PEOPLE = (
    ["the"] * 40
    + ["und"] * 30
    + ["Zürich", "東京", "", "e\u0301t\u00e9", "a" * 300, None, 3, "\ud800"] * 5
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"candidates": ["the", "Zürich", "never"]},
        {"trust": "shuffler", "epsilon": 1},
    ],
)
def test_the_contract(options, seed):
    given = {"epsilon": 3.0, "longest": 5, "alphabet": "theun"} | options
    check_study(lambda: Words(**given), PEOPLE, seed)


@pytest.mark.parametrize(
    "spelling",
    [Spelling(), Spelling("abc0189.-", "keep"), Spelling("", "keep"), Spelling("äöü")],
)
def test_every_string_is_spelled_in_one_way(spelling):
    strings = ["", "a", "abc", "Tee-0", "été", "Straße", "東京", "👩‍💻", "\0", "é" * 9]
    rows = set()
    for string in map(spelling.normalised, strings):
        symbols = spelling.symbols(string)
        assert spelling.text(symbols) == spelling.text((*symbols, 0, 0)) == string
        assert all(0 < symbol < spelling.size for symbol in symbols)
        rows.add(symbols)
    assert len(rows) == len(strings)


def test_rows_that_spell_nothing():
    spelling = Spelling()
    escape = spelling.symbols("é")[0]
    assert spelling.text((1, escape)) is None
    assert spelling.text((1, 0, 2)) is None
    assert spelling.text(spelling.symbols("é")[:2]) is None  # half a character
    assert spelling.text((spelling.size - 1, spelling.size - 1)) is None  # beyond 255
    # A letter of the alphabet has one spelling: its byte has another row, which is that of no string.
    byte, place = divmod(ord("a"), spelling.size - 1)
    assert spelling.text((1 + len(LETTERS) + byte, 1 + place)) is None


def test_normalisation_is_as_documented():
    assert Spelling().normalised("E\u0301TÉ") == "été"
    assert Spelling(case="keep").normalised("E\u0301t") == "Ét"
    assert (
        Spelling().normalised(5)
        is Spelling().normalised(None)
        is Spelling().normalised("a\udc00")
        is None
    )


def test_categories_are_words_prefixes_and_the_rest():
    study = Words(2.0, longest=7, candidates=["coffee", "something very long"])
    study.question(10)
    first = study.asked
    size = first.spelling.size
    assert first.mechanism.categories == 2 + 2 * size**3 + 1
    other = first.mechanism.categories - 1
    held = first.held(
        ["coffee", "COFFEE", "something very long", "tea", "t", "", 5, "\ud800"]
    ).tolist()
    tea, t, nothing = (
        2 + size**3 + number for number in ((20 * size + 5) * size + 1, 20 * size**2, 0)
    )
    assert held == [0, 0, 1, tea, t, nothing, other, other]
    assert first.symbols_of(tea) == ((20, 5, 1), True)
    assert first.symbols_of(tea - size**3) == ((20, 5, 1), False)
    assert first.held(["teapots", "teapotss"]).tolist() == [tea - size**3, other]
    later = Question.from_dict(
        first.to_dict()
        | {"words": ["tea"], "prefixes": [[20, 5, 1]], "step": 2}
        | {
            "mechanism": json.loads(
                sstq.Frequencies(1 + 2 * size**2 + 1, 2.0).to_json()
            )
        }
    )
    held = later.held(["tea", "teapot", "tear", "team", "te", "coffee"]).tolist()
    ends = 1 + size**2
    other = 2 * size**2 + 1
    assert held == [
        0,
        1 + 16 * size + 15,
        ends + 18 * size,
        ends + 13 * size,
        other,
        other,
    ]


SIZE = Spelling().size


KIND = {"kind": "words"}


def document(more=0, **changes):
    """The document of a question with as many categories as its fields say, and so many more."""
    question = {
        "format": "sstq-study-question",
        "version": 1,
        "study": "0" * 32,
        "alphabet": LETTERS,
        "case": "lower",
        "words": ["tea"],
        "prefixes": [[20, 5, 1]],
        "step": 1,
        "longest": 7,
        **KIND,
    } | changes
    following = 2 * SIZE ** max(1, question["step"])
    categories = len(question["words"]) + len(question["prefixes"]) * following + 1
    mechanism = sstq.Frequencies(categories + more, 2.0)
    return {"mechanism": json.loads(mechanism.to_json())} | question


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"study": "0" * 33}, "study must be 32 hexadecimal digits"),
        ({"study": "0" * 31 + "A"}, "study must be 32 hexadecimal digits"),
        ({"version": 2}, "must be of format 'sstq-study-question', version 1"),
        ({"words": ["TEA"]}, "words must be different normalised strings"),
        ({"words": ["tea", "tea"]}, "words must be different normalised strings"),
        ({"words": "tea"}, "words must be different normalised strings"),
        ({"words": [None]}, "words must be different normalised strings"),
        ({"words": ["a" * 1001]}, "strings of up to 1000 letters"),
        ({"prefixes": [[20, 5, 1], [20, 5]]}, "prefixes must be lists of one length"),
        ({"prefixes": [[20, 5, 1], [20, 5, 1]]}, "prefixes must be different"),
        ({"prefixes": [[20, 0, 1]]}, "prefixes must be of symbols"),
        ({"prefixes": [[20, SIZE, 1]]}, "prefixes must be of symbols"),
        ({"prefixes": [[True, 5, 1]]}, "prefixes must be of symbols"),
        ({"step": 0}, "step must be an integer in"),
        ({"step": 4, "prefixes": []}, "step must be an integer in"),
        ({"longest": 2}, "longest must be an integer in"),
        ({"longest": 65}, "longest must be an integer in"),
        ({"more": 1}, "categories must be"),
        ({"more": -1}, "categories must be"),
        ({"other": 1}, "unexpected keyword argument 'other'"),
        (
            {"mechanism": json.loads(sstq.FrameUnit(3, 2.0).to_json())},
            "mechanism must be Frequencies",
        ),
    ],
)
def test_documents_out_of_bounds_are_refused(changes, problem):
    Question.from_dict(document(words=["a" * 1000]))
    with pytest.raises(ValueError, match=problem):
        Question.from_dict(document(**changes))


def test_found_strings_and_their_shares(seed):
    rng = np.random.default_rng(seed)
    shares = {"tea": 0.3, "coffee": 0.25, "東京": 0.2, "water with ice": 0.15}
    rare = [f"w{i}" for i in range(1000)]
    people = rng.choice(
        [*shares, *rare], 60_000, p=[*shares.values(), *[0.1 / 1000] * 1000]
    )
    found = Words(4.0, alphabet=LETTERS + " ").simulate(people, seed)
    # At ε = 4 the last cohort has above 1,000 people: a share of 15 % is 17 errors. "東京" has 12 symbols.
    assert set(found.words) == set(shares)
    for word, share, error in zip(found.words, found.shares, found.stderr, strict=True):
        assert abs(share - shares[word]) < 6 * error  # fails falsely once in 1e8
    assert abs(found.others[0] - 0.1) < 6 * found.others[1]
    assert found.people == 60_000
    assert found.epsilon == 4.0
    assert found.false_share == 0.01


def test_what_is_false_is_not_listed(seed):
    """Nobody holds anything twice: of 20 studies at most one string is expected in 100 studies."""
    people = np.array([f"{i:x}" for i in range(4000)])
    found = [Words(3.0, longest=5).simulate(people, [seed, i]) for i in range(20)]
    # Benjamini and Hochberg: with no true string one in 100 studies lists any; four of 20 once in 2e4 runs.
    assert sum(len(one.words) > 0 for one in found) < 4


def test_chances_of_rare_hits_are_those_of_the_binomial():
    """The threshold of one string among 40,000 that are asked about, at one hit of 3,000 messages."""
    people = 100_000
    own = 0.5
    other = 1 / 3000
    # Of two groups the second gets a third.
    least = next(
        hits
        for hits in range(1000)
        if bdtrc(hits - 1, people, other) < 0.01 / 40_000 / 3
    )
    listed = []
    for hits in range(least - 10, least + 11):
        cohort = {
            "people": people,
            "rates": [own, other],
            "tested": 40_000,
            "words": ["a"],
            "hits": [hits],
        }
        if WordsResult.from_cohorts([cohort], 0, 8.0, 0.01).words:
            listed.append(hits)
    # never below what chance allows; the normal one is 8 below
    assert least <= listed[0] <= least + 3
    assert listed == list(range(listed[0], least + 11))


def test_pooled_shares_and_errors():
    cohorts = [
        {
            "people": 1000,
            "rates": [0.5, 0.1],
            "tested": 50,
            "words": ["b"],
            "hits": [300],
        },
        {
            "people": 3000,
            "rates": [0.5, 0.1],
            "tested": 50,
            # Ten hits more than by chance do not prove that anybody holds "c".
            "words": ["b", "a", "c"],
            "hits": [900, 700, 310],
        },
    ]
    found = WordsResult.from_cohorts(cohorts, 0, 2.0, 0.01)
    assert found.words == ("b", "a")
    np.testing.assert_allclose(found.shares, [0.5, (700 / 3000 - 0.1) / 0.4])
    np.testing.assert_allclose(found.stderr[0], math.sqrt(0.3 * 0.7 / 4000) / 0.4)
    # Both at once have a probability of 95 %.
    reach = ndtri((1 + 0.95**0.5) / 2) * found.stderr
    for end, sign in zip(found.interval(0.95), (-1, 1), strict=True):
        np.testing.assert_allclose(end, found.shares + sign * reach)
    assert found.others[0] == pytest.approx(1 - found.shares.sum())
    frame = found.to_frame()
    assert list(frame.columns) == ["word", "share", "stderr", "low", "high"]
    assert list(frame["word"]) == ["b", "a"]


def test_cohorts_with_larger_errors_count_for_less():
    """The weights are those of the variances that shares of zero would have."""
    cohorts = [
        {
            "people": people,
            "rates": [0.5, other],
            "tested": 50,
            "words": ["b"],
            "hits": [hits],
        }
        for people, other, hits in ((1000, 0.1, 320), (2000, 0.3, 720))
    ]
    found = WordsResult.from_cohorts(cohorts, 0, 2.0, 0.01)
    shares = np.array([(0.32 - 0.1) / 0.4, (0.36 - 0.3) / 0.2])
    weights = np.array([1000 * 0.4**2 / (0.1 * 0.9), 2000 * 0.2**2 / (0.3 * 0.7)])
    weights /= weights.sum()
    np.testing.assert_allclose(found.shares, [weights @ shares])
    rates = np.array([0.1, 0.3]) + found.shares * np.array([0.4, 0.2])
    variances = rates * (1 - rates) / np.array([1000 * 0.4**2, 2000 * 0.2**2])
    np.testing.assert_allclose(found.stderr, [math.sqrt(weights**2 @ variances)])


def test_a_plan_is_that_of_the_smallest_cohort():
    study = Words(2.0, longest=8)
    plan = study.plan(1_000_000)
    least = min(plan.cohorts.values())
    variance = sstq.Frequencies(1 << 19, 2.0).sets.rates.variance_at(0.0)
    assert plan.error == pytest.approx(6.34 * math.sqrt(variance / least))
    assert plan.works
    assert "found in 19 of 20 studies" in str(plan)
    for people, problem in (
        (
            400,
            "% of the people would be found: ask more people, or take a larger epsilon",
        ),
        (40, "no strings would be found: ask more people"),
        (3, "each of 4 cohorts needs 2 people or more"),
    ):
        plan = study.plan(people)
        assert not plan.works
        assert problem in str(plan)


def test_a_person_answers_one_cohort_only(tmp_path):
    from sstq.accounting import Ledger
    from sstq.accounting.ledger import RoundAlreadySpent

    study = Words(2.0, longest=5)
    rng = np.random.default_rng(1)
    ledger = Ledger(tmp_path / "ledger", epsilon=10.0)
    answer(study.question(1), "tea", most_epsilon=2.0, ledger=ledger)
    study.learn([answer(study.question(1), "tea", most_epsilon=2.0, rng=rng)])
    with pytest.raises(RoundAlreadySpent):
        answer(study.question(1), "tea", most_epsilon=2.0, ledger=ledger)
    assert ledger.spent == 2.0


def test_bad_randomness_is_refused_before_anything_is_paid(tmp_path):
    from sstq.accounting import Ledger

    ledger = Ledger(tmp_path / "ledger", epsilon=10.0)
    document = Words(2.0).question(1)
    with pytest.raises(ValueError, match="rng must be"):
        answer(document, "tea", most_epsilon=2.0, ledger=ledger, rng="seed")
    assert ledger.spent == 0


def test_counts_are_messages():
    people = ["tea"] * 500
    studies = [Words(3.0, longest=3)]
    studies[0].question(500)
    studies.append(Study.from_json(studies[0].to_json()))
    messages = studies[0].asked.encode(people, 1)
    codes, counts = np.unique(messages.column("code"), return_counts=True)
    studies[0].learn(messages)
    studies[1].learn_counts({"code": codes}, counts)
    assert studies[0].learned == studies[1].learned


def test_behind_a_shuffler_all_must_have_answered():
    study = Words(1.0, longest=3, trust="shuffler")
    study.question(1000)
    assert study.asked.mechanism.epsilon > 2
    with pytest.raises(
        ValueError,
        match="messages must be those of 1000 people, for whom the ε is, got 999",
    ):
        study.learn(study.asked.encode(["a"] * 999))
    study.learn(study.asked.encode(["a"] * 1000))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"longest": 2}, "longest must be an integer in"),
        ({"alphabet": "aa"}, "alphabet must be up to 100 different letters"),
        ({"alphabet": "A"}, "alphabet must be letters that normalisation keeps"),
        ({"case": "upper"}, "case must be 'lower' or 'keep'"),
        ({"candidates": [3]}, "candidates must be strings"),
        ({"candidates": ["a" * 1001]}, "must be strings of up to 1000 letters"),
        ({"trust": "nobody"}, "trust must be 'local' or 'shuffler'"),
        ({"epsilon": 0}, "epsilon must be a number in"),
    ],
)
def test_bad_options(options, problem):
    with pytest.raises(ValueError, match=problem):
        Words(**({"epsilon": 1.0} | options))


def test_the_order_of_calls():
    study = Words(1.0, longest=3)
    with pytest.raises(ValueError, match="call question"):
        study.learn([])
    document = study.question(10)
    assert study.question(10) == document
    with pytest.raises(ValueError, match="people must be 10"):
        study.question(11)
    with pytest.raises(ValueError, match="at least one person, got none: ask again"):
        study.learn([])
    with pytest.raises(ValueError, match="there is no result yet; still to answer: "):
        _ = study.result
    study.learn(study.asked.encode(["a"] * 10))
    assert study.cohorts_left == ()
    with pytest.raises(ValueError, match="all cohorts have answered"):
        study.question(10)
    assert study.result.words == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 2}, "must be of format 'sstq-study', version 1"),
        ({"format": "study"}, "must be of format 'sstq-study', version 1"),
        ({"note": 1}, "the JSON must be as `to_json` writes it"),
        ({"kind": "letters"}, "letters"),
        ({"study": "tea"}, "study must be 32 hexadecimal digits"),
        ({"people": 10.0}, "people must be an integer, got 10.0"),
        ({"learned": None}, "the JSON is not a study"),
        ({"learned": [{}]}, "the JSON is not a study"),
    ],
)
def test_only_its_own_json_is_a_study(changes, problem):
    study = Words(1.0, longest=5)
    study.question(10)
    study.learn(study.asked.encode(["tea"] * 10))
    text = study.to_json()
    assert Study.from_json(text).to_json() == text
    with pytest.raises(ValueError, match=problem):
        Study.from_json(json.dumps(json.loads(text) | changes))
    with pytest.raises(ValueError, match="the study must be a Range, got Words"):
        Range.from_json(text)


def taken(study, shares, people=10_000):
    """What a study keeps if the answers give these shares, by category."""
    found = np.zeros(study.asked.mechanism.categories)
    found[list(shares)] = list(shares.values())
    estimate = SimpleNamespace(value=found)
    answers = SimpleNamespace(count=people, mean=lambda: estimate)
    return study.take(study.cohorts_left[0], study.asked, answers)


def test_what_is_above_its_error_is_asked_about_again():
    study = Words(2.0, longest=7, candidates=["no"])
    study.question(10_000)
    rates = study.asked.mechanism.sets.rates
    gate = 2.5 * math.sqrt(rates.variance_at(0.0) / 10_000)
    ends = 1 + SIZE**3
    tea = (20 * SIZE + 5) * SIZE + 1
    other = study.asked.mechanism.categories - 1
    shares = {ends + tea: 0.2, 1 + tea: 0.3, ends: 0.1, other: 0.9, 0: -0.1}
    shares |= {1 + tea + 1: 1.01 * gate, 1 + tea + 2: 0.99 * gate}
    found = taken(study, shares)
    # Candidates stay, whatever their share is; strings and prefixes are in the order of theirs.
    assert found["words"] == ["no", "tea", ""]
    assert found["prefixes"] == [[20, 5, 1], [20, 5, 2]]
    expected = [
        round((rates.other + share * rates.gap) * 10_000) for share in (-0.1, 0.2, 0.1)
    ]
    assert found["hits"] == expected
    assert (found["people"], found["rates"]) == (10_000, list(rates))
    assert found["tested"] == SIZE**3


def test_no_more_is_asked_about_than_there_is_room_for(monkeypatch):
    study = Words(2.0, longest=7)
    study.question(10_000)
    tea = (20 * SIZE + 5) * SIZE + 1
    ends = SIZE**3 + tea
    shares = dict.fromkeys((tea, tea + 1, tea + 2, ends, ends + 1), 0.1)
    found = taken(study, shares)
    assert (len(found["words"]), len(found["prefixes"])) == (2, 3)
    # Room for one prefix with its next two letters, and one string.
    monkeypatch.setattr("sstq.studies.words._MOST_CATEGORIES", 2 * SIZE**2 + 1)
    found = taken(study, shares | {tea: 0.2})
    assert (len(found["words"]), len(found["prefixes"])) == (1, 1)


def test_the_last_cohort_keeps_no_prefixes():
    study = Words(2.0, longest=3)
    study.question(100)
    tea = (20 * SIZE + 5) * SIZE + 1
    assert taken(study, {tea: 0.9}, 100)["prefixes"] == []


def test_candidates_are_asked_about_to_the_end():
    for candidates, left in ((["tea"], 2), ([], 0)):
        study = Words(2.0, longest=7, candidates=candidates)
        study.question(2)
        other = study.asked.mechanism.categories - 1
        study.learn(study.asked.mechanism.encode([other, other], 1))
        study.learned[-1]["prefixes"] = []
        study.learned[-1]["words"] = candidates
        assert len(study.cohorts_left) == left


def test_later_cohorts_are_smaller():
    sizes = Words(2.0, longest=8).cohort_sizes(1000)
    assert list(sizes) == [f"letters 1 to {end}" for end in (3, 5, 7, 8)]
    shares = np.array([1, 0.7, 0.49, 0.343]) / 2.533
    assert np.abs(np.array(list(sizes.values())) - 1000 * shares).max() <= 1
    assert sum(sizes.values()) == 1000


def test_every_cohort_of_a_simulation_has_somebody():
    with pytest.raises(ValueError, match="enough for every cohort, got 2"):
        Words(3.0, longest=16).simulate(["tea", "tee"], 1)


def test_documents_are_of_the_class_that_reads_them():
    text = json.dumps(document())
    assert WordsQuestion.from_json(text).to_json() == Question.from_json(text).to_json()
    with pytest.raises(ValueError, match="the document must be a NormQuestion, got"):
        NormQuestion.from_json(text)
    with pytest.raises(ValueError, match="the document "):
        Question.from_json("[]")
    with pytest.raises(ValueError, match="the document is not a question of a study"):
        Question.from_dict({"format": "sstq-study-question", "version": 1} | KIND)


def test_a_person_pays_for_all_messages_of_an_answer():
    mechanism = sstq.Frequencies(2 + 2 * SIZE, 2.0, messages=3)
    text = json.dumps(document(mechanism=json.loads(mechanism.to_json())))
    with pytest.raises(ValueError, match=r"most_epsilon must be at least 6\.0, got 5"):
        answer(text, "tea", most_epsilon=5.0)
    assert len(answer(text, "tea", most_epsilon=6.0)) == -(
        -3 * mechanism.message_bits // 8
    )


def test_what_is_no_json_is_not_learned():
    class Unsure(Words):
        def take(self, cohort, question, aggregator):
            return {"share": math.nan}

    study = Unsure(1.0, longest=3)
    document = study.question(10)
    with pytest.raises(ValueError, match="not JSON compliant"):
        study.learn(study.asked.encode(["a"] * 10))
    assert (study.learned, study.question(10)) == ([], document)


def test_messages_have_at_most_40_bits():
    from sstq.studies.words import _MOST_CATEGORIES, _MOST_WORDS

    most = _MOST_CATEGORIES + _MOST_WORDS + Spelling(LETTERS).size ** 3 * 2
    for epsilon in (0.01, 1.0, 6.0, 20.0):
        assert sstq.Frequencies(most, epsilon).message_bits <= 40


def test_long_strings_take_no_time_and_are_something_else():
    """Normalising a million accents takes half an hour: a device would tell by its silence."""
    long = 3 * "\u03b1\u0313\u0342\u0345"  # three letters when they are normalised
    word = unicodedata.normalize("NFC", long)
    assert len(word) == 3
    question = WordsQuestion(
        study="0" * 32,
        mechanism=sstq.Frequencies(2, 2.0),
        alphabet=LETTERS,
        case="lower",
        words=[word],
        prefixes=[],
        step=1,
        longest=3,
    )
    accents = "a" + "\u0315\u0300" * 10**6
    assert question.held([long, word, accents, "a" * 10**7]).tolist() == [0, 0, 1, 1]
