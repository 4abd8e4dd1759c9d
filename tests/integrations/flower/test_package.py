import subprocess
import sys

# In a process of its own, where Flower cannot be imported.
PROGRAM = """
import sys
sys.modules["flwr"] = None
import sstq.integrations
try:
    import sstq.integrations.flower
except ImportError as error:
    print(error)
"""


def test_a_missing_flower_names_the_extra():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout
        == "sstq.integrations.flower needs Flower: pip install 'sstq[flower]'\n"
    )
