"""The tests of PyTorch models are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_torch_models.py"]
