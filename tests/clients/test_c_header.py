"""`clients/c/header.py`: a program that includes it sends the messages of the vectors."""

import json
import subprocess

import numpy as np
import pytest

import sstq
from clients.c.header import c_header, main
from tests.clients import survey_steps
from tests.clients.c_client import compile_client, compilers
from tests.clients.test_c_builds import BUILDS, refuse_without
from tests.clients.whole_messages import mechanisms, public_coins
from tests.clients.written import FOLDER, vector_of

# Encodes vectors from standard input with words from there, and prints the messages.
PROGRAM = """
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(includes)s

static unsigned char words[32];

static int hand_out(void *context, unsigned char *bytes, size_t size)
{
    (void)context;
    memcpy(bytes, words, size);
    return 0;
}

int main(void)
{
    static const sstq_params *const all[] = {%(names)s};
    sstq_buffers buffers; /* exactly as large as asked for: sanitizers see every step beyond */
    uint32_t which, group;
    uint64_t client, message;
    while (fread(&which, 4, 1, stdin) == 1) {
        const sstq_params *own = all[which];
        float *x = malloc(own->dim * sizeof *x);
        if (sstq_sizes_of(own, &buffers.sizes))
            return 1;
        buffers.floats = malloc(buffers.sizes.floats * sizeof *buffers.floats);
        buffers.words = malloc(buffers.sizes.words * sizeof *buffers.words);
        if (fread(&group, 4, 1, stdin) != 1 || fread(&client, 8, 1, stdin) != 1 ||
            fread(words, 8, sstq_words_each(own), stdin) != sstq_words_each(own) ||
            fread(x, 4, own->dim, stdin) != own->dim ||
            sstq_encode(own, x, own->dim, group, client, hand_out, NULL, &buffers, &message) != SSTQ_OK)
            return 1;
        printf("%%" PRIu64 "\\n", message);
        free(x);
        free(buffers.floats);
        free(buffers.words);
    }
    return 0;
}
"""
COMPILERS = compilers() or [pytest.param("", marks=pytest.mark.skip("NO C COMPILER"))]
BUILT = ["sanitizers", *(pytest.param(build, marks=pytest.mark.soak) for build in BUILDS if build != "sanitizers")]


def cases():
    """The mechanisms of the vectors, and their cases."""
    files = [json.loads((FOLDER / name).read_text(encoding="utf-8")) for name in ("messages.json", "public-coin.json")]
    return mechanisms() | public_coins(), [case for file in files for case in file["cases"]]


def expected(mechanism, case):
    """The message as one number."""
    fields, shift, message = case["fields"], 0, 0
    for field in mechanism.layout.fields:
        message |= fields[field.name] << shift
        shift += field.bits
    return message


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILT)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_program_with_the_headers_sends_the_messages_of_the_vectors(tmp_path, compiler, build):
    """Sanitizers stop at undefined behaviour and at any access beyond a buffer."""
    refuse_without(compiler, BUILDS[build])
    known, all_cases = cases()
    for number, mechanism in enumerate(known.values()):
        (tmp_path / f"m{number}.h").write_text(c_header(mechanism, f"m{number}"))
    program = PROGRAM % {
        "includes": "\n".join(f'#include "m{number}.h"' for number in range(len(known))),
        "names": ", ".join(f"&m{number}" for number in range(len(known))),
    }
    (tmp_path / "main.c").write_text(program)
    compile_client(compiler, tmp_path / "main", *BUILDS[build], f"-I{tmp_path}", sources=[tmp_path / "main.c"])
    numbers, given = {label: number for number, label in enumerate(known)}, b""
    for case in all_cases:
        given += numbers[case["mechanism"]].to_bytes(4, "little") + case.get("group", 0).to_bytes(4, "little")
        given += int(case.get("client", 0)).to_bytes(8, "little")
        given += b"".join(int(word, 16).to_bytes(8, "little") for word in case["words"].split())
        given += vector_of(case).astype("<f4").tobytes()
    done = subprocess.run([tmp_path / "main"], input=given, capture_output=True, check=True)
    assert [int(line) for line in done.stdout.split()] == [expected(known[c["mechanism"]], c) for c in all_cases]


SURVEY_PROGRAM = """
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "s.h"

static int hand_out(void *context, unsigned char *bytes, size_t size)
{
    memcpy(bytes, context, size);
    return 0;
}

int main(void)
{
    sstq_buffers buffers; /* exactly as large as asked for: sanitizers see every step beyond */
    const float v[3] = {0.5f, -0.25f, 2.5f};
    const unsigned char used[3] = {1, 0, 1};
    const sstq_answer answers[7] = {
        {.label = 1}, {.marks = used}, {.number = 41.75}, {.label = 4}, {.vector = v}, {.label = 0}, {.label = 0}};
    uint64_t words[SSTQ_SURVEY_WORDS], message;
    if (sstq_survey_sizes(&s, &buffers.sizes))
        return 1;
    buffers.floats = malloc(buffers.sizes.floats * sizeof *buffers.floats);
    buffers.words = malloc(buffers.sizes.words * sizeof *buffers.words);
    printf("%s|%s|%u\\n", s.questions[0].label_names[2], s.questions[5].name, sstq_survey_bits(&s));
    while (fread(words, sizeof words, 1, stdin) == 1) {
        if (sstq_encode_survey(&s, answers, hand_out, words, &buffers, &message))
            return 1;
        printf("%" PRIu64 "\\n", message);
    }
    free(buffers.floats);
    free(buffers.words);
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not compilers(), reason="NO C COMPILER")
@pytest.mark.parametrize("build", BUILT)
def test_a_program_with_the_header_of_a_survey_sends_what_the_library_does(tmp_path, seed, build):
    refuse_without(compilers()[0], BUILDS[build])
    survey = survey_steps.mechanisms()["survey, everything"]
    (tmp_path / "s.h").write_text(c_header(survey, "s"))
    (tmp_path / "main.c").write_text(SURVEY_PROGRAM)
    compile_client(compilers()[0], tmp_path / "main", *BUILDS[build], f"-I{tmp_path}", sources=[tmp_path / "main.c"])
    words = np.random.default_rng(seed).integers(1 << 64, size=(200, survey.words_each), dtype=np.uint64)
    done = subprocess.run([tmp_path / "main"], input=words.astype("<u8").tobytes(), capture_output=True, check=True)
    head, *sent = done.stdout.decode().splitlines()
    assert head == f"Köln “😀”|age by country|{survey.message_bits}"
    record = {"country": "CH", "used": ["search", "share"], "age": 41.75, "stars": 5, "v": [0.5, -0.25, 2.5]}
    for own, message in zip(words, sent, strict=True):
        fields = survey_steps.encode(survey, record, own)
        assert int(message) == expected(survey, {"fields": fields})


def test_the_header_says_how_many_messages_a_person_sends():
    options = {"dim": 3, "epsilon": 0.7, "frames": 40, "frame_seed": 7}
    one, three = (c_header(sstq.FrameUnit(**options, messages=messages), "rooms") for messages in (1, 3))
    assert "person" not in one
    assert "A person sends 3 messages, epsilon = 2.1 in all: call sstq_encode once for each." in three
    assert "this client does not seal" in three
    # Nothing else differs but the draw's name: each message is drawn as if it were the only one.
    own = [[line for line in text.splitlines() if ".digest" not in line][-20:] for text in (one, three)]
    assert own[0] == own[1]


def test_the_command_writes_the_header(tmp_path):
    there, mechanism = tmp_path / "living-rooms.h", sstq.FrameUnit(16, 4.0)
    (tmp_path / "m.json").write_text(mechanism.to_json())
    assert main([str(tmp_path / "m.json"), str(there)]) is None
    assert there.read_text() == c_header(mechanism, "living_rooms_params")
    assert mechanism.digest() in there.read_text()
    assert "usage" in main([])
    assert "No such file" in main([str(tmp_path / "none.json"), str(there)])


@pytest.mark.parametrize(
    ("mechanism", "header", "words"),
    [
        (sstq.VqSGD(8, 1.0), "m.h", "for the C client, got 'vqsgd'"),
        (sstq.SSTQ(8, 1.0, channel="metric-aware"), "m.h", "got channel='metric-aware'"),
        (sstq.SSTQ(8, 1.0, kashin="paper"), "m.h", "got kashin='paper'"),
        (sstq.FrameUnit(2, 1.0, bounds=[[0, 1], [0, 1]]), "m.h", "bounds must be left out for the C client: scale"),
        (sstq.FrameUnit(8, 1.0), "2026.h", "the header's name must be letters, digits and underscores"),
        (sstq.FrameUnit(8, 1.0), "räume.h", "the header's name must be letters, digits and underscores"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, mechanism, header, words):
    (tmp_path / "m.json").write_text(mechanism.to_json())
    assert words in main([str(tmp_path / "m.json"), str(tmp_path / header)])
    assert not (tmp_path / header).exists()
