"""The wheel, installed without our pins: what it imports is declared, and its commands work."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tests.installing import ROOT, CommandError, Environment, build_wheel, try_commands


def imported():
    """The modules outside of Python and of this package that the package imports."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"sstq", "_typeshed"}


def _normal(name):
    return name.lower().replace("_", "-")


def test_every_module_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {_normal(re.match(r"[\w.-]+", one)[0]) for group in groups for one in group}
    providers = packages_distributions()
    missing = {name for name in imported() if not declared & {*map(_normal, providers.get(name, [name]))}}
    assert missing == set()


@pytest.mark.slow
def test_the_wheel_works_with_the_newest_versions(tmp_path):
    """As `pip install sstq` gives them today; the lowest ones are in `make release-check`."""
    try:
        environment = Environment(tmp_path, build_wheel(tmp_path))
    except CommandError as error:
        if "NewConnectionError" in str(error) or "NameResolutionError" in str(error):
            pytest.skip("needs a package index, which cannot be reached")
        raise
    try_commands(environment)
