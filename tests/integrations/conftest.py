"""The tests of an integration are left out where the other side is not installed."""

from importlib.util import find_spec

_NEEDS = {"test_torch.py": "torch", "*flower*": "flwr"}
collect_ignore_glob = [
    tests for tests, module in _NEEDS.items() if find_spec(module) is None
]
