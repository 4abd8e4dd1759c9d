"""A ledger never spends too much, never forgets, and never begins anew by itself."""

import fcntl
import hashlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
import threading
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from paper.baselines import CSGM, Clean
from sstq.accounting import (
    BudgetExhausted,
    Ledger,
    LedgerDamaged,
    LedgerError,
    RoundAlreadySpent,
    ledger_price,
    price,
)
from sstq.accounting.ledger import check_local
from tests.patience import PATIENCE


@pytest.fixture
def path(tmp_path):
    return tmp_path / "client.ledger"


def lock_of(path):
    return path.with_name(f"{path.name}.lock")


# Spending


def test_spending_adds_up(path):
    ledger = Ledger(path, epsilon=2.0)
    assert (ledger.spent, ledger.remaining, ledger.entries) == (0.0, 2.0, ())
    entry = ledger.spend(0.75, "a")
    ledger.spend(1, 2)
    assert (ledger.spent, ledger.remaining) == (1.75, 0.25)
    assert [(e.round_id, e.epsilon) for e in ledger.entries] == [
        ("a", 0.75),
        ("2", 1.0),
    ]
    assert ledger.entries[0] == entry
    assert ledger.path == path


def test_overspending_is_refused_and_changes_nothing(path):
    ledger = Ledger(path, epsilon=2.0)
    ledger.spend(1.5, "a")
    before = path.read_bytes()
    with pytest.raises(
        BudgetExhausted,
        match=r"epsilon = 0.75 is more than is left: 0.5 of 2.0 \(1.5 is spent\)",
    ):
        ledger.spend(0.75, "b")
    assert path.read_bytes() == before
    ledger.spend(0.5, "b")  # smaller rounds go on
    assert ledger.remaining == 0
    assert issubclass(BudgetExhausted, ValueError)


def test_a_round_can_be_spent_once(path):
    ledger = Ledger(path, epsilon=2.0)
    ledger.spend(0.5, 7)
    before = path.read_bytes()
    for again in (7, "7"):
        with pytest.raises(RoundAlreadySpent, match="round '7' was already spent"):
            ledger.spend(0.5, again)
    assert path.read_bytes() == before


def test_the_cap_of_a_round(path):
    ledger = Ledger(path, epsilon=2.0, round_cap=0.5)
    with pytest.raises(
        BudgetExhausted, match=r"epsilon must be at most round_cap = 0.5, got 0.6"
    ):
        ledger.spend(0.6, "a")
    assert ledger.entries == ()
    assert ledger.rounds_left(0.6) == 0
    assert ledger.rounds_left(0.5) == 4
    ledger.spend(0.5, "a")


def test_the_sum_is_that_of_the_doubles_and_not_a_sum_in_doubles(path):
    """Ten times the double 0.1, which is a little above a tenth, is more than 1; added up in doubles it is less."""
    ledger = Ledger(path, epsilon=1.0)
    for name in range(9):
        ledger.spend(0.1, name)
        spent = (name + 1) * Fraction(0.1)
        left = 1 - (name + 1) * Fraction(0.1)
        assert (
            Fraction(math.nextafter(ledger.spent, 0)) < spent <= Fraction(ledger.spent)
        )
        assert (
            Fraction(ledger.remaining)
            <= left
            < Fraction(math.nextafter(ledger.remaining, 1))
        )
    assert ledger.rounds_left(0.1) == 0
    with pytest.raises(BudgetExhausted):
        ledger.spend(0.1, "the tenth")


@given(st.lists(st.floats(1e-9, 3), min_size=1, max_size=12), st.floats(0.1, 10))
def test_the_sum_never_drifts_over_the_total(tmp_path_factory, epsilons, total):
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "l", epsilon=total)
    exact = Fraction(0)
    for name, epsilon in enumerate(epsilons):
        fits = exact + Fraction(epsilon) <= Fraction(total)
        assert (ledger.rounds_left(epsilon) > 0) == fits
        if fits:
            ledger.spend(epsilon, name)
            exact += Fraction(epsilon)
        else:
            with pytest.raises(BudgetExhausted):
                ledger.spend(epsilon, name)
        assert Fraction(ledger.spent) >= exact
        assert Fraction(ledger.remaining) <= Fraction(total) - exact


@pytest.mark.parametrize(
    ("epsilon", "round_id", "message"),
    [
        *(
            (epsilon, "a", "epsilon must be a number")
            for epsilon in (0.0, math.nan, True, "1")
        ),
        *(
            (0.5, name, "round_id must be an integer or 1 to 256 characters")
            for name in ("", "x" * 257, None, True)
        ),
    ],
)
def test_bad_rounds_are_refused(path, epsilon, round_id, message):
    ledger = Ledger(path, epsilon=1.0)
    with pytest.raises(ValueError, match=message):
        ledger.spend(epsilon, round_id)
    assert ledger.entries == ()


@pytest.mark.parametrize("round_id", ['"}\n{"', "\ud800", "x" * 256, -5])
def test_any_other_name_of_a_round_comes_back(path, round_id):
    Ledger(path, epsilon=1.0).spend(0.5, round_id)
    assert Ledger(path).entries[0].round_id == str(round_id)


# Opening


def test_a_ledger_is_opened_with_its_own_terms(path):
    Ledger(path, epsilon=2.0, round_cap=1.0).spend(0.5, "a")
    ledger = Ledger(path)
    assert (ledger.epsilon, ledger.round_cap) == (2.0, 1.0)
    ledger.spend(0.5, "b")
    assert len(Ledger(path, epsilon=2, round_cap=1).entries) == 2


@pytest.mark.parametrize(
    "terms", [{"epsilon": 3.0}, {"epsilon": 2.0, "round_cap": 1.0}]
)
def test_other_terms_are_refused(path, terms):
    Ledger(path, epsilon=2.0)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="the ledger has other terms"):
        Ledger(path, **terms)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a number"),
        ({"epsilon": 1.0, "round_cap": 0.0}, "round_cap must be a number"),
        ({"round_cap": 1.0}, "epsilon must be given"),
    ],
)
def test_bad_terms_make_no_file(path, terms, message):
    with pytest.raises(ValueError, match=message):
        Ledger(path, **terms)
    assert not path.exists()


def test_a_missing_ledger_is_not_made_by_looking(path):
    with pytest.raises(FileNotFoundError):
        Ledger(path)
    with pytest.raises(FileNotFoundError):
        Ledger(path.parent / "no" / "folder", epsilon=1.0)
    assert list(path.parent.iterdir()) == []


def test_files_are_private(path):
    old = os.umask(0)
    try:
        Ledger(path, epsilon=1.0).spend(0.5, "a")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(lock_of(path).stat().st_mode) == 0o600


def test_a_link_has_the_same_lock(path):
    ledger = Ledger(path, epsilon=1.0)
    link = path.with_name("link")
    link.symlink_to(path)
    Ledger(link).spend(0.5, "a")
    assert link.is_symlink()
    assert len(ledger.entries) == 1
    assert not lock_of(link).exists()


def test_a_hard_link_is_no_second_budget(path):
    ledger = Ledger(path, epsilon=1.0)
    ledger.spend(0.5, "a")
    other = path.with_name("other")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(LedgerDamaged, match="has another name, a hard link"):
            Ledger(name).spend(0.25, "b")
    other.unlink()
    ledger.spend(0.25, "b")
    assert ledger.spent == 0.75


# Damage


def test_every_truncation_and_every_flipped_byte_is_noticed(path):
    ledger = Ledger(path, epsilon=2.0, round_cap=1.0)
    ledger.spend(0.25, "a")
    ledger.spend(0.25, "b")
    data = path.read_bytes()
    damaged = [data[:length] for length in range(len(data))]
    damaged += [
        data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in range(len(data))
    ]
    lines = data.splitlines(keepends=True)
    damaged += [
        b"".join(lines[:-2] + lines[-1:]),
        b"".join([lines[0], lines[-1]]),
        data + b"\n",
        data + data,
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(LedgerDamaged):
            Ledger(path)
        assert path.read_bytes() == content
    # What every way in does with damage is the same.
    path.write_bytes(data[:-5])
    for use in (
        lambda: ledger.spend(0.25, "c"),
        lambda: ledger.spent,
        lambda: ledger.entries,
        lambda: Ledger(path, epsilon=2.0, round_cap=1.0),
    ):
        with pytest.raises(LedgerDamaged, match=str(path)):
            use()
    assert path.read_bytes() == data[:-5]


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 100, b'{"format": "sstq-mechanism"}\n']
)
def test_a_foreign_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="not a ledger" if content else "empty"):
        Ledger(path, epsilon=1.0)
    assert path.read_bytes() == content


def rewritten(path, change):
    """Change the lines of a ledger and give it the right checksum again."""
    lines = [json.loads(line) for line in path.read_text().splitlines()][:-1]
    change(lines)
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    last = {"entries": len(lines) - 1, "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(body + json.dumps(last).encode() + b"\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[0].update(version=1),
        lambda lines: lines[0].update(extra=1),
        lambda lines: lines[0].pop("round_cap"),
        lambda lines: lines[0].update(epsilon="8"),
        lambda lines: lines[0].update(epsilon=math.nan),
        lambda lines: lines[1].update(epsilon=-1.0),
        lambda lines: lines[1].update(round_id=""),
        lambda lines: lines[1].pop("time"),
        lambda lines: lines.append(lines[1]),
        lambda lines: lines.append([]),
        lambda lines: lines[1].update(epsilon=10**4000),
    ],
)
def test_a_well_formed_lie_is_refused(path, change):
    Ledger(path, epsilon=2.0).spend(0.5, "a")
    rewritten(path, change)
    with pytest.raises(LedgerDamaged):
        Ledger(path)


def test_a_lost_ledger_is_not_a_fresh_budget(path):
    ledger = Ledger(path, epsilon=2.0)
    ledger.spend(0.5, "a")
    path.unlink()
    with pytest.raises(
        LedgerDamaged, match=r"missing, although client.ledger.lock exists"
    ):
        Ledger(path, epsilon=2.0)
    with pytest.raises(LedgerDamaged, match="missing"):
        ledger.spend(0.5, "b")
    assert not path.exists()


def test_a_lost_lock_is_made_again(path):
    ledger = Ledger(path, epsilon=2.0)
    lock_of(path).unlink()
    ledger.spend(0.5, "a")
    path.unlink()
    with pytest.raises(LedgerDamaged):
        Ledger(path, epsilon=2.0)


def test_a_full_disk_spends_nothing(path, monkeypatch):
    ledger = Ledger(path, epsilon=2.0)
    before = path.read_bytes()
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (_ for _ in ()).throw(
            OSError(28, "No space left on device")
        ),
    )
    with pytest.raises(OSError, match="No space left"):
        ledger.spend(0.5, "a")
    monkeypatch.undo()
    assert path.read_bytes() == before
    ledger.spend(0.5, "a")
    assert sorted(item.name for item in path.parent.iterdir()) == [
        "client.ledger",
        "client.ledger.lock",
    ]


def test_an_expense_is_on_the_disk_before_spend_returns(path, monkeypatch):
    ledger = Ledger(path, epsilon=2.0)
    done = []
    fsync = os.fsync
    replace = os.replace

    def watched_fsync(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def watched_replace(source, target):
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    ledger.spend(0.5, "a")
    assert done == ["file", "rename", "folder"]


def test_that_there_was_a_ledger_is_on_the_disk_before_it_opens(path, monkeypatch):
    """The lock's mark, by which a lost ledger is told from a new one, is synced as well."""
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (
            synced.append(os.fstat(descriptor).st_ino) or fsync(descriptor)
        ),
    )
    Ledger(path, epsilon=2.0)
    assert lock_of(path).stat().st_ino in synced
    assert lock_of(path).read_bytes()


# Several at once


def test_threads_share_a_ledger(path):
    Ledger(path, epsilon=10.0)
    refused = []

    def work(name):
        ledger = Ledger(path, epsilon=10.0)
        for index in range(8):
            try:
                ledger.spend(0.5, f"{name}.{index}")
            except BudgetExhausted:
                refused.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Ledger(path).spent == 10.0
    assert len(refused) == 32 - 20


def test_a_lock_that_is_held_is_waited_for(path):
    ledger = Ledger(path, epsilon=1.0)
    thread = threading.Thread(target=ledger.spend, args=(0.5, "a"))
    with open(lock_of(path), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert ledger.entries == ()  # reading does not wait
    thread.join(PATIENCE)
    assert len(ledger.entries) == 1


# A process that forks while one of its threads is in the middle of spending. The child waits for the end of its input.
FORKER = """
import os, signal, sys, threading
from sstq.accounting import Ledger

path, mode = sys.argv[1:]
signal.alarm(300)  # only against hanging for ever
ledger = Ledger(path, epsilon=10.0)
inside, go_on, replace = threading.Event(), threading.Event(), os.replace


def slow_replace(*names):
    inside.set()
    go_on.wait()
    replace(*names)


os.replace = slow_replace
thread = threading.Thread(target=ledger.spend, args=(1.0, "parent"))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(300)
    os.replace = replace
    if mode == "child spends":
        ledger.spend(1.0, "child")
    else:
        sys.stdin.read()
    os._exit(0)
if mode == "parent is killed":
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "child spends":
    thread.join(0.2)
go_on.set()
thread.join()
ledger.spend(1.0, "again")
print("spent", flush=True)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["child waits", "child spends", "parent is killed"])
def test_a_forked_child_does_not_hold_the_lock(path, mode):
    command = [sys.executable, "-W", "ignore", "-c", FORKER, str(path), mode]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        if mode == "parent is killed":
            assert process.wait(PATIENCE) == -signal.SIGKILL
            thread = threading.Thread(
                target=Ledger(path).spend, args=(1.0, "other"), daemon=True
            )
            thread.start()
            thread.join(PATIENCE)
            assert not thread.is_alive()
        else:
            assert process.stdout.readline() == "spent\n"
    finally:
        process.stdin.close()
        process.stdout.close()
    process.wait(PATIENCE)
    expected = {
        "child waits": {"parent", "again"},
        "child spends": {"parent", "again", "child"},
    }
    assert {entry.round_id for entry in Ledger(path).entries} == expected.get(
        mode, {"other"}
    )


# Killed

# A process that forks spenders and has each of them killed. What a spender was told is spent it writes to a pipe; the
# ledger must then have all of that, and at most one round more: the one it was killed in.
KILLER = """
import os, signal, sys
from sstq.accounting import Ledger

path = sys.argv[1]
NAMES = ["open", "close", "fsync", "replace", "fstat", "pwrite", "unlink"]


def die_at(call, after):
    '''Kill this process at its n-th call of the system that may matter, before or after it.'''
    count = 0
    def watch(function):
        def watched(*arguments, **options):
            nonlocal count
            count += 1
            if count == call and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return function(*arguments, **options)
            finally:
                if count == call:
                    os.kill(os.getpid(), signal.SIGKILL)
        return watched
    for name in NAMES:
        setattr(os, name, watch(getattr(os, name)))


def spender(number, pipe):
    die_at((number + 1) // 2, number % 2)
    ledger = Ledger(path, epsilon=100000.0)
    for index in range(2):
        ledger.spend(0.5, f"{number}.{index}")
        os.write(pipe, b"%d.%d " % (number, index))
    os._exit(0)


told, killed, number, status = set(), 0, 0, -1
while status != 0:
    number += 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        spender(number, writer)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    with open(reader) as file:
        told |= set(file.read().split())
    killed += os.WIFSIGNALED(status)
    assert status == 0 or os.WIFSIGNALED(status)
    entries = Ledger(path).entries if os.path.exists(path) else ()
    spent = {entry.round_id for entry in entries}
    assert told <= spent, (number, told - spent)
    assert len(spent - told) <= killed, (number, spent - told)
Ledger(path, epsilon=100000.0).spend(0.5, "last")
print(killed, len(os.listdir(os.path.dirname(path))))
"""


@pytest.mark.slow
def test_kill_minus_nine_at_any_point(path):
    command = [sys.executable, "-W", "ignore", "-c", KILLER, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    killed, files = map(int, done.stdout.split())
    assert killed >= 30
    # At the end there are the ledger and its lock alone, whatever the killed left behind.
    assert files == 2


# Prices


# Agrees on less than its numbers give away.
LEAKING = SimpleNamespace(epsilon=2.0, delta=0.0, messages=1, privacy_loss=lambda: 2.5)


def test_the_price_is_what_was_agreed_or_more():
    for name in ("frameunit", "sstq", "privunitg"):
        assert price(sstq.mechanism(name, dim=6, epsilon=2.0)) == 2.0
    assert price(LEAKING) == ledger_price(LEAKING) == 2.5
    for messages in range(2, 30):
        whole = price(
            SimpleNamespace(epsilon=0.1, messages=messages, privacy_loss=lambda: 0.1)
        )
        assert (
            Fraction(math.nextafter(whole, 0))
            < messages * Fraction(0.1)
            <= Fraction(whole)
        )
    assert price(Clean(dim=6)) == float("inf")


@pytest.mark.parametrize(
    "mechanism", [Clean(dim=6), CSGM(dim=6, epsilon=1.0, clients=10)]
)
def test_what_is_not_locally_private_is_refused(mechanism):
    with pytest.raises(
        ValueError,
        match=f"must be locally private, got {mechanism.name}; choose another",
    ):
        check_local(mechanism)
    assert check_local(sstq.FrameUnit(6, 1.0)).epsilon == 1.0


@pytest.mark.parametrize("name", ["csgm", "l2-csgm"])
def test_a_delta_has_a_price_but_no_ledger(name):
    mechanism = sstq.mechanism(name, dim=6, epsilon=1.0, clients=10, delta=1e-3)
    assert price(mechanism) == 1.0
    with pytest.raises(
        ValueError,
        match=rf"pure ε, but mechanism '{name}' is \(ε, δ\)-private with delta = 0.001",
    ):
        ledger_price(mechanism)
