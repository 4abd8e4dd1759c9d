import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import sstq
from sstq.cli import CommandGroup, app, terminal
from sstq.inputs import people
from sstq.planning import comparison, plan
from tests.patience import PATIENCE, until

DIM = 6
COMMANDS = ["spec", "encode", "sql", "aggregate", "inspect", "plan", "compare", "clip"]
COMMANDS += [
    "try",
    "serve",
    "campaign",
    "send",
    "shuffler",
    "audit",
    "account",
    "survey",
    "study",
]
MOST_COMMANDS = 17
MOST_OPTIONS = 12


def run(*arguments, code=0, env=None):
    """Run a command in this process and expect an exit code; an exception that is not handled is a failure."""
    # what it knows of colours is that of the environment it was made in
    terminal._stderr.cache_clear()
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env=env, prog_name="sstq"
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert code == 0 or "Traceback" not in result.output or env is not None
    return result


def start(*arguments, **options):
    """Start the real program, as from a terminal: shells have what they run in the background ignore interruptions."""
    command = [sys.executable, "-m", "sstq", *(str(argument) for argument in arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, preexec_fn=_heed_interruptions, **pipes, **options)


def _heed_interruptions():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_program(*arguments, **options):
    """Run the real program; returns its exit code, stdout and stderr."""
    with start(*arguments, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    return process.returncode, out, err


def assert_for_people(out):
    """Every line says something, in at most six digits after the point, and yes or no where there is nothing else."""
    values = [line.split("\t", 1)[1] for line in out.splitlines()]
    assert all(values)
    assert not {"True", "False", "None", "nan"} & set(values)
    assert not re.search(r"\d\.\d{7}", out)


def summary_in(folder):
    return json.loads((folder / "summary.json").read_text())


def facts(result):
    """The tab-separated names and values of a command that does not print to a terminal."""
    return dict(
        line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line
    )


@pytest.fixture
def mechanism():
    return sstq.SSTQ(dim=DIM, epsilon=4.0, bits=2, clip=2.0)


@pytest.fixture
def spec(tmp_path, mechanism):
    path = tmp_path / "mechanism.json"
    path.write_text(mechanism.to_json())
    return path


@pytest.fixture
def vectors():
    return np.random.default_rng(3).normal(size=(500, DIM)).astype(np.float32)


@pytest.fixture
def vectors_file(tmp_path, vectors):
    np.save(tmp_path / "vectors.npy", vectors)
    return tmp_path / "vectors.npy"


@pytest.fixture
def shards(tmp_path, mechanism, vectors):
    """Five message files, and one with all of their messages."""
    messages = mechanism.encode(vectors, rng=11)
    paths = [tmp_path / f"shard{number}.sstq" for number in range(5)]
    for number, path in enumerate(paths):
        sstq.write_messages(path, messages[100 * number : 100 * (number + 1)])
    sstq.write_messages(tmp_path / "whole.sstq", messages)
    return paths, tmp_path / "whole.sstq"


@pytest.fixture
def foreign(tmp_path, vectors):
    other = sstq.SSTQ(dim=DIM, epsilon=4.0, bits=2, clip=3.0)
    sstq.write_messages(tmp_path / "foreign.sstq", other.encode(vectors))
    return tmp_path / "foreign.sstq"


@pytest.fixture
def truncated(tmp_path, shards):
    path = tmp_path / "truncated.sstq"
    path.write_bytes(shards[1].read_bytes()[:-9])
    return path


def wait_for(condition, process):
    """Wait until the condition holds, while the process lives."""

    def holds():
        assert process.poll() is None, process.stderr.read()
        return condition()

    until(holds)


# --- help, versions and errors ---


def all_commands(command, path=()):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from all_commands(one, (*path, name))


def test_every_command_explains_itself():
    """Square brackets are markup to the library that prints the help, which leaves out what it takes for a style."""
    assert set(COMMANDS) == set(get_command(app).commands)
    assert len(COMMANDS) <= MOST_COMMANDS
    for path, command in all_commands(get_command(app)):
        result = run(*path, "--help", env={"TERMINAL_WIDTH": "200"})
        assert "Usage: sstq" in result.stdout
        assert "<bool>" not in result.stdout
        assert result.stderr == ""
        shown = "".join(result.stdout.replace("│", "").split())
        texts = [
            command.callback.__doc__,
            *(getattr(one, "help", "") for one in command.params),
        ]
        for bracketed in re.findall(
            r"\[(?!/?dim\]).*?\]", " ".join(filter(None, texts))
        ):
            assert "".join(bracketed.split()) in shown, path
        options = [
            one
            for one in command.params
            if one.name != "help" and one.param_type_name == "option"
        ]
        names = {name for one in options for name in one.opts}
        assert len(options) <= MOST_OPTIONS, path
        assert "--output" not in names or "--force" in names, path
    panels = run("--help").stdout
    assert all(
        f" {panel} " in panels for panel in ("Collect", "Plan", "Serve", "Check")
    )
    assert "[default: (as sstq plan chooses)]" in " ".join(
        run("spec", "--help").stdout.replace("│", "").split()
    )


def test_a_terminal_shows_five_lines_first_and_a_file_gets_all(tmp_path, spec):
    def lines(*options):
        shown = run(
            "inspect", spec, *options, env={"FORCE_COLOR": "1", "COLUMNS": "80"}
        ).stdout
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert all(len(line) <= 80 for line in plain)
        return plain

    assert sum("  " in line.rstrip() for line in lines()) == 5
    assert len(lines("--verbose")) > 12
    assert "digest" in facts(run("inspect", spec))


def test_titles_and_names_may_have_square_brackets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(
        "spec", "--dim", 9, "--epsilon", 1, "-o", "[a].json", env={"FORCE_COLOR": "1"}
    )
    assert "[a].json" in result.stdout and "[a].json" in result.stderr  # noqa: PT018


def test_the_program_has_a_version_and_runs_as_a_module():
    code, out, err = run_program("--version")
    assert (code, out, err) == (0, f"sstq {sstq.__version__}\n", "")


def test_help_loads_none_of_the_heavy_libraries():
    program = """
import sys
sys.argv = ["sstq", "--help"]
from sstq.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"numpy", "scipy", "numba", "matplotlib", "pyarrow", "sklearn"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert result.returncode == 0, result.stderr


def test_debug_shows_the_traceback(tmp_path):
    result = run("inspect", tmp_path / "none", code=2, env={"SSTQ_DEBUG": "1"})
    assert "Traceback (most recent call last)" in result.stderr
    assert "error: " in result.stderr


def test_an_extra_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "sstq[plots]" in run("compare", "--plot", tmp_path / "c.png", code=1).stderr

    def lonely():
        raise ModuleNotFoundError("No module named 'cryptography'", name="cryptography")

    alone = typer.Typer(cls=CommandGroup)
    alone.command()(lonely)
    alone.command("other")(lambda: None)
    result = CliRunner().invoke(alone, ["lonely"])
    assert (result.exit_code, result.stderr) == (
        1,
        "error: this needs cryptography: pip install 'sstq[client]'\n",
    )


# --- spec ---


def test_spec_writes_the_mechanism_of_its_options(tmp_path):
    path = tmp_path / "m.json"
    settings = {
        "channel": "metric-aware",
        "decoder": "identity",
        "level": 2.5,
        "frame": "fourier",
        "frame-size": 100,
    }
    options = ["--dim", 40, "--epsilon", 3, "--bits", 3, "--clip", 0.5]
    options += [
        word
        for name, value in settings.items()
        for word in ("--set", f"{name}={value}")
    ]
    told = facts(run("spec", *options, "--output", path))
    settings["frame_size"] = settings.pop("frame-size")
    expected = sstq.SSTQ(40, 3.0, bits=3, clip=0.5, **settings)
    assert sstq.from_json(path.read_text()) == expected
    assert (told["digest"], told["unbiased"]) == (expected.digest(), "no")
    assert float(told["epsilon spent, rounded up"]) == expected.privacy_loss()


def test_spec_without_a_name_is_what_plan_chooses(tmp_path):
    path = tmp_path / "m.json"
    result = run(
        "spec",
        "--dim",
        100,
        "--epsilon",
        2,
        "--clients",
        5000,
        "--clip",
        3,
        "--set",
        "frame_seed=7",
        "-o",
        path,
    )
    chosen = plan(100, 5000, 2.0, clip=3.0)
    assert sstq.from_json(path.read_text()) == chosen.build().with_seed(7)
    assert f"chose {chosen.label}, the least error for 5,000 people" in " ".join(
        result.stderr.split()
    )
    assert (
        facts(result)["error of the round of 5,000"]
        == f"{chosen.relative_error:.4g} of clip"
    )
    result = run("spec", "--dim", 100, "--epsilon", 2, "-o", path, "--force")
    assumed = plan(100, epsilon=2.0, target_error=0.1)
    assert sstq.from_json(path.read_text()) == assumed.build()
    assert f"{assumed.clients:,} people, enough for an error of 10 %" in " ".join(
        result.stderr.split()
    )
    run("spec", "--dim", 100, "--epsilon", 2, "--bits", 2, "-o", path, "--force")
    assert sstq.from_json(path.read_text()) == sstq.SSTQ(100, 2.0, bits=2)
    assert (
        "pass --epsilon"
        in run("spec", "--dim", 100, "-o", path, "--force", code=2).stderr
    )


def test_spec_says_that_no_crowd_outweighs_the_bias_of_one_frame(tmp_path):
    command = [
        "spec",
        "--name",
        "frameunit",
        "--dim",
        384,
        "--epsilon",
        8,
        "-o",
        tmp_path / "m.json",
    ]
    result = run(*command)
    answer = facts(result)["clients for an error of 10 %"]
    assert answer.startswith("out of reach: the bias is 3.23 of clip; pass --clients ")
    clients = int(re.search(r"--clients (\d+)", answer)[1])
    followed = facts(run(*command, "--clients", clients, "--force"))
    assert int(followed["clients for an error of 10 %"].replace(",", "")) <= clients
    assert float(followed[f"error of the round of {clients:,}"].split()[0]) <= 0.1
    suffice = re.search(
        r"up to ([\d,]+)", followed["clients for which these frames suffice"]
    )[1]
    assert int(suffice.replace(",", "")) >= clients


def test_what_an_aggregate_advises_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.full((300, 16), 0.1)
    np.save("a.npy", x[:200])
    np.save("b.npy", x[200:])
    run(
        "spec",
        "--name",
        "frameunit",
        "--dim",
        16,
        "--epsilon",
        4,
        "--set",
        "messages=3",
        "-o",
        "m.json",
    )
    told = facts(
        run("encode", "a.npy", "b.npy", "-m", "m.json", "-o", "g.sstq", "--seed", 1)
    )
    assert (told["messages"], told["epsilon per person without a shuffler"]) == (
        "900",
        "12 (3 x 4)",
    )
    advice = re.search(
        r"for the next round: sstq (.*)",
        run("aggregate", "g.sstq", "-m", "m.json", "-o", "out").stderr,
    )
    run(*advice[1].split())
    following = sstq.from_json((tmp_path / "next.json").read_text())
    assert (following.note(300), following.messages) == ("", 3)


def test_outputs_need_a_folder(tmp_path, spec):
    command = ("spec", "--dim", 10, "--epsilon", 1, "-o")
    assert (
        "there is no folder"
        in run(*command, tmp_path / "none" / "m.json", code=2).stderr
    )
    assert "must be a file, got the folder" in run(*command, tmp_path, code=2).stderr
    aggregate = ["aggregate", tmp_path / "none", "-m", spec, "-o", tmp_path / "result"]
    assert (
        "--state"
        in run(*aggregate, "--state", tmp_path / "none" / "state.npz", code=2).stderr
    )


def test_no_file_is_overwritten_unless_forced(tmp_path, spec, vectors_file):
    there = tmp_path / "there"
    for command in (
        ("spec", "--dim", 8, "--epsilon", 1),
        ("encode", vectors_file, "-m", spec),
    ):
        there.write_bytes(b"what was there")
        refused = run(*command, "--output", there, code=2)
        assert (
            f"--output {there} already exists; pass --force to overwrite it"
            in refused.stderr
        )
        assert refused.stdout == ""
        assert there.read_bytes() == b"what was there"
        run(*command, "--output", there, "--force")
        assert there.read_bytes() != b"what was there"


# --- encode ---


def test_encode_with_a_seed_is_the_library_s_encode_and_says_so(
    tmp_path, monkeypatch, mechanism, spec, vectors, vectors_file
):
    monkeypatch.setattr(people, "_NUMBERS_AT_A_TIME", 7 * DIM)
    result = run(
        "encode", vectors_file, "-m", spec, "-o", tmp_path / "out.sstq", "--seed", 5
    )
    assert "NOT PRIVATE" in result.stderr
    (stored,) = sstq.read_messages(tmp_path / "out.sstq", mechanism)
    assert stored.simulated
    assert stored.to_bytes() == mechanism.encode(vectors, rng=5).to_bytes()
    result = run(
        "aggregate", tmp_path / "out.sstq", "-m", spec, "-o", tmp_path / "result"
    )
    assert "NOT PRIVATE" in result.stderr
    assert summary_in(tmp_path / "result")["simulated"] is True
    assert (
        run("encode", vectors_file, "-m", spec, "-o", tmp_path / "secret.sstq").stderr
        == ""
    )
    (secret,) = sstq.read_messages(tmp_path / "secret.sstq", mechanism)
    assert not secret.simulated
    assert secret.to_bytes() != stored.to_bytes()


def test_encode_says_nothing_of_the_data_unless_asked(tmp_path, spec):
    np.save(tmp_path / "long.npy", np.full((321, DIM), 100.0))
    silent = run(
        "encode", tmp_path / "long.npy", "-m", spec, "-o", tmp_path / "out.sstq"
    )
    assert "clip" not in silent.output
    told = run(
        "encode",
        tmp_path / "long.npy",
        "-m",
        spec,
        "-o",
        tmp_path / "told.sstq",
        "--verbose",
    )
    assert "321 longer than clip" in told.stderr
    assert "keep them to yourself" in told.stderr


def test_encode_reads_files_in_order(tmp_path, mechanism, spec, vectors):
    np.save(tmp_path / "a.npy", vectors[100:])
    pq.write_table(
        pa.table({"x": list(vectors[:100]), "y": list(vectors[:100])}),
        tmp_path / "b.parquet",
    )
    out = ("-m", spec, "-o", tmp_path / "out.sstq", "--seed", 1, "--force")
    np.save(tmp_path / "c.npy", vectors[:100])
    run("encode", tmp_path / "c.npy", tmp_path / "a.npy", *out)
    (stored,) = sstq.read_messages(tmp_path / "out.sstq", mechanism)
    assert stored.to_bytes() == mechanism.encode(vectors, rng=1).to_bytes()
    run("encode", tmp_path / "b.parquet", "--columns", "x", *out)
    assert (
        "error: --columns must be given for"
        in run("encode", tmp_path / "b.parquet", *out, code=2).stderr
    )
    # The first line may be a person's, whatever it looks like.
    (tmp_path / "lines.csv").write_text("a,b,c,d,e,f\n" + "0.1,0,0,0,0,0\n" * 2)
    counts = [facts(run("encode", tmp_path / "lines.csv", *out))["messages"]]
    opened = mechanism.input.open(tmp_path / "lines.csv", columns=[], answering=True)
    assert (counts, opened.count) == (["2"], 3)
    assert (
        "no number in row 0"
        in run("encode", tmp_path / "lines.csv", "--no-header", *out, code=1).stderr
    )
    assert (
        "--columns must be left out"
        in run(
            "encode",
            tmp_path / "lines.csv",
            "--no-header",
            "--columns",
            "a",
            *out,
            code=2,
        ).stderr
    )
    np.save(tmp_path / "none.npy", np.zeros((0, DIM)))
    assert (
        "there are no vectors"
        in run("encode", tmp_path / "none.npy", *out, code=1).stderr
    )


def test_a_nan_in_the_second_chunk_of_the_second_file_leaves_no_output(
    tmp_path, monkeypatch, spec, vectors, vectors_file
):
    monkeypatch.setattr(people, "_NUMBERS_AT_A_TIME", 100 * DIM)
    vectors[150, 2] = np.nan
    np.save(tmp_path / "bad.npy", vectors)
    before = sorted(tmp_path.iterdir())
    result = run(
        "encode",
        vectors_file,
        tmp_path / "bad.npy",
        "-m",
        spec,
        "-o",
        tmp_path / "out.sstq",
        code=1,
    )
    assert (
        f"{tmp_path / 'bad.npy'}: vectors must be {DIM} finite numbers, got no number in row 150"
        in result.stderr
    )
    assert result.stdout == ""
    assert sorted(tmp_path.iterdir()) == before


def test_encode_does_not_overwrite_what_it_reads(spec, vectors_file):
    for path in (vectors_file, spec):
        before = path.read_bytes()
        refused = run("encode", vectors_file, "-m", spec, "-o", path, "--force", code=2)
        assert "must not be an input file" in refused.stderr
        assert path.read_bytes() == before


def test_nobody_is_encoded_twice(tmp_path, spec, vectors_file):
    (tmp_path / "link.npy").symlink_to(vectors_file)
    for other in (vectors_file, tmp_path / "link.npy"):
        refused = run(
            "encode",
            vectors_file,
            other,
            "-m",
            spec,
            "-o",
            tmp_path / "out",
            "--force",
            code=2,
        )
        assert "is the same file as" in refused.stderr
        assert not (tmp_path / "out").exists()


# --- aggregate ---


@pytest.mark.slow
def test_the_whole_way_as_a_user_goes_it(tmp_path, vectors, vectors_file):
    spec = tmp_path / "m.json"
    messages = tmp_path / "messages.sstq"
    folder = tmp_path / "result"
    run("spec", "--dim", DIM, "--epsilon", 4, "--bits", 2, "--clip", 9, "-o", spec)
    code, _, err = run_program(
        "encode",
        vectors_file,
        "-m",
        spec,
        "-o",
        messages,
        env=os.environ | {"SSTQ_QUIET": "1"},
    )
    assert (code, err) == (0, "")
    code, out, err = run_program(
        "aggregate",
        messages,
        "-m",
        spec,
        "-o",
        folder,
        env=os.environ | {"SSTQ_QUIET": "1"},
    )
    assert (code, err) == (0, "")
    summary = summary_in(folder)
    mean = np.load(folder / "mean.npy")
    stderr = np.load(folder / "stderr.npy")
    mechanism = sstq.from_json(spec.read_text())
    assert mean.shape == stderr.shape == (DIM,)
    assert summary["count"] == len(vectors)
    assert summary["digest"] == mechanism.digest()
    assert summary["measured_error_norm"] == pytest.approx(np.linalg.norm(stderr))
    assert summary["simulated"] is False
    assert_for_people(out)
    assert f"count\t{len(vectors)}" in out
    # Secret randomness: 7 standard errors a coordinate are a false-failure rate below 6·3e-12 (normal tails).
    assert np.all(np.abs(mean - vectors.mean(axis=0)) < 7 * stderr)
    # Clients with norms up to clip: the error of a typical vector that long is of the same order.
    assert (
        0.3
        < summary["measured_error_norm"]
        / mechanism.typical_error(len(vectors)).total ** 0.5
        < 3
    )


def test_encode_reads_a_file_once_and_aggregate_runs_no_client_code(
    tmp_path, spec, vectors_file, monkeypatch
):
    pieces = people.PeopleFile.pieces
    read = []
    monkeypatch.setattr(
        people.PeopleFile,
        "pieces",
        lambda file: read.append(file.name) or pieces(file),
    )
    run("encode", vectors_file, "-m", spec, "-o", tmp_path / "m.sstq")
    assert read == [str(vectors_file)]
    for name in (
        "encode",
        "encode_slots",
        "expected_mse",
        "typical_error",
        "encode_rows",
    ):
        monkeypatch.setattr(
            sstq.SSTQ, name, lambda *_, **__: pytest.fail("this is a client's work")
        )
    run("aggregate", tmp_path / "m.sstq", "-m", spec, "-o", tmp_path / "result")


def test_files_count_once_and_results_are_replaced_only_beside_their_state(
    tmp_path, spec, shards
):
    paths, _ = shards
    folder = tmp_path / "result"
    aggregate = ["aggregate", *paths[:2], "-m", spec, "-o", folder]
    run(*aggregate)
    assert "2 of 3 files were already counted" in run(*aggregate, paths[2]).stderr
    assert summary_in(folder)["count"] == 300
    state = (folder / "state.npz").rename(tmp_path / "elsewhere.npz")
    assert "mean.npy already exists; pass --force" in run(*aggregate, code=2).stderr
    run(*aggregate, paths[3], "--state", state)
    assert summary_in(folder)["count"] == 400
    assert not (folder / "state.npz").exists()
    run(*aggregate, "--force")
    assert summary_in(folder)["count"] == 200


def test_one_message_has_no_standard_error(tmp_path, mechanism, spec, vectors):
    sstq.write_messages(tmp_path / "one.sstq", mechanism.encode(vectors[0]))
    assert_for_people(
        run(
            "aggregate", tmp_path / "one.sstq", "-m", spec, "-o", tmp_path / "result"
        ).stdout
    )
    assert summary_in(tmp_path / "result")["measured_error_norm"] is None


def test_a_bad_file_is_named_and_what_was_there_stays(
    tmp_path, mechanism, spec, shards, truncated, foreign
):
    paths, _ = shards
    folder = tmp_path / "result"
    missing = tmp_path / "missing.sstq"
    for bad in (truncated, foreign, missing, spec):
        code = 2 if bad is missing else 1
        result = run(
            "aggregate", paths[0], bad, paths[1], "-m", spec, "-o", folder, code=code
        )
        assert str(bad) in result.stderr
        assert not (folder / "mean.npy").exists()
        assert mechanism.load_aggregator(str(folder / "state.npz")).count == 100
    run("aggregate", *paths, "-m", spec, "-o", folder)
    assert summary_in(folder)["count"] == 500


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)]
)
def test_a_run_that_is_cut_short_between_files_is_resumed(tmp_path, spec, shards, how):
    paths, whole = shards
    folder = tmp_path / "result"
    # Reading a pipe that nobody writes to blocks, so the program stands still after its second file.
    os.mkfifo(tmp_path / "pipe")
    process = start(
        "aggregate", *paths[:2], tmp_path / "pipe", *paths[2:], "-m", spec, "-o", folder
    )
    with process:
        wait_for(
            lambda: (
                (folder / "state.npz").exists()
                and _messages_in(folder / "state.npz") == 200
            ),
            process,
        )
        process.send_signal(how)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in err
    assert not (folder / "mean.npy").exists()
    run("aggregate", *paths, "-m", spec, "-o", folder)
    run("aggregate", whole, "-m", spec, "-o", tmp_path / "one")
    assert (folder / "mean.npy").read_bytes() == (
        tmp_path / "one" / "mean.npy"
    ).read_bytes()


def _messages_in(state):
    with np.load(state) as stored:
        return int(stored["state"][:, 0].sum())


# --- inspect ---


def test_inspect_knows_messages_by_their_content_and_verifies_them(
    tmp_path, mechanism, spec, vectors, foreign
):
    sstq.write_messages(tmp_path / "messages.parquet", mechanism.encode(vectors, rng=1))
    path = (tmp_path / "messages.parquet").rename(tmp_path / "renamed.bin")
    for options in ([], ["-m", spec]):
        result = run("inspect", path, *options)
        told = facts(result)
        assert told["messages"] == str(len(vectors))
        assert told["bits per message"] == str(mechanism.message_bits)
        assert told["digest"] == mechanism.digest()
        assert told["randomness"] == "a seed: simulated, not private"
        assert told["checksums"].startswith(
            "verified" if options else "of the messages: pass --mechanism"
        )
        assert "NOT PRIVATE" in result.stderr
    assert told["matches the mechanism"] == "yes"
    assert "another mechanism" in run("inspect", foreign, "-m", spec, code=1).stderr


def test_inspect_knows_a_state(tmp_path, mechanism, spec, shards):
    run("aggregate", *shards[0], "-m", spec, "-o", tmp_path / "result")
    for options in ([], ["-m", spec]):
        told = facts(run("inspect", tmp_path / "result" / "state.npz", *options))
        assert told["messages"] == "500"
        assert told["files"] == "5"
        assert told["digest"] == mechanism.digest()


def test_inspect_refuses_other_files(tmp_path, vectors, truncated):
    np.save(tmp_path / "vectors.npy", vectors)
    np.savez(tmp_path / "vectors.npz", vectors)
    (tmp_path / "other.json").write_text("{}")
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "other.parquet")
    for path in (
        tmp_path / "vectors.npy",
        tmp_path / "vectors.npz",
        tmp_path / "other.json",
        truncated,
    ):
        assert path.name in run("inspect", path, code=1).stderr
    assert (
        "not a message file"
        in run("inspect", tmp_path / "other.parquet", code=1).stderr
    )


# --- compare ---


@pytest.mark.slow
def test_compare_writes_what_it_prints_and_a_narrow_terminal_breaks_no_number(
    tmp_path, monkeypatch
):
    # Optimal channels take seconds to solve.
    variants = [one for one in comparison.all_variants() if "optimal" not in one.label]
    monkeypatch.setattr(comparison, "all_variants", lambda: variants)
    task = ("compare", "--dim", 8, "--epsilon", 1)
    result = run(*task, "-o", tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())["mechanisms"]
    assert [line.split("\t")[0] for line in result.stdout.splitlines()[1:]] == [
        row["label"] for row in written
    ]
    assert {"sstq", "privunitg", "vqsgd"} <= {row["name"] for row in written}
    errors = [row["mse"] for row in written]
    assert (
        errors
        == sorted(errors)
        == pytest.approx([row["bias2"] + row["variance"] for row in written])
    )
    assert_narrow(result.stdout, *task, "--plot", tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_long_headers_are_wrapped():
    task = (
        "account",
        "--epsilon",
        0.1,
        "--rounds",
        100,
        "--delta",
        1e-6,
        "--total-epsilon",
        8,
    )
    assert_narrow(run(*task).stdout, *task)


def assert_narrow(piped, *arguments):
    """A terminal of 80 columns shows every word and every number of what a pipe gets."""
    whole = {
        cell for line in piped.splitlines()[1:] for cell in line.split("\t") if cell
    }
    shown = re.sub(
        r"\x1b\[[0-9;]*m",
        "",
        run(*arguments, env={"FORCE_COLOR": "1", "COLUMNS": "80"}).stdout,
    )
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert {cell for cell in whole if not cell[0].isalpha()} <= set(shown.split())
    assert all(word in shown.split() for cell in whole for word in cell.split())


TASK = ("--dim", 9, "--epsilon", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("unknown",), "No such command"),
        (("encode",), "Missing argument"),
        (("campaign", "create"), "Missing argument"),
        (("--unknown",), "No such option"),
        (("spec", "--dim", "x"), "Invalid value"),
        (("spec", "--dim", 9), "pass --epsilon"),
        (("spec", "--dim", 9, "--epsilon", "nan"), "error: --epsilon must be"),
        (("spec", *TASK, "--bits", 99), "error: --bits must be"),
        (
            ("spec", *TASK, "--set", "channel=metricaware"),
            "did you mean 'metric-aware'?",
        ),
        (("spec", *TASK, "--name", "framunit"), "did you mean 'frameunit'?"),
        (
            ("spec", *TASK, "--name", "privunit", "--set", "spilt=1"),
            "no option 'spilt'",
        ),
        (("spec", *TASK, "--set", "clip=2"), "--set clip: use --clip"),
        (("spec", *TASK, "--set", "k"), "--set must be ARGUMENT=VALUE"),
        (("compare", "--dim", 9, "--epsilon", -1), "--epsilon must be"),
        (("compare", *TASK, "--plot", "x.foo"), "must end in .png, .svg"),
        (("plan", *TASK, "--target-error", -1), "--target-error must be"),
        (
            ("plan", *TASK, "--clients", 9, "--target-error", 1e-3),
            "--target-error must be at least",
        ),
        (
            ("plan", *TASK, "--clients", 9, "--trust", "shufler"),
            "did you mean 'shuffler'?",
        ),
        (
            ("account", "--epsilon", 1, "--rounds", 9, "--total-epsilon", -1),
            "--total-epsilon must be",
        ),
        (("inspect", "none.json"), "none.json: No such file"),
        (("audit", "verify", "none.json"), "none.json: No such file"),
        (("account", "--ledger", "none.jsonl"), "none.jsonl"),
        (
            ("plan", "--dim", 3, "--epsilon", 1),
            "pass at least two of --epsilon, --clients and --target-error",
        ),
    ],
)
def test_mistakes_in_options_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, code=2)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [[], {}, None, 1])
def test_a_format_may_be_any_json(kind, tmp_path):
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"format": kind}))
    assert "odd.json: " in run("inspect", file, code=1).output
