import subprocess
import sys

import pytest

import sstq

# In a process of its own: nothing has been imported yet.
PROGRAM = """
import sys
import sstq
assert "numpy" not in sys.modules
assert "numba" not in sys.modules and "scipy" not in sys.modules
assert sstq.frames.kashin.default_level(25_450, 65_536) > 0
assert callable(sstq.mechanisms) and "sstq" in sstq.list_mechanisms()
assert "numba" not in sys.modules and "scipy" not in sys.modules
from sstq import *
assert SSTQ is sstq.SSTQ
"""


def test_names_are_loaded_on_first_use():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_every_public_name_is_there_and_documented():
    for name in sstq.__all__:
        assert getattr(sstq, name).__doc__
        assert name in dir(sstq)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sstq.nonsense
