"""Programs with the C client: the headers of `sstq inspect --c-header`, the fuzzer, refused builds, the README."""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sstq
from sstq.clients.c_header import c_header
from tests.cli.test_cli import run
from tests.clients import c_client
from tests.clients.vectors import (
    load,
    mechanisms_of,
    read_words,
    records_of,
    sent_by_library,
    vector_of,
)

COMPILERS = c_client.compilers()
BUILDS = {
    "sanitizers": (
        "-fsanitize=address,undefined",
        "-g",
        "-O1",
        "-fno-sanitize-recover=all",
    ),
    "as it is written": ("-O0",),
    "all of this processor": ("-O3", "-march=native", "-funroll-loops"),
}
BUILT = [
    "sanitizers",
    *(
        pytest.param(build, marks=pytest.mark.soak)
        for build in BUILDS
        if build != "sanitizers"
    ),
]

# Encodes what it reads with the words that it reads, and prints the messages.
PROGRAM = """
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(includes)s

static const sstq_params *const all[] = {%(names)s};
static unsigned char words[8 * SSTQ_SURVEY_WORDS];

static int hand_out(void *context, unsigned char *bytes, size_t size)
{
    (void)context;
    memcpy(bytes, words, size);
    return 0;
}

static int read_words(size_t count)
{
    return fread(words, 8, count, stdin) != count;
}

static int encode(const sstq_params *own, sstq_buffers *buffers, uint64_t *message)
{
    uint32_t group;
    float *x = malloc(own->dim * sizeof *x);
    int error = fread(&group, 4, 1, stdin) != 1 ||
                read_words(sstq_words_each(own)) || fread(x, 4, own->dim, stdin) != own->dim ||
                sstq_encode(own, x, own->dim, group, hand_out, NULL, buffers, message);
    free(x);
    return error;
}

static int answer(sstq_buffers *buffers, uint64_t *message)
{
    const float v[3] = {0.5f, -0.25f, 2.5f};
    const unsigned char used[3] = {1, 0, 1};
    const sstq_answer answers[7] = {
        {1, .label = 1}, {1, .marks = used}, {1, .number = 41.75}, {1, .label = 4}, {1, .vector = v}, {0}, {0}};
    return read_words(SSTQ_SURVEY_WORDS) || sstq_encode_survey(&survey, answers, hand_out, NULL, buffers, message);
}

int main(void)
{
    sstq_buffers buffers; /* exactly as large as asked for: sanitizers see every step beyond */
    uint32_t which;
    uint64_t message;
    const sstq_question *questions = survey.questions;
    printf("%%s|%%s|%%u\\n", questions[0].label_names[2], questions[5].name, sstq_survey_bits(&survey));
    while (fread(&which, 4, 1, stdin) == 1) {
        const sstq_params *own = which < sizeof all / sizeof *all ? all[which] : NULL;
        if (own ? sstq_sizes_of(own, &buffers.sizes) : sstq_survey_sizes(&survey, &buffers.sizes))
            return 1;
        buffers.floats = malloc(buffers.sizes.floats * sizeof *buffers.floats);
        buffers.words = malloc(buffers.sizes.words * sizeof *buffers.words);
        if (own ? encode(own, &buffers, &message) : answer(&buffers, &message))
            return 1;
        printf("%%" PRIu64 "\\n", message);
        free(buffers.floats);
        free(buffers.words);
    }
    return 0;
}
"""
RECORD = {
    "country": "CH",
    "used": ["search", "share"],
    "age": 41.75,
    "stars": 5,
    "v": [0.5, -0.25, 2.5],
}

compiled = pytest.mark.skipif(
    not COMPILERS,
    reason="NO C COMPILER: the C client is not tested; install gcc or clang",
)


def refuse_without(compiler, options):
    """Skip if the compiler does not have these options: some installations lack the libraries of sanitizers."""
    command = [compiler, *options, "-x", "c", "-", "-o", os.devnull]
    done = subprocess.run(
        command,
        input="int main(void) { return 0; }",
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(
            f"NO C COMPILER: {compiler} cannot do {' '.join(options)}; install its run-time libraries"
        )


def as_number(mechanism, fields):
    """The fields of a message as one number."""
    shifts = np.cumsum([0, *(field.bits for field in mechanism.layout.fields)]).tolist()
    return sum(value << shift for value, shift in zip(fields, shifts, strict=False))


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("build", BUILT)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_program_with_the_headers_sends_what_the_library_does(
    tmp_path, seed, compiler, build
):
    """All messages of the vectors, and a survey. Sanitizers stop at undefined behaviour and beyond any buffer."""
    refuse_without(compiler, BUILDS[build])
    known = mechanisms_of("messages")
    survey = mechanisms_of("surveys")["survey, everything"]
    names = {label: f"m{number}" for number, label in enumerate(known)}
    for name, mechanism in [
        *zip(names.values(), known.values(), strict=True),
        ("survey", survey),
    ]:
        (tmp_path / f"{name}.h").write_text(c_header(mechanism, name))
    program = PROGRAM % {
        "includes": "\n".join(
            f'#include "{name}.h"' for name in [*names.values(), "survey"]
        ),
        "names": ", ".join(f"&{name}" for name in names.values()),
    }
    (tmp_path / "main.c").write_text(program)
    sources = [tmp_path / "main.c"]
    c_client.compile_client(
        compiler, tmp_path / "main", *BUILDS[build], f"-I{tmp_path}", sources=sources
    )
    given = b""
    expected = []
    numbers = [*names]
    for case in load("messages")["cases"]:
        given += numbers.index(case["mechanism"]).to_bytes(4, "little") + case.get(
            "group", 0
        ).to_bytes(4, "little")
        given += read_words(case["words"]).astype("<u8").tobytes()
        given += vector_of(case).astype("<f4").tobytes()
        expected.append(as_number(known[case["mechanism"]], case["fields"].values()))
    people = records_of(survey, [RECORD])
    for words in np.random.default_rng(seed).integers(
        1 << 64, size=(200, survey.words_each), dtype=np.uint64
    ):
        given += len(names).to_bytes(4, "little") + words.astype("<u8").tobytes()
        expected.append(as_number(survey, sent_by_library(survey, people, words)[0]))
    done = subprocess.run(
        [tmp_path / "main"], input=given, capture_output=True, check=True
    )
    head, *sent = done.stdout.decode().splitlines()
    assert head == f"Köln “😀”|age by country|{survey.message_bits}"
    assert [*map(int, sent)] == expected


def test_the_header_says_how_many_messages_a_person_sends():
    options = {"dim": 3, "epsilon": 0.7, "frames": 40, "frame_seed": 7}
    one, three = (
        c_header(sstq.FrameUnit(**options, messages=messages), "rooms")
        for messages in (1, 3)
    )
    assert "person" not in one
    assert (
        "A person sends 3 messages, epsilon = 2.1 in all: call sstq_encode once for each."
        in three
    )
    assert "this client does not seal" in three
    # Nothing else differs but the draw's name: each message is drawn as if it were the only one.
    own = [
        [line for line in text.splitlines() if ".digest" not in line][-20:]
        for text in (one, three)
    ]
    assert own[0] == own[1]


def test_the_command_writes_the_header(tmp_path):
    """Of a mechanism, and of the document of a campaign as its collector serves it."""
    mechanism = sstq.FrameUnit(16, 4.0)
    document = {
        "format": "sstq-campaign",
        "name": "rooms",
        "mechanism": json.loads(mechanism.to_json()),
    }
    for name, text in (("m", mechanism.to_json()), ("campaign", json.dumps(document))):
        there = tmp_path / f"living-rooms-of-{name}.h"
        (tmp_path / f"{name}.json").write_text(text)
        assert (
            mechanism.digest()
            in run("inspect", tmp_path / f"{name}.json", "--c-header", there).output
        )
        assert there.read_text() == c_header(
            mechanism, f"living_rooms_of_{name}_params"
        )
        assert mechanism.digest() in there.read_text()
    assert (
        "--force"
        in run("inspect", tmp_path / "m.json", "--c-header", there, code=2).output
    )
    assert (
        "No such file"
        in run(
            "inspect", tmp_path / "none.json", "--c-header", tmp_path / "none.h", code=2
        ).output
    )


@pytest.mark.parametrize(
    ("mechanism", "header", "words"),
    [
        (sstq.VqSGD(8, 1.0), "m.h", "for the C client, got 'vqsgd'"),
        (
            sstq.SSTQ(8, 1.0, channel="metric-aware"),
            "m.h",
            "got channel='metric-aware'",
        ),
        (sstq.SSTQ(8, 1.0, kashin="paper"), "m.h", "got kashin='paper'"),
        (
            sstq.FrameUnit(2, 1.0, bounds=[[0, 1], [0, 1]]),
            "m.h",
            "bounds must be left out for the C client: scale",
        ),
        (
            sstq.FrameUnit(8, 1.0),
            "2026.h",
            "the header's name must be letters, digits and underscores",
        ),
        (
            sstq.FrameUnit(8, 1.0),
            "räume.h",
            "the header's name must be letters, digits and underscores",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path, mechanism, header, words
):
    (tmp_path / "m.json").write_text(mechanism.to_json())
    refused = run(
        "inspect", tmp_path / "m.json", "--c-header", tmp_path / header, code=1
    ).output
    assert words in " ".join(refused.split())
    assert not (tmp_path / header).exists()


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("options", ["-ffast-math", "-Ofast"])
def test_a_build_that_would_send_other_bits_is_refused(options, tmp_path):
    with pytest.raises(ValueError, match="sstq needs IEEE 754 arithmetic"):
        c_client.compile_client(
            COMPILERS[0], tmp_path / "sstq.so", *c_client.SHARED, options
        )


@compiled
@pytest.mark.slow
def test_without_a_system_the_caller_brings_the_randomness(tmp_path):
    options = ("-O0", "-shared", "-fPIC", "-DSSTQ_NO_SYSTEM_RANDOM")
    path = c_client.compile_client(COMPILERS[0], tmp_path / "sstq.so", *options)
    encoder = c_client.Encoder(c_client.load(path), sstq.FrameUnit(4, 3.0))
    x = np.ones(4, np.float32)
    assert encoder.encode(x, np.zeros(3)) >= 0
    with pytest.raises(ValueError, match="SSTQ_NO_RANDOMNESS"):
        encoder.encode(x, None)


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_fuzzing(compiler, tmp_path, seed):
    """A few seconds of libFuzzer; with a compiler that does not have it, a thousand inputs at random."""
    options = (*BUILDS["sanitizers"], "-DSSTQ_PLAIN")
    arguments = ["1000", str(seed)]
    if compiler == "clang":
        options = ("-fsanitize=fuzzer", *BUILDS["sanitizers"])
        arguments = ["-max_total_time=2", "-max_len=4096", f"-seed={seed % 2**31 + 1}"]
        # libFuzzer's own limit reads ru_maxrss, which a process inherits from its parent: a test worker of any size.
        arguments += ["-rss_limit_mb=0", "-malloc_limit_mb=64"]
    refuse_without(compiler, BUILDS["sanitizers"])
    target = c_client.SOURCES / "fuzz.c"
    program = c_client.compile_client(
        compiler, tmp_path / "fuzz", *options, sources=[target]
    )
    done = subprocess.run(
        [program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@compiled
@pytest.mark.slow
def test_the_example_of_the_readme(tmp_path, monkeypatch):
    """Its commands and its program, as they are printed."""
    text = (c_client.SOURCES / "README.md").read_text(encoding="utf-8")
    specify, build = re.findall("```console\n(.*?)\n```", text, flags=re.DOTALL)
    (program,) = re.findall("```c\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for command in specify.splitlines():
        run(*command.split()[1:])
    Path("example.c").write_text(program)
    Path("clients").symlink_to(c_client.SOURCES.parent)
    compile_it, start_it = build.removeprefix("cc ").split(" && ")
    subprocess.run([COMPILERS[0], *c_client.STRICT, *compile_it.split()], check=True)
    mechanism = sstq.from_json(Path("rooms.json").read_text())
    for _ in range(20):
        body = bytes.fromhex(
            subprocess.run(
                [start_it], check=True, capture_output=True, text=True
            ).stdout
        )
        mechanism.messages_from_bytes(body, 1)
