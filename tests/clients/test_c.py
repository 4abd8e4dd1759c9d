"""The C client sends the same bits as the library, stays within its buffers and has the library's privacy."""

import copy
import re
import shutil
import subprocess

import numpy as np
import pytest

import sstq
from sstq.audit.encoder import check_encoder
from sstq.frames.kashin import represent
from sstq.randomness import streams
from tests.clients import c_client
from tests.clients import cases as fresh
from tests.clients.c_client import Encoder, Parameters, SurveyEncoder, parameters_of
from tests.clients.vectors import (
    load,
    mechanisms_of,
    read_doubles,
    read_words,
    sent_by_library,
    sha256_of_singles,
    vector_of,
)

COMPILERS = c_client.compilers()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not COMPILERS,
        reason="NO C COMPILER: the C client is not tested; install gcc or clang",
    ),
]

_LARGEST = np.finfo(np.float32).max


@pytest.fixture(scope="module", params=COMPILERS)
def library(request, tmp_path_factory):
    """The client, compiled with the strict flags and for all that this processor can do: bits do not depend on it."""
    options = (*c_client.SHARED, "-march=native", "-funroll-loops")
    return c_client.load(
        c_client.compile_client(
            request.param, tmp_path_factory.mktemp("c") / "sstq.so", *options
        )
    )


def double(text):
    return float(read_doubles(text)[0])


def chosen_columns(library, seed, dim, size):
    keys = np.empty(size, np.float32)
    mask = np.empty(-(-size // 32), np.uint32)
    memory = np.empty(2048, np.uint32)
    parameters = Parameters(frame_seed=seed, dim=dim, frame_size=size)
    library.sstq_choose_columns(
        parameters, keys.ctypes.data, mask.ctypes.data, memory.ctypes.data
    )
    return np.flatnonzero(
        np.unpackbits(mask.view(np.uint8), bitorder="little")[:size]
    ).tolist()


def test_columns_whose_words_differ_in_their_last_bits_only(library):
    """The client looks at 31 bits first; here these do not decide which of two columns is the last."""
    size = 1 << 17
    tried = 0
    leading = np.sort(streams.words(0, "columns", size)) >> np.uint64(33)
    for dim in np.flatnonzero(leading[1:] == leading[:-1]) + 1:
        assert (
            chosen_columns(library, 0, int(dim), size)
            == streams.choose(0, "columns", int(dim), size).tolist()
        )
        tried += 1
    assert tried > 0


def test_every_float_of_a_representation(library):
    """Not the message alone: all coordinates of SSTQ, whose sums have an order of their own."""
    for case in load("representation")["cases"]:
        mechanism = sstq.SSTQ(
            case["dim"], 1.0, bits=1, frame_size=case["size"], frame_seed=int(case["seed"]),
            level=double(case["level"]), steps=case["steps"],
        )  # fmt: skip
        encoder = Encoder(library, mechanism)
        x = vector_of(case)
        library.sstq_coordinate(encoder.parameters, x.ctypes.data, 0, encoder.buffers)
        bound = mechanism.kashin.schedule(mechanism.frame)[-1, -1]
        values = np.clip(
            encoder.floats[case["size"] :] / bound, np.float32(-1), np.float32(1)
        )
        assert np.array_equal(
            values, represent(mechanism.frame, mechanism.kashin, x[None])[0][0]
        ), case["about"]
        assert sha256_of_singles(values) == case["values_sha256"], case["about"]


def test_messages(library):
    encoders = {
        label: Encoder(library, mechanism)
        for label, mechanism in mechanisms_of("messages").items()
    }
    for case in load("messages")["cases"]:
        encoder = encoders[case["mechanism"]]
        x = vector_of(case)
        message = encoder.encode(x, read_words(case["words"]), case.get("group", 0))
        assert encoder.columns(message) == list(case["fields"].values()), (
            case["mechanism"],
            case["about"],
        )
        assert packed(encoder, [message]).hex() == case["packed"]
    for case in load("messages").get("batches", ()):
        encoder = encoders[case["mechanism"]]
        first = encoder.mechanism.layout.fields[0].bits
        messages = [
            sum(value << first * place for place, value in enumerate(each))
            for each in case["messages"]
        ]
        assert packed(encoder, messages).hex() == case["packed"]


def test_surveys_and_categories(library, seed):
    """The vectors, but for vectors beyond float32, which a device in C does not hold; and fresh cases."""
    mechanisms = mechanisms_of("surveys") | mechanisms_of("numbers")
    for case in load("surveys")["cases"] + load("numbers")["cases"]:
        mechanism = mechanisms[case["mechanism"]]
        words = read_words(case["words"])
        if mechanism.name == "frequencies":
            encoder = Encoder(library, mechanism)
            message = encoder.encode(np.empty(0, np.float32), words, case["value"])
            assert encoder.asked == [24, 8]
        elif (case["value"].get("v") or [1])[0] in (1e200, 1e-170):
            continue
        else:
            encoder = SurveyEncoder(library, mechanism)
            message = encoder.answer(case["value"], words)
            assert encoder.asked == [48]
        about = case["mechanism"], case["about"]
        assert list(map(str, encoder.columns(message))) == list(
            case["fields"].values()
        ), about
        assert packed(encoder, [message]).hex() == case["packed"], about
    rng = np.random.default_rng(seed)
    tried = 0
    for options in fresh.SURVEYS:
        made = fresh.cases(sstq.Survey(**options), 150, rng)
        encoder = SurveyEncoder(library, sstq.from_json(made["mechanism"]))
        for case in made["cases"]:
            record = case["value"]
            # the library takes doubles: give it what a device holds
            if record.get("v"):
                record["v"] = np.float32(record["v"]).tolist()
            words = np.array([int(word) for word in case["words"]], dtype=np.uint64)
            held = encoder.mechanism.input.read(
                {name: [value] for name, value in record.items()}
            )
            assert [encoder.columns(encoder.answer(record, words))] == sent_by_library(
                encoder.mechanism, held, words
            )
            tried += 1
    assert tried == 150 * len(fresh.SURVEYS)


def test_bad_surveys(library):
    """What contradicts itself is refused before anything is drawn; unknown categories are drawn."""
    survey = mechanisms_of("surveys")["survey, everything"]
    assert library.sstq_check_survey(c_client.survey_of(survey)) == 0
    wrong = [
        (0, "draw", 0), (0, "draw", 2**62), (0, "items", 2), (0, "labels", 4), (1, "labels", 0), (0, "type", 8),
        (2, "low", 200.0), (2, "high", float("nan")), (2, "labels", 1), (4, "type", 1), (5, "group", 1),
        (5, "group", 99), (5, "value", 0), (6, "value", 2),
    ]  # fmt: skip
    for place, field, value in wrong:
        changed = c_client.survey_of(survey)
        setattr(changed.questions[place], field, value)
        assert library.sstq_check_survey(changed) == 1, (place, field, value)
        assert library.sstq_survey_bits(changed) == 0
    numbers = mechanisms_of("numbers")["all numbers"]
    assert library.sstq_check_survey(c_client.survey_of(numbers)) == 0
    for place, field, value in [
        (1, "low", 1.0), (1, "high", 11.0), (1, "labels", 12), (3, "value", 0), (3, "value", 99),
        (3, "items", 2), (5, "value", 4),
    ]:  # fmt: skip
        changed = c_client.survey_of(numbers)
        setattr(changed.questions[place], field, value)
        assert library.sstq_check_survey(changed) == 1, (place, field, value)
    for field, value in {
        "share_inside": 0,
        "groups": 9,
        "share_threshold": 2**62,
    }.items():
        changed = c_client.survey_of(survey)
        setattr(changed.questions[0].part, field, value)
        assert library.sstq_check_survey(changed) == 1, field
    for count in (0, 6, 1001):
        changed = c_client.survey_of(survey)
        changed.count = count
        assert library.sstq_check_survey(changed) == 1, count
    # 56 bits for an answer: with the 65th question a message would have 63.
    long = c_client.survey_of(mechanisms_of("surveys")["survey, long messages"])
    for count, bits in ((64, 62), (65, 0)):
        more = (c_client.Question * count)(
            *[long.questions[0]] * (count - 4), *long.questions[:4]
        )
        for question in more[: count - 4]:
            question.draw = 1
        more[count - 4].draw -= count - 4
        more[count - 1].group = count - 2
        more[count - 1].value = count - 3
        assert library.sstq_survey_bits(c_client.Survey(None, 2.0, count, more)) == bits


def packed(encoder, messages):
    """Messages as bytes, in memory that was not zero before."""
    isa = isinstance(encoder, SurveyEncoder)
    bits = getattr(encoder.library, "sstq_survey_bits" if isa else "sstq_message_bits")(
        encoder.parameters
    )
    assert bits == encoder.mechanism.message_bits
    target = np.full(-(-len(messages) * bits // 8), 0xFF, np.uint8)
    for number, message in enumerate(messages):
        encoder.library.sstq_pack(message, bits, number, target.ctypes.data)
    return target.tobytes()


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_random_inputs(library, count, seed):
    """10⁶ inputs of random mechanisms are in `python -m benchmarks`."""
    different, tried = c_client.differences(
        library, count, np.random.default_rng(seed), each=100
    )
    assert min(tried.values()) > 0
    assert not any(different.values()), f"{different} of {tried}"


def test_opposite_ends(library):
    """Large vectors in one lane, the smallest subnormal beside the largest number, and 25,450 dimensions."""
    rng = np.random.default_rng(1)
    for mechanism in (
        sstq.FrameUnit(25_450, 3.0),
        sstq.SSTQ(25_450, 3.0),
        sstq.GroupUnit(2_000, 3.0, groups=20),
    ):
        x = np.zeros((4, mechanism.dim), np.float32)
        x[0] = _LARGEST
        x[1, ::8] = _LARGEST
        x[2] = 2.0**-149
        x[2, -1] = -_LARGEST
        x[3] = rng.standard_normal(mechanism.dim)
        words = rng.integers(0, 2**64, size=(4, mechanism.words_each), dtype=np.uint64)
        groups = np.arange(4) if mechanism.groups else None
        assert not c_client.disagreements(Encoder(library, mechanism), x, groups, words)


# The draws of all three, of people who send their group only as well; all cells are tried.
PRIVATE = [
    sstq.FrameUnit(3, 1.0, frame_size=8),
    sstq.FrameUnit(3, 2.0, frames=40, frame_size=4),
    sstq.GroupUnit(2, 1.0, groups=3, blocks=3, frame_size=4),
    sstq.GroupUnit(
        2, 1.0, groups=5, blocks=2, frame_size=8, frames=5, share_people=0.4
    ),
    sstq.SSTQ(3, 1.5, bits=2),
]


@pytest.mark.parametrize("mechanism", PRIVATE, ids=repr)
def test_privacy_through_its_words(library, mechanism, seed):
    """The client's own draw is driven through its words, as `sstq audit` drives the library's."""
    encoder = Encoder(library, mechanism)
    asked = set()

    def encode_rows(held, source, _report):
        groups, x = (
            (held[:, 0].astype(np.int64), held[:, 1:])
            if mechanism.groups
            else (None, held)
        )
        x = np.clip(x, -_LARGEST, _LARGEST).astype(np.float32)
        words = source.words(mechanism.words_each * len(x)).reshape(len(x), -1)
        sent = c_client.sent_by_client(encoder, x, groups, words)
        asked.update(encoder.asked)
        return tuple(np.array(sent).T)

    driven = copy.copy(mechanism)
    driven.__dict__["encode_rows"] = encode_rows
    check = check_encoder(driven, rng=seed)
    assert check.problem == ""
    assert check.complete
    assert check.ratio <= mechanism.law().ratio()
    # The words that a message takes do not depend on its vector.
    assert asked == {8 * mechanism.words_each} | ({8} if mechanism.groups else set())
    assert library.sstq_words_each(encoder.parameters) == mechanism.words_each


def test_privacy_check_can_fail(library):
    """With another threshold in C than in the law the check finds out."""
    mechanism = PRIVATE[0]
    parameters = parameters_of(mechanism)
    parameters.threshold += 1 << 40
    encoder = Encoder(library, mechanism, parameters)
    driven = copy.copy(mechanism)
    driven.__dict__["encode_rows"] = lambda held, source, _report: tuple(
        np.array(
            c_client.sent_by_client(encoder, np.clip(held, -1, 1).astype(np.float32), None,
                                    source.words(3 * len(held)).reshape(-1, 3))
        ).T
    )  # fmt: skip
    assert check_encoder(driven, rng=1).problem


def test_memory(library):
    """FrameUnit at d = 1,024 takes 16 KB beside the vector; no byte beyond the stated buffers is touched."""
    encoder = Encoder(library, sstq.FrameUnit(1024, 3.0, frames=1 << 20))
    assert encoder.floats.nbytes + encoder.words.nbytes <= 16 << 10
    mechanisms = [
        *PRIVATE,
        sstq.FrameUnit(1024, 3.0),
        sstq.SSTQ(300, 3.0),
        sstq.GroupUnit(30, 3.0, groups=4),
    ]
    for mechanism in mechanisms:
        encoder = Encoder(library, mechanism)
        sizes = encoder.buffers.sizes
        floats = np.full(sizes.floats + 16, 7, np.float32)
        words = np.full(sizes.words + 16, 7, np.uint32)
        encoder.buffers.floats = floats[8:].ctypes.data
        encoder.buffers.words = words[8:].ctypes.data
        encoder.encode(np.ones(mechanism.dim, np.float32), np.arange(4))
        for buffer in (floats, words):
            assert (buffer[:8] == 7).all()
            assert (buffer[-8:] == 7).all()


def refused(encoder, row, **changes):
    with pytest.raises(ValueError, match="SSTQ_") as refusal:
        encoder.encode(row, np.zeros(4), **changes)
    return str(refusal.value)


def test_errors_have_names_and_come_before_anything_is_drawn(library):
    encoder = Encoder(library, sstq.GroupUnit(4, 3.0, groups=3))
    good = np.ones(4, np.float32)
    assert refused(encoder, np.ones(5, np.float32)) == "SSTQ_BAD_LENGTH"
    for size in ("floats", "words"):
        needed = getattr(encoder.buffers.sizes, size)
        setattr(encoder.buffers.sizes, size, needed - 1)
        assert refused(encoder, good) == "SSTQ_BUFFER_TOO_SMALL"
        setattr(encoder.buffers.sizes, size, needed)
    floats = encoder.buffers.floats
    encoder.buffers.floats = None
    assert refused(encoder, good) == "SSTQ_BAD_ARGUMENT"
    encoder.buffers.floats = floats
    assert encoder.asked == []
    with pytest.raises(ValueError, match="SSTQ_NO_RANDOMNESS"):
        encoder.encode(good, np.zeros(1))
    assert library.sstq_encode(None, None, 0, 0, None, None, None, None) == 2
    assert [library.sstq_error_name(code) for code in (0, 1, 2, 99)] == [
        b"SSTQ_OK", b"SSTQ_BAD_PARAMETERS", b"SSTQ_BAD_ARGUMENT", b"SSTQ_UNKNOWN_ERROR",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["frameunit", "groupunit", "sstq"])
def test_no_private_value_is_refused(library, name, seed):
    """NaN and infinity are the zero vector, and so is a group that does not exist, in the group of another word."""
    mechanism = sstq.mechanism(
        name, dim=4, epsilon=3.0, **({"groups": 3} if name == "groupunit" else {})
    )
    encoder = Encoder(library, mechanism)
    words = np.random.default_rng(seed).integers(1 << 64, size=4, dtype=np.uint64)
    zero = np.zeros(4, np.float32)
    for bad in (np.nan, np.inf, -np.inf):
        row = np.array([1, 2, bad, 3], np.float32)
        assert encoder.encode(row, words, group=1) == encoder.encode(
            zero, words, group=1
        )
    if mechanism.groups:
        # The source hands out its first word again.
        drawn = int(streams.multiply_shift(words[:1], 3)[0])
        for group in (3, 2**32 - 1):
            assert encoder.encode(
                np.ones(4, np.float32), words, group=group
            ) == encoder.encode(zero, words, drawn)
        # Every message asks for the same bytes, whatever its group is.
        assert encoder.asked == encoder.asked[:2] * (len(encoder.asked) // 2)
        assert len(set(encoder.asked)) == 2
        # The vector of an unknown group is never looked at, whatever is drawn.
        for words in np.random.default_rng(seed).integers(
            1 << 64, size=(50, 4), dtype=np.uint64
        ):
            assert encoder.encode(np.ones(4, np.float32), words, 3) == encoder.encode(
                -np.ones(4, np.float32), words, 3
            )


DRIVER = """
#include "sstq.h"
#include <stdlib.h>
#define ROWS 512
#define INSIDE 20
static float scores[ROWS];
static uint32_t memory[2048];
int main(int count, char **arguments)
{
    static const uint32_t places[8] = {0, 19, 20, 39, 40, 41, 500, 1023};
    uint32_t j, state = 1;
    for (j = 0; j < ROWS; j++, state = state * 1664525 + 1013904223)
        scores[j] = (float)(state >> 8) - 8388608.0f;
    return count == 2 ? (int)(sstq_signed_row(scores, ROWS, INSIDE, places[*arguments[1] - '0'], memory) & 1) : 2;
}
"""


@pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="NO VALGRIND: instructions are not counted"
)
def test_the_search_takes_the_same_instructions_for_every_draw(tmp_path):
    """A draw of another block looks up place 0, one of the own block any place: neither ends earlier.

    Counted, not timed: the instructions of the whole program, which differs in the place alone.
    """
    (tmp_path / "driver.c").write_text(DRIVER)
    driver = [tmp_path / "driver.c"]
    c_client.compile_client(COMPILERS[0], tmp_path / "driver", "-O2", sources=driver)
    counts = []
    for place in (0, 3, 7):
        run = [
            "valgrind",
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "./driver",
            str(place),
        ]
        done = subprocess.run(
            run, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1)
        counts.append(int(re.search(r"Collected : (\d+)", done.stderr)[1]))
    assert len(set(counts)) == 1


WRONG = {
    "frameunit": {
        "mechanism": 5, "clip": float("nan"), "dim": 0, "frame_size": 48, "rounds": 1, "frames": 0,
        "inside": 257, "threshold": 1 << 62,
    },
    "groupunit": {
        "groups": 1, "blocks": 0, "dim": 200, "frame_size": 1 << 30, "vector_frames": 16, "share_size": 4,
        "share_inside": 5, "share_threshold": 0, "inside": 0,
    },
    "sstq": {"bits": 13, "steps": 0, "schedule": None, "codebook": None, "own": 5, "other": 0, "dim": 17},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_parameters(library, name):
    mechanism = {
        "frameunit": sstq.FrameUnit(4, 3.0),
        "groupunit": sstq.GroupUnit(4, 1.0, groups=5, blocks=2, frames=16),
        "sstq": sstq.SSTQ(4, 3.0),
    }[name]
    assert library.sstq_check(parameters_of(mechanism)) == 0
    for field, value in WRONG[name].items():
        parameters = parameters_of(mechanism)
        setattr(parameters, field, value)
        assert library.sstq_check(parameters) == 1, field
        assert (
            library.sstq_message_bits(parameters)
            == library.sstq_words_each(parameters)
            == 0
        )
    if name == "sstq":
        parameters = parameters_of(mechanism)
        parameters.codebook[1] = 2.0
        assert library.sstq_check(parameters) == 1


def test_system_randomness(library):
    first = np.zeros(4, np.uint64)
    second = np.zeros(4, np.uint64)
    for words in (first, second):
        assert library.sstq_system_random(None, words.ctypes.data, words.nbytes) == 0
    # Each equality has probability 2⁻⁶⁴.
    assert not np.isin(first, [0, *second]).any()
    encoder = Encoder(library, sstq.FrameUnit(4, 3.0))
    x = np.ones(4, np.float32)
    sent = {encoder.encode(x, None) for _ in range(100)}
    # 100 of 512 rows, none above 1.2 % likely, are all alike with a probability below 1e-180.
    assert len(sent) > 1
