import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sstq
from sstq.mechanisms import mechanism_class

# In a process of its own: nothing has been imported yet.
PROGRAM = """
import sys
import sstq
assert "numpy" not in sys.modules
assert "numba" not in sys.modules and "scipy" not in sys.modules
assert sstq.aggregation.Estimate is sstq.Estimate
assert "sstq" in sstq.list_mechanisms()
assert "numba" not in sys.modules and "scipy" not in sys.modules
from sstq import *
assert SSTQ is sstq.SSTQ
"""


def test_names_are_loaded_on_first_use():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_every_public_name_is_there_and_documented():
    for name in sstq.__all__:
        assert getattr(sstq, name).__doc__
    assert dir(sstq) == sorted(sstq.__all__)


def test_every_mechanism_is_at_the_top():
    ours = [mechanism_class(name) for name in sstq.list_mechanisms()]
    for mechanism in ours:
        if mechanism.__module__.startswith("sstq."):
            assert getattr(sstq, mechanism.__name__) is mechanism


def test_type_checkers_see_all_names():
    """They read the stub, in which a name is public only if it is imported as itself."""
    stub = ast.parse(Path(sstq.__file__).with_suffix(".pyi").read_text())
    seen = {
        alias.asname: node.module
        for node in stub.body[1:]
        for alias in node.names
        if alias.name == alias.asname
    }
    assert seen.pop("__version__") == "sstq._version"
    assert sorted(seen) == sorted(sstq.__all__)
    assert all(
        getattr(sstq, name) is getattr(importlib.import_module(home), name)
        for name, home in seen.items()
    )


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sstq.nonsense
