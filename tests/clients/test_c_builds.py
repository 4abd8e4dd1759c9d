"""Builds of the C client: the fuzzer, options that are refused, and the example of its README."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sstq
from clients.c import header
from tests.cli.test_cli import run
from tests.clients import c_client

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


def refuse_without(compiler, options):
    """Skip if the compiler does not have these options: some installations lack the libraries of sanitizers."""
    command = [compiler, *options, "-x", "c", "-", "-o", os.devnull]
    done = subprocess.run(command, input="int main(void) { return 0; }", text=True, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"NO C COMPILER: {compiler} cannot do {' '.join(options)}; install its run-time libraries")


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
    specify, write = specify.splitlines()
    run(*specify.split()[1:])
    assert header.main(write.split()[2:]) is None
    Path("example.c").write_text(program)
    Path("clients").symlink_to(c_client.SOURCES.parent)
    compile_it, start_it = build.removeprefix("cc ").split(" && ")
    strict = [compiler, *c_client.STRICT, *compile_it.split()]
    subprocess.run(strict, check=True)
    mechanism = sstq.from_json(Path("rooms.json").read_text())
    for _ in range(20):
        body = bytes.fromhex(subprocess.run([start_it], check=True, capture_output=True, text=True).stdout)
        mechanism.messages_from_bytes(body, 1)
