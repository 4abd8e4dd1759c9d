"""One way to read JSON, and every reader takes it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from sstq.files.strict_json import read_json
from sstq.mechanisms.registry import from_document
from tests.contract.cases import CASES, build

numbers = (
    st.none()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    numbers,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values)
def test_json_comes_back(value):
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(
    values,
    st.booleans(),
    st.sampled_from(['{"a": %s}', "[1, %s]", "%s", '{"a": [{"b": %s}]}']),
)
def test_booleans_are_refused_wherever_they_are(value, boolean, place):
    text = json.dumps([value, json.loads(place % json.dumps(boolean))])
    with pytest.raises(ValueError, match="does not occur in this format"):
        read_json(text)
    assert read_json(text, booleans=True)[0] == value


@given(st.dictionaries(st.text(), values, min_size=1), st.data())
def test_a_name_twice_is_refused(value, data):
    name = data.draw(st.sampled_from(sorted(value)))
    text = json.dumps(value)[:-1] + f", {json.dumps(name)}: {json.dumps(value[name])}}}"
    with pytest.raises(ValueError, match="occurs twice"):
        read_json(f"[{text}]")


@pytest.mark.parametrize(
    "text",
    ["NaN", "[-Infinity]", "[" * 100_000, '{"a":' * 100_000, "", "{", b"\xff", None, 7],
)
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


def again(text):
    """An object with its first name once more, at the end."""
    name = next(iter(json.loads(text)))
    return (
        text.rstrip()[:-1]
        + f",{json.dumps(name)}:{json.dumps(json.loads(text)[name])}}}"
    )


def with_true(value):
    """The same, with true for every 1, alone or in lists."""
    if isinstance(value, dict):
        return {name: with_true(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_true(member) for member in value]
    return True if value == 1 else value


@pytest.mark.parametrize("case", ["sstq/metric-aware", "frameunit", "csgm"])
def test_mechanisms_have_one_meaning(case):
    text = build(case, clip=1.0).to_json()
    for lie in (again(text), json.dumps(with_true(json.loads(text)))):
        with pytest.raises(ValueError, match=r"occurs twice|true does not occur"):
            sstq.from_json(lie)


@pytest.mark.parametrize("case", ["sstq/metric-aware", "frameunit", "frequencies"])
def test_values_that_commands_have_read_are_no_booleans(case):
    """Commands read campaigns, which have booleans, and pass on the mechanism in them."""
    options = {} if case == "frequencies" else {"clip": 1.0}
    document = json.loads(build(case, **options).to_json())
    assert from_document(document) == build(case, **options)
    lies = {name: with_true(value) for name, value in document.items()}
    changed = [name for name in lies if lies[name] is True]
    assert changed
    for name in changed:
        with pytest.raises(ValueError, match=name):
            from_document(document | {name: True})


def test_a_weight_of_true_is_refused():
    data = json.loads(build("sstq/metric-aware").to_json())
    row = data["weights"][0]
    one = "1"
    rest = str(int(row[0]) + int(row[1]) - 1)
    texts = (
        json.dumps(data | {"weights": [[first, rest, *row[2:]], *data["weights"][1:]]})
        for first in (one, 1, True)
    )
    for text, match in zip(
        texts, ("not 2.0-LDP", "decimal string", "true does not occur"), strict=True
    ):
        with pytest.raises(ValueError, match=match):
            sstq.from_json(text)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "frame_size" not in CASES[case]]
)
def test_default_frames_are_within_the_bounds_of_cost(case):
    mechanism = build(case, 3000)
    assert sstq.from_json(mechanism.to_json()) == mechanism


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "frameunit",
            {"frame_size": 1 << 26},
            "frame_size must be at most 2048, got 67108864",
        ),
        ("sstq", {"frame_size": 4096}, "frame_size must be at most 2048"),
        (
            "csgm",
            {"clients": 10, "frame_size": 4096},
            "frame_size must be at most 2048",
        ),
        (
            "sqkr",
            {"steps": 129},
            "steps must be at most 128, got 129; pass max_steps= to allow more",
        ),
    ],
)
def test_json_that_costs_too_much_is_refused_unless_allowed(name, options, says):
    costly = sstq.mechanism(name, dim=3, epsilon=2.0, **options)
    with pytest.raises(ValueError, match=says):
        sstq.from_json(costly.to_json())
    assert (
        sstq.from_json(costly.to_json(), max_frame_size=1 << 26, max_steps=129)
        == costly
    )
