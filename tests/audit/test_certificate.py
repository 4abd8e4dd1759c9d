"""Certificates, and the script that verifies them without sstq."""

import functools
import json
import math
import runpy
import subprocess
import sys
import tokenize
from contextlib import redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest

import sstq
from sstq.audit import certify, exact_audit, verify
from sstq.exactness import TOTAL, log_interval
from sstq.scalar.channels import flat_channel_of_size
from sstq.scalar.laws import Law
from tests.contract.cases import EXACT, build

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_certificate.py"
KINDS = {
    "flat": "sstq",
    "table": "sstq/metric-aware",
    "two-level": "frameunit",
    "sides": "sqkr/dense",
}


@dataclass
class Said:
    returncode: int
    stdout: str
    stderr: str


def check_alone(folder, certificate, mechanism=None):
    """What the script says, in this process: hundreds of certificates would take as many processes."""
    paths = [folder / "certificate.json"]
    paths[0].write_text(certificate)
    if mechanism is not None:
        paths.append(folder / "mechanism.json")
        paths[1].write_text(mechanism.to_json() + "\n")
    hook = sys.excepthook
    arguments = sys.argv
    said = StringIO()
    sys.argv = ["verify", *map(str, paths)]
    try:
        with redirect_stdout(said):
            runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as error:
        return Said(1, said.getvalue(), str(error))
    except Exception as error:  # the script's hook says this
        return Said(1, said.getvalue(), f"INVALID: {error!r}")
    finally:
        sys.excepthook = hook
        sys.argv = arguments
    return Said(0, said.getvalue(), "")


def assert_invalid(folder, certificate, mechanism=None):
    """The script refuses the certificate; return why."""
    done = check_alone(folder, certificate, mechanism)
    assert done.returncode != 0
    assert "valid" not in done.stdout
    return done.stderr


def test_the_script_is_short_and_alone():
    lines = SCRIPT.read_text().splitlines()
    words = 0
    inside = 0  # f-strings, which are several tokens from Python 3.12 on
    with tokenize.open(SCRIPT) as file:
        for token in tokenize.generate_tokens(file.readline):
            words += inside == 0 and bool(token.string.strip())
            kind = tokenize.tok_name[token.type]
            inside += (kind == "FSTRING_START") - (kind == "FSTRING_END")
    assert words <= 1300
    imported = {
        line.split()[1] for line in lines if line.startswith(("import ", "from "))
    }
    assert imported <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("case", EXACT)
def test_certificates_of_all_exact_mechanisms_are_valid(case, tmp_path):
    mechanism = build(case)
    certificate = certify(mechanism)
    assert verify(certificate, mechanism).holds
    done = check_alone(tmp_path, certificate, mechanism)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("valid: one message spends an epsilon in")
    assert (
        f"a person sends {mechanism.messages} of them, without a shuffler at most {mechanism.bundle_epsilon}"
        in done.stdout
    )
    # All in a few thousand characters, however many outcomes there are.
    assert len(certificate) < 100 * (30 + mechanism.law().cases * 8)


def by_hand(law, epsilon, interval):
    """A certificate of these integers, which no mechanism needs to have."""
    ratio = [*map(str, law.ratio().as_integer_ratio())]
    fields = {
        "format": "sstq-certificate",
        "version": 3,
        "mechanism": "theirs",
        "digest": "0" * 64,
    }
    fields |= {"epsilon": epsilon, "messages": 1, "total": epsilon, "decides": "code"}
    return fields | {"law": law.to_dict(), "ratio": ratio, "interval": interval}


def test_the_script_bounds_what_it_leaves_out_of_the_exponential(tmp_path):
    """At ε = 86 terms 160 and later are about 1e-11 of the sum: a lower end above the logarithm by less is refused."""
    law = Law("two-level", TOTAL, [(1, TOTAL - 1)])
    lower, _ = log_interval(law.ratio())
    wide = [f"{lower - Decimal('1e-9'):f}", f"{lower + Decimal('1e-9'):f}"]
    assert check_alone(tmp_path, json.dumps(by_hand(law, 86.0, wide))).returncode == 0
    too_high = [f"{lower + Decimal('1e-13'):f}", wide[1]]
    assert "a wrong interval" in assert_invalid(
        tmp_path, json.dumps(by_hand(law, 86.0, too_high))
    )


def test_the_script_compares_the_ratio_with_e_to_the_epsilon(tmp_path):
    """Alone, of a total that fits: 4 doubles below the loss are too little."""
    law = build("sstq").law()
    loss = build("sstq").privacy_loss()
    ends = [f"{end:f}" for end in log_interval(law.ratio())]
    assert check_alone(tmp_path, json.dumps(by_hand(law, loss, ends))).returncode == 0
    less = loss - 4 * math.ulp(loss)
    assert "above e^epsilon" in assert_invalid(
        tmp_path, json.dumps(by_hand(law, less, ends))
    )


@pytest.mark.parametrize("size", [2, 3, 5, 2**30])
def test_the_script_counts_the_tokens_of_a_flat_law(size, tmp_path):
    """Alone, without a mechanism's file: the weights of `size` tokens sum to 2^62."""
    data = json.loads(certificate_of("sstq"))
    assert data["law"]["size"] == 4
    data["law"]["size"] = size
    assert "do not sum to 2^62" in assert_invalid(tmp_path, json.dumps(data))


@functools.cache
def certificate_of(case):
    return certify(build(case))


def changed(case, change):
    data = json.loads(certificate_of(case))
    change(data)
    return json.dumps(data)


def bump(data, by=1):
    data["law"]["weights"][0][0] = str(int(data["law"]["weights"][0][0]) + by)


TAMPERED = {
    "a weight": bump,
    "weights that sum": lambda data: data["law"].update(
        weights=[[2**62 - 2 * 3, 2]], kind="flat", size=4
    ),
    "a smaller epsilon": lambda data: data.update(epsilon=1.999),
    "a negative epsilon": lambda data: data.update(epsilon=-2000.0),
    "the ratio": lambda data: data["ratio"].reverse(),
    "a lower end too high": lambda data: data["interval"].__setitem__(
        0, data["interval"][1]
    ),
    "an upper end too low": lambda data: data["interval"].__setitem__(
        1, data["interval"][0]
    ),
    "floats": lambda data: data["law"].update(
        weights=[[float(w) for w in row] for row in data["law"]["weights"]]
    ),
    "no weights": lambda data: data["law"].update(weights=[]),
    "the size": lambda data: data["law"].update(size=-data["law"]["size"]),
    "a sign": lambda data: data["law"]["weights"][0].__setitem__(
        0, "-" + data["law"]["weights"][0][0]
    ),
}


HOSTILE = {
    "a huge exponent": lambda data: data.update(interval=["0", "1e10000000"]),
    "a tiny exponent": lambda data: data.update(interval=["1e-10000000", "99"]),
    "many digits": lambda data: data.update(
        interval=["0." + 100_000 * "0" + "1", "98"]
    ),
    "4,000 digits of epsilon": lambda data: data.update(epsilon=10**4000),
    "true for epsilon": lambda data: data.update(epsilon=True),
    "true for a weight": lambda data: data["law"]["weights"][0].__setitem__(0, True),
    "a side beyond all words": lambda data: data["law"].update(
        kind="two-level", size=10**4000, weights=[[1, 1]]
    ),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_hostile_certificates_are_refused_at_once(change, tmp_path):
    certificate = changed("sstq", HOSTILE[change])
    with pytest.raises(ValueError, match=r".+"):
        verify(certificate)
    assert_invalid(tmp_path, certificate)


def test_a_name_twice_makes_no_certificate(tmp_path):
    certificate = certificate_of("sstq").replace(
        '"epsilon"', '"epsilon": 1e-3,\n "epsilon"', 1
    )
    with pytest.raises(ValueError, match="the name 'epsilon' occurs twice"):
        verify(certificate)
    assert assert_invalid(tmp_path, certificate).startswith("INVALID")


@pytest.mark.parametrize("interval", [["0", "98.9"], ["1.5", "2.5"]])
def test_a_wider_interval_is_one(interval, tmp_path):
    certificate = changed("sstq", lambda data: data.update(interval=interval))
    assert verify(certificate).holds
    assert check_alone(tmp_path, certificate).returncode == 0


@pytest.mark.parametrize("change", TAMPERED)
@pytest.mark.parametrize("kind", KINDS)
def test_tampered_certificates_fail(kind, change, tmp_path):
    certificate = changed(KINDS[kind], TAMPERED[change])
    if kind == "sides" and change == "the size":
        certificate = changed(KINDS[kind], lambda data: data["law"].update(size=0.5))
    with pytest.raises(ValueError, match=r".+"):
        verify(certificate)
    # A negative number of rows means nothing to the script where it does not use it; the mechanism's file settles it.
    for mechanism in (build(KINDS[kind]), *([None] if change in FOUND_ALONE else [])):
        assert_invalid(tmp_path, certificate, mechanism)


FOUND_ALONE = ("a weight", "a smaller epsilon", "the ratio", "floats")


@pytest.mark.parametrize("kind", KINDS)
def test_certificates_belong_to_one_mechanism(kind, tmp_path):
    case = KINDS[kind]
    certificate = certificate_of(case)
    for other in (build(case, clip=0.75), build("vqsgd")):
        with pytest.raises(ValueError, match="for another mechanism"):
            verify(certificate, other)
        assert "for another mechanism" in assert_invalid(tmp_path, certificate, other)


def test_valid_integers_of_another_channel_do_not_pass_for_the_mechanism(tmp_path):
    weaker = json.loads(certify(build("sstq", epsilon=1.0)))
    forged = json.dumps(
        weaker | {"digest": build("sstq").digest(), "epsilon": 2.0, "total": 2.0}
    )
    assert verify(forged).holds
    with pytest.raises(ValueError, match="for another mechanism"):
        verify(forged, build("sstq"))
    assert_invalid(tmp_path, forged, build("sstq"))


def test_what_is_not_private_gets_no_certificate():
    overspent = build("sstq")
    object.__setattr__(overspent, "channel", flat_channel_of_size(4, 2.1))
    with pytest.raises(ValueError, match="more than its epsilon"):
        certify(overspent)


def test_a_person_spends_what_all_messages_spend(tmp_path):
    """Of 16 messages of ε = 3 the certificate, the audit and the script say 48, and not 3."""
    mechanism = sstq.FrameUnit(10, 3.0, messages=16, frames=64)
    audit = exact_audit(mechanism)
    certificate = json.loads(certify(mechanism))
    assert (
        audit.messages,
        audit.total,
        certificate["messages"],
        certificate["total"],
    ) == (16, 48.0, 16, 48.0)
    assert (
        "a person sends 16 of them, without a shuffler at most 48.0"
        in check_alone(tmp_path, certify(mechanism), mechanism).stdout
    )
    for change in ({"messages": 1}, {"total": 3.0}, {"messages": 1, "total": 3.0}):
        other = json.dumps(certificate | change)
        with pytest.raises(ValueError, match="certificate"):
            verify(other, mechanism)
        assert_invalid(tmp_path, other, mechanism)


def test_the_script_says_what_it_cannot_check(tmp_path):
    """Of a mechanism that the script does not know, nobody but its author says which field the integers decide."""
    certificate = json.loads(certificate_of("frameunit"))
    assert (
        check_alone(tmp_path, json.dumps(certificate | {"decides": "code"})).returncode
        == 1
    )
    assert "decide" not in check_alone(tmp_path, json.dumps(certificate)).stdout
    said = check_alone(
        tmp_path, json.dumps(certificate | {"mechanism": "theirs", "decides": "row"})
    )
    assert (
        said.returncode,
        "NOT CHECKED: that the integers decide 'row' of 'theirs'" in said.stdout,
    ) == (0, True)


def mutations(data):
    """Every value of a document changed in several ways, as (path, document)."""

    def places(value, path=()):
        yield path
        members = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for name, member in members:
            yield from places(member, (*path, name))

    def changed_values(value):
        yield from (None, True, [], {}, "", -1, 0, 1e308, "x")
        if isinstance(value, str):
            yield from (
                value + "0",
                value[:-1],
                "1" + value,
                value.upper(),
                value + " ",
                [value],
            )
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield from (value + 1, value - 1, -value, 2 * value, value * (1 + 2**-52))
        if isinstance(value, list):
            yield from (value[:-1], value + value, value[::-1])
        if isinstance(value, dict):
            yield from ({**value, "more": 1}, dict(list(value.items())[1:]))

    for path in list(places(data)):
        parent = data
        for name in path[:-1]:
            parent = parent[name]
        for value in changed_values(parent[path[-1]] if path else data):
            copy = json.loads(json.dumps(data))
            if not path:
                yield path, value
                continue
            target = copy
            for name in path[:-1]:
                target = target[name]
            target[path[-1]] = value
            yield path, copy


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["sstq/messages", pytest.param("groupunit/shares", marks=pytest.mark.soak)],
)
def test_every_mutation_is_refused_or_says_the_same(case, tmp_path):
    """With the mechanism's file: only another way to write a number passes, or a wider interval that is still true."""
    mechanism = build(case)
    data = json.loads(certificate_of(case))
    tried = 0
    ratio = Fraction(*map(int, data["ratio"]))
    for path, mutant in mutations(data):
        tried += 1
        if check_alone(tmp_path, json.dumps(mutant), mechanism).returncode:
            continue
        if path[:1] == ("interval",):
            low, high = map(Fraction, mutant["interval"])
            assert low <= Fraction(log_interval(ratio)[0])
            assert Fraction(log_interval(ratio)[1]) <= high
        else:
            assert same_numbers(mutant) == same_numbers(data), path
    assert tried > 150


def same_numbers(value):
    """The document with numbers for decimal strings."""
    if isinstance(value, dict):
        return {name: same_numbers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [same_numbers(member) for member in value]
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def test_the_script_says_how_to_use_it_and_shows_no_traceback(tmp_path):
    def alone(*texts):
        """A process that imports the standard library alone, without assertions."""
        paths = [tmp_path / str(number) for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        command = [sys.executable, "-I", "-S", "-O", SCRIPT, *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert alone().stderr.startswith("usage: ")
    assert (
        "valid: one message"
        in alone(certificate_of("sstq"), build("sstq").to_json()).stdout
    )
    for text in ("{", "[]", "{}", "7"):
        refused = alone(text)
        assert refused.returncode == 1
        assert refused.stderr.startswith("INVALID: ")
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 100_000, '{"format": "sstq-certificate", "version": 1}'],
)
def test_other_files_are_no_certificates(text):
    with pytest.raises(ValueError, match="certificate"):
        verify(text)
