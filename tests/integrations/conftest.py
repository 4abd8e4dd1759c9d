"""The tests of an integration are left out where the other side is not installed."""

from importlib.util import find_spec

_NEEDS = {"torch": "test_torch.py", "ray": "test_ray*.py", "flwr": "*flower*"}
collect_ignore_glob = [tests for module, tests in _NEEDS.items() if find_spec(module) is None]
