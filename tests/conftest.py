"""Every statistical test takes its randomness from `seed`, which differs in every run and is printed.

Set SSTQ_TEST_SEED to repeat a run.
"""

import functools
import gc
import os
import secrets
import tempfile
import zlib
from collections.abc import Generator

import hypothesis
import pytest
import typer.testing

# In the environment, so that the workers of a parallel run have the same.
_SEED = int(os.environ.setdefault("SSTQ_TEST_SEED", str(secrets.randbits(32))))
# Solved channels and data sets of this user are neither used nor touched; workers of a parallel run share the folder.
_CACHE = (
    tempfile.TemporaryDirectory(prefix="sstq-tests-")
    if "SSTQ_TEST_CACHE" not in os.environ
    else None
)
os.environ["SSTQ_CACHE"] = os.environ.setdefault(
    "SSTQ_TEST_CACHE", _CACHE.name if _CACHE else ""
)

# Records of what was sent.
os.environ["XDG_STATE_HOME"] = os.path.join(os.environ["SSTQ_CACHE"], "state")

# One thread of BLAS for each worker of a parallel run and each process that tests start: they share the cores, and
# threads that wait for each other spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What only the whole suite tests, and what imports torch, Flower or the service's packages; planning's examples, which
# take a second each.
_NOT_QUICK = (
    "/src/sstq/planning/*",
    "/benchmarks/*",
    "/client/*",
    "/integrations/*",
    "/paper/*",
    "/service/*",
    "/test_browser.py",
    "/test_sending.py",
)

# Files that take long, longest first; those that wait for others are among those that compute.
_LONGEST = (
    "test_flower_deployment.py",
    "test_study_browsers.py",
    "test_javascript.py",
    "test_contract.py",
    "test_dashboard.py",
    "test_browser.py",
    "test_sending.py",
    "test_compiling.py",
    "test_studies.py",
    "test_outbox.py",
    "test_classifier.py",
    "test_study_kill.py",
    "test_shuffled_studies.py",
    "test_own_mechanism.py",
    "test_documentation.py",
    "test_openapi.py",
    "test_once.py",
    "test_theory.py",
    "test_mutants.py",
    "test_installation.py",
    "test_demo.py",
    "test_gone.py",
    "test_kill.py",
    "test_shuffler_kill.py",
    "test_groupunit.py",
    "test_blanket.py",
    "test_typing.py",
    "test_network.py",
    "test_operations.py",
    "test_malicious.py",
    "test_certificate.py",
    "test_exact_privacy.py",
    "test_batches.py",
    "test_folding.py",
    "test_survey_numbers.py",
    "test_words.py",
    "test_shuffler.py",
    "test_optimal.py",
)

# What the reasons of skipped tests begin with if something of the machine is missing.
_LOUD = ("NO BROWSER", "NO C COMPILER", "NO NODE", "NO CURL", "NO SPARK")

# Nothing here is a matter of time: an example that takes longer than usual on a busy machine is no failure.
_PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("patient", _PATIENT, max_examples=25)
hypothesis.settings.register_profile("quick", _PATIENT, max_examples=10)
hypothesis.settings.register_profile("soak", _PATIENT, max_examples=200)
hypothesis.settings.load_profile("patient")

# Hundreds of processes are started by tests; each would compile the sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Typer reads the signatures of all commands again for every call, which takes longer than most calls.
typer.testing._get_command = functools.cache(typer.testing._get_command)


def pytest_report_header() -> str:
    return f"SSTQ_TEST_SEED={_SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A browser or compiler that is not there is said aloud: a letter s among thousands of dots would be overlooked."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    for lack in _LOUD:
        without = [
            reason[2]
            for reason in skipped
            if isinstance(reason, tuple) and lack in reason[2]
        ]
        if without:
            terminalreporter.write_line(
                f"{without[0]} ({len(without)} tests)", yellow=True, bold=True
            )


def is_quick(config: pytest.Config) -> bool:
    return "not slow" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    """The quick lane does not import what it does not run: that alone would take seconds per worker."""
    if config.option.markexpr == "soak":
        hypothesis.settings.load_profile("soak")
    if is_quick(config):
        hypothesis.settings.load_profile("quick")
        rooms = [f"{config.rootpath}*{room}" for room in _NOT_QUICK]
        config.option.ignore_glob = [*(config.option.ignore_glob or ()), *rooms]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: it would look again and again at a million objects that all stay.

    They are frozen, so that it does not look at them while tests run either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter clean up at its end; extension modules complain otherwise."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[
    None, list[pytest.Collector], list[pytest.Collector]
]:
    """Tests have no examples in docstrings; looking for them would import every helper in every worker."""
    return [found for found in (yield) if type(found) is pytest.Module]


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """One worker more than cores: slow tests that wait for a server, a database or a browser leave a core idle."""
    return (yield) + (not is_quick(config))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Files that take longest come first: no worker is left with one when the others are done.

    Property tests run in every lane: 10 examples in the quick one, 25 in the whole suite, 200 in `make soak`.
    """
    for item in items:
        if config.option.markexpr == "soak" and hypothesis.is_hypothesis_test(
            getattr(item, "obj", None)
        ):
            item.add_marker(pytest.mark.soak)
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, different in every run."""
    return _SEED ^ zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def remembered_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each public stream once, for tests that take the same clients again for every vector."""
    from sstq.randomness import streams

    monkeypatch.setattr(streams, "words", functools.cache(streams.words))
