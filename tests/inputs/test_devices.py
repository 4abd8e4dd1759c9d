"""A device never tells by refusing: rows are counted before values are looked at, and every cell is read on its own."""

import contextlib
import datetime

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sstq
from sstq.inputs import LocalReport
from sstq.learning import encode
from sstq.learning.questions import Question
from sstq.mechanisms.answers import answer, encode_files
from sstq.randomness.secret import bit_source
from sstq.studies import Panel
from sstq.studies.questions import Document

PAIRS = sstq.FrameUnit(2, 2.0)
SURVEY = sstq.Survey(
    2.0, {"os": sstq.Choice(["mac", "win"]), "age": sstq.Number(0, 100)}
)
LONG = "x" * 200_000


def read(mechanism, path, **options):
    """What a device reads of a file; as many messages come of it."""
    people = mechanism.input.open(path, answering=True, **options)
    pieces = list(people.pieces())
    rows = [
        mechanism.input.substitute(piece.X, piece.groups, source=bit_source(1))
        for piece in pieces
    ]
    assert (
        sum(map(len, encode_files(mechanism, people, 1, answering=True)))
        == people.count
    )
    return np.concatenate(rows)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"NA,NA\n", [[0, 0]]),  # one person, whose line has no number
        (b"no,answer\n", [[0, 0]]),
        (b"NA,NA\n0.5,0.5\n", [[0, 0], [0.5, 0.5]]),  # no header: missing values
        (b"?,-\n0.5,0.5\n", [[0, 0], [0.5, 0.5]]),
        (b"x,x\n0.5,0.5\n", [[0, 0], [0.5, 0.5]]),
        (b",\n0.5,0.5\n", [[0, 0], [0.5, 0.5]]),
        (b"a,b\n0.5,0.5\n", [[0.5, 0.5]]),  # a header
        (b"a,b\nNA,x\n0.5,0.5\n", [[0, 0], [0.5, 0.5]]),
        (b'a,b\n"0.5,0.5\n0.25,0.5\n', [[0, 0], [0.25, 0.5]]),  # a stray quote
        (b'a,b\n0.5,"0.5\n0.25,0.5\n0.5,0.5"\n', [[0, 0], [0.25, 0.5], [0, 0]]),
        (b'a,b\n"0.5"x,0.5\n0.25,0.5\n', [[0, 0], [0.25, 0.5]]),
        (b"a,b\n\xff,0.5\n0.25,0.5\n", [[0, 0], [0.25, 0.5]]),  # no UTF-8
        (b"a,b\n" + LONG.encode() + b",0.5\n0.25,0.5\n", [[0, 0], [0.25, 0.5]]),
        (b"a,b\n0.5\n1,2,3\n0.25,0.5\n", [[0, 0], [0, 0], [0.25, 0.5]]),
        (b"a,b\n1e400,0.5\n0.25,0.5", [[0, 0], [0.25, 0.5]]),
    ],
)
def test_lines_of_vectors(tmp_path, text, rows):
    (tmp_path / "x.csv").write_bytes(text)
    assert read(PAIRS, tmp_path / "x.csv").tolist() == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"os,age\nmac,40\n,\nwin,30\n", [[0, 40], [2, np.nan], [1, 30]]),
        (b"age;os\n40;mac\nNA;linux\n", [[0, 40], [2, np.nan]]),
        (b'os,age\nma"c,40\nwin,30\n', [[2, 40], [1, 30]]),
        (b'os,age\n"mac,40\nwin,30\n', [[2, 40], [1, 30]]),
        (b'os,age\n"mac"x,40\nwin,30\n', [[2, 40], [1, 30]]),
        # a value of two lines, as it should be
        (b'os,age\n"two\nlines",40\nwin,30\n', [[2, 40], [1, 30]]),
        (b'os,age\n"mac,40\nwin,30\nx","1","2"\n', [[2, 40], [1, 30], [2, np.nan]]),
        (b"os,age\n\xff\xfe,40\nwin,30\n", [[2, 40], [1, 30]]),
        (b"os,age\n" + LONG.encode() + b",40\nwin,30\n", [[2, 40], [1, 30]]),
        (b"os,age\nmac\nwin,30\n", [[2, np.nan], [1, 30]]),
        (b"os,age\nmac,forty\nwin,30\n", [[0, np.nan], [1, 30]]),
        (b"os,age\r\nmac,40\r\nwin,30\r\n", [[0, 40], [1, 30]]),
        (b"os,age\nmac,1" + b"0" * 5000 + b"\nwin,30\n", [[0, 100], [1, 30]]),
    ],
)
def test_lines_of_a_survey(tmp_path, text, rows):
    (tmp_path / "x.csv").write_bytes(text)
    np.testing.assert_array_equal(read(SURVEY, tmp_path / "x.csv"), rows)


def test_an_empty_text_and_an_empty_list_are_answers_in_csv_as_in_tables(tmp_path):
    survey = sstq.Survey(
        2.0,
        {"crash": sstq.Choice(["", "oom"]), "used": sstq.MultiChoice(["a", "b"])},
    )
    table = {
        "crash": ["", "oom", "", "disk", "oom"],
        "used": [[], ["a"], None, ["a", "b"], ["b"]],
    }
    (tmp_path / "x.csv").write_text("crash,used\n,;\noom,a\n,\ndisk,a;b\noom,b;\n")
    rows = survey.input.read(table)
    np.testing.assert_array_equal(read(survey, tmp_path / "x.csv"), rows)
    [piece] = survey.input.open(tmp_path / "x.csv").pieces()
    np.testing.assert_array_equal(survey.input.read(piece.X), rows)


def test_an_empty_line_of_a_single_column_is_a_person(tmp_path):
    alone = sstq.Survey(2.0, {"os": sstq.Choice(["mac", "win"])})
    (tmp_path / "x.csv").write_text("os\nmac\n\nwin\n\n")
    assert read(alone, tmp_path / "x.csv").ravel().tolist() == [0, 2, 1, 2]
    # For their owner there are as many.
    assert alone.input.open(tmp_path / "x.csv").count == 4
    (tmp_path / "y.csv").write_text("3\n\n1\n")
    assert len(read(sstq.Frequencies(4, 2.0), tmp_path / "y.csv")) == 3
    (tmp_path / "z.csv").write_text("os,age\nmac,1\n\nwin,2\n")
    assert len(read(SURVEY, tmp_path / "z.csv")) == 2


FAR = pa.array([10**9, 1], pa.date32())
STRANGE = [
    FAR,
    pa.array([2**62, 1], pa.duration("s")),
    pa.array([1, 2], pa.timestamp("s", tz="Mars/Olympus")),
    pa.array([None, None]),
    pa.array([["a"], None]),
    pa.array([{"a": 1}, None]),
    pa.array([b"\xff", b"mac"]),
    pa.array([True, False]),
]


def of_polars(column):
    """The same table of Polars, unless it refuses the type itself."""
    with contextlib.suppress(polars.exceptions.ComputeError):
        yield polars.DataFrame({"os": polars.from_arrow(column), "age": [30, 40]})


@pytest.mark.parametrize("column", STRANGE, ids=lambda column: str(column.type))
def test_columns_of_any_type(tmp_path, column):
    table = pa.table({"os": column, "age": [30, 40]})
    for held in (table, table.to_batches()[0], *of_polars(column)):
        assert len(answer(SURVEY, held)) == 2
    pq.write_table(table, tmp_path / "x.parquet")
    np.testing.assert_array_equal(
        read(SURVEY, tmp_path / "x.parquet"), [[2, 30], [2, 40]]
    )
    vectors = pa.table({"a": column, "b": [0.5, 0.5]})
    pq.write_table(vectors, tmp_path / "v.parquet")
    assert len(read(PAIRS, tmp_path / "v.parquet", columns=["a", "b"])) == 2
    assert len(answer(PAIRS, vectors)) == 2


def test_good_cells_beside_one_that_cannot_be_read():
    lists = pa.array([[10**9], [1]], pa.list_(pa.date32()))
    survey = sstq.Survey(2.0, {"n": sstq.Number(0, 10), "v": sstq.Vector(2)})
    table = {
        "n": [3, datetime.date.max, Raising()],
        "v": [[0.5, 0.5], Raising(), [Raising(), 1.0]],
    }
    report = LocalReport()
    rows = survey.input.substitute(table, source=bit_source(1), report=report)
    np.testing.assert_array_equal(rows, [[3, 0.5, 0.5], [np.nan, 0, 0], [np.nan, 0, 0]])
    assert (report.unreadable["n"], report.unreadable["v"]) == (2, 2)
    of_polars = polars.from_arrow(pa.table({"m": lists, "c": ["a", "b"]}))
    several = sstq.Survey(
        2.0, {"m": sstq.MultiChoice(["a"]), "c": sstq.Choice(["a", "b"])}
    )
    assert several.input.substitute(of_polars, source=bit_source(1))[
        :, -1
    ].tolist() == [0, 1]


class Raising:
    """An object whose methods raise whatever they like."""

    def __float__(self):
        raise KeyError

    def __len__(self):
        return 2

    def __getitem__(self, _place):
        raise ZeroDivisionError

    def __array__(self, *_, **__):
        raise RecursionError

    def __str__(self):
        raise OverflowError

    __repr__ = __str__


def nested():
    inside = []
    inside.append(inside)
    return inside


OBJECTS = [
    [[1.0, Raising()]],
    [[1.0, nested()]],
    [[1.0, {"a": 1}]],
    [[1.0, None]],
    [[10**400, 1]],
    [["x", 1.0]],
]


@pytest.mark.parametrize("X", OBJECTS, ids=lambda value: type(value[0][-1]).__name__)
def test_lists_of_objects(X):
    assert len(answer(PAIRS, X)) == 1
    assert len(answer(PAIRS, [*X, [0.5, 0.5]])) == 2
    asked = Question("centre", sstq.FrameUnit(2, 3.0))
    assert len(encode(X, None, asked.to_json(), most_epsilon=3.0)) == 1


def test_labels_of_any_kind():
    survey = sstq.Survey(2.0, {"m": sstq.MultiChoice(["a"])})
    held = [["a", Raising()], [Raising()], Raising(), ["a", b"\xff", 1, nested()]]
    rows = survey.input.substitute({"m": held}, source=bit_source(1))
    assert rows.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    asked = Question(
        "classes", sstq.GroupUnit(2, 3.0, groups=2), classes=("cat", "dog")
    )
    for label in (Raising(), None, nested(), {"a": 1}, 10**400):
        labels = np.empty(1, dtype=object)
        labels[0] = label
        assert len(encode([[1.0, 0.0]], labels, asked.to_json(), most_epsilon=3.0)) == 1


def test_what_single_people_hold_is_put_together_whatever_it_is():
    categories = sstq.Frequencies(5, 1.0).input.together([1, np.int64(4), 5, -1, True])
    assert categories.tolist() == [1, 4, -1, -1, -1]
    assert (
        sstq.Frequencies(5, 1.0).input.together([None, "1", 2.0]).tolist() == [-1] * 3
    )
    vectors = sstq.FrameUnit(2, 1.0).input.together([[3, 4], "xy", None, [0.1, np.nan]])
    assert vectors.round(3).tolist() == [[0.6, 0.8], [0, 0], [0, 0], [0, 0]]
    survey = sstq.Survey(1.0, {"os": sstq.Choice(["a", "b"])})
    assert survey.input.together([{"os": "a"}, 7, {}]) == {"os": ["a", None, None]}


VECTOR_ONLY = sstq.Survey(2.0, {"v": sstq.Vector(3)})


def test_every_line_of_a_survey_of_vectors_is_a_person(tmp_path):
    path = tmp_path / "people.csv"
    for lines in (["x", "y"], ["", "x"], ["", "", ""], ["x", "1;2;3"]):
        path.write_text("v,w\n" + "".join(f"{line},1\n" for line in lines))
        assert len(read(VECTOR_ONLY, path)) == len(lines)


def test_a_vector_without_a_number_is_one_persons():
    for held in ([1, 2, 3], [np.nan] * 3, np.full(3, np.nan), [None] * 3, None, "x"):
        assert len(answer(VECTOR_ONLY, {"v": held})) == 1


def test_what_several_people_hold_is_never_taken_for_one_persons():
    asked = Document.from_json(Panel(VECTOR_ONLY, periods=2).question(people=10))
    for wrong in ("x", None):
        values = [{"v": wrong}] * 3
        assert len(asked.encode_each(values)) == 3


def test_objects_that_cannot_be_asked_what_they_are():
    assert len(answer(SURVEY, {"os": RaisingClass()})) == 1
    assert len(answer(VECTOR_ONLY, {"v": RaisingClass()})) == 1
    assert len(answer(sstq.Frequencies(4, 2.0), [RaisingClass()])) == 1
    assert len(answer(PAIRS, [[0.5, 0.5], RaisingClass()])) == 2


class RaisingClass:
    @property
    def __class__(self):
        raise RuntimeError


@pytest.mark.parametrize("scale", [1e-310, 1e-40, 1e38, 1e300])
@pytest.mark.parametrize(
    "name", ["sstq", "frameunit", "sqkr", "vqsgd", "bounds", "survey"]
)
def test_an_application_that_has_numpy_raise(name, scale, tmp_path):
    people = np.full((2, 3), scale)
    if name == "survey":
        asked = {"n": sstq.Number(0, 110), "c": sstq.Choice(["a"])}
        mechanism = sstq.Survey(2.0, asked | {"by": sstq.By("c", "n")})
        held = {"n": list(people[:, 0]), "c": ["a", "a"]}
    elif name == "bounds":
        mechanism = sstq.FrameUnit(3, 2.0, bounds=[(-9, 9)] * 3)
        held = people
    else:
        mechanism = sstq.mechanism(name, dim=3, epsilon=2.0)
        held = people
    answer(mechanism, held)  # what does not depend on people is computed once
    path = tmp_path / "people.csv"
    lines = "".join(f"{scale},a,{scale}\n" for _ in people)
    path.write_text(f"n,c,x\n{lines}" if name == "survey" else lines.replace("a", "0"))
    with np.errstate(all="raise"):
        assert len(answer(mechanism, held)) == 2
        people = mechanism.input.open(path, answering=True)
        assert sum(map(len, encode_files(mechanism, people, answering=True))) == 2


def test_an_application_that_has_numpy_raise_hears_what_people_hold():
    document = Panel(sstq.FrameUnit(2, 18.0), periods=2).question(people=10)
    asked = Document.from_json(document)
    values = [[1.0, 5e-324]] * 20
    with np.errstate(all="raise"):
        told = asked.encode_each(values, 1).to_bytes()
    assert told == asked.encode_each(values, 1).to_bytes()
