"""Builds of the C client: sanitizers, a fuzzer, optimisations, and the example of its README."""

import os
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sstq
from tests.cli.test_cli import run
from tests.clients import c_client
from tests.clients.c_client import cases, from_vectors, parameters_of
from tests.clients.written import read_words, vector_of

COMPILERS = c_client.compilers()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMPILERS, reason="NO C COMPILER: the C client is not tested; install gcc or clang"),
]

BUILDS = {
    "sanitizers": ("-fsanitize=address,undefined", "-g", "-O1", "-fno-sanitize-recover=all"),
    "as it is written": ("-O0",),
    "all of this processor": ("-O3", "-march=native", "-funroll-loops"),
}


@pytest.fixture(scope="module")
def records():
    """The messages of the vectors, as `replay.c` reads them."""
    found = []
    for name in ("messages", "public-coin"):
        mechanisms = from_vectors(name)
        for case in cases(name):
            message = int.from_bytes(bytes.fromhex(case["packed"]), "little")
            who = case.get("group", 0), int(case.get("client", 0))
            words = read_words(case["words"])
            found.append(replayed(mechanisms[case["mechanism"]], vector_of(case), *who, words, message))
    return found


def replayed(mechanism, x, group, client, words, message):
    """A case as `replay.c` reads it."""
    parameters = parameters_of(mechanism)
    head = bytes(parameters)
    if parameters.mechanism == 3:
        head += struct.pack(f"{3 * parameters.steps}f", *parameters.schedule[: 3 * parameters.steps])
        head += mechanism.codebook.values.tobytes()
    four = np.zeros(4, np.uint64)
    four[: len(words)] = words
    numbers = np.array([client, *four, message], dtype=np.uint64)
    return head + np.uint32(group).tobytes() + numbers.tobytes() + x.tobytes()


def refuse_without(compiler, options):
    """Skip if the compiler does not have these options: some installations lack the libraries of sanitizers."""
    command = [compiler, *options, "-x", "c", "-", "-o", os.devnull]
    done = subprocess.run(command, input="int main(void) { return 0; }", text=True, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"NO C COMPILER: {compiler} cannot do {' '.join(options)}; install its run-time libraries")


@pytest.mark.parametrize(
    "build", ["sanitizers", "all of this processor", pytest.param("as it is written", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_builds(compiler, build, records, tmp_path):
    """Sanitizers stop at undefined behaviour and at any access beyond a buffer; bits do not depend on options."""
    refuse_without(compiler, BUILDS[build])
    replay = Path(__file__).with_name("replay.c")
    program = c_client.compile_client(compiler, tmp_path / "replay", *BUILDS[build], sources=[replay])
    done = subprocess.run([program], input=b"".join(records), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"{len(records)} cases, 0 different\n"


@pytest.mark.parametrize("options", [("-ffast-math",), ("-Ofast",)])
def test_a_build_that_would_send_other_bits_is_refused(options, tmp_path):
    with pytest.raises(ValueError, match="sstq needs IEEE 754 arithmetic"):
        c_client.compile_client(COMPILERS[0], tmp_path / "sstq.so", *c_client.SHARED, *options)


def test_without_a_system_the_caller_brings_the_randomness(tmp_path):
    path = c_client.compile_client(COMPILERS[0], tmp_path / "sstq.so", *c_client.SHARED, "-DSSTQ_NO_SYSTEM_RANDOM")
    encoder, x = c_client.Encoder(c_client.load(path), sstq.FrameUnit(4, 3.0)), np.ones(4, np.float32)
    assert encoder.encode(x, np.zeros(3)) >= 0
    with pytest.raises(ValueError, match="SSTQ_NO_RANDOMNESS"):
        encoder.encode(x, None)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_fuzzing(compiler, tmp_path, seed):
    """A few seconds of libFuzzer; with a compiler that does not have it, a thousand inputs at random."""
    options, arguments = (*BUILDS["sanitizers"], "-DSSTQ_PLAIN"), ["1000", str(seed)]
    if compiler == "clang":
        options = ("-fsanitize=fuzzer", *BUILDS["sanitizers"])
        arguments = ["-max_total_time=2", "-max_len=4096", f"-seed={seed % 2**31 + 1}"]
        # libFuzzer's own limit reads ru_maxrss, which a process inherits from its parent: a test worker of any size.
        arguments += ["-rss_limit_mb=0", "-malloc_limit_mb=64"]
    refuse_without(compiler, BUILDS["sanitizers"])
    target = c_client.SOURCES / "fuzz.c"
    program = c_client.compile_client(compiler, tmp_path / "fuzz", *options, sources=[target])
    done = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_example_of_the_readme(compiler, tmp_path, monkeypatch):
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
    strict = [compiler, *c_client.STRICT, *compile_it.split()]
    subprocess.run(strict, check=True)
    mechanism = sstq.from_json(Path("rooms.json").read_text())
    for _ in range(20):
        body = bytes.fromhex(subprocess.run([start_it], check=True, capture_output=True, text=True).stdout)
        mechanism.messages_from_bytes(body, 1)
