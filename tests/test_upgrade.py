"""`make upgrade` changes versions and nothing else in constraints.txt."""

from tests.upgrade import CONSTRAINTS, HELD, pins, upgraded


def test_versions_change_and_nothing_else():
    text = "# why\ntorch==2.13.0\nTyper==0.20.1\nnobody-asks==1.0\n"
    assert (
        upgraded(text, {"typer": "0.29.1", "torch": "9.9"})
        == "# why\ntorch==2.13.0\nTyper==0.29.1\nnobody-asks==1.0\n"
    )


def test_the_file_has_what_is_held():
    assert {*HELD} <= pins(CONSTRAINTS.read_text()).keys()
    assert upgraded(CONSTRAINTS.read_text(), {}) == CONSTRAINTS.read_text()
