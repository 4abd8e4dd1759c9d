"""The wheel, installed without our pins: what it imports is declared, and its commands work."""

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, files

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


def provided(package):
    """The modules of a package; none if it is not installed."""
    try:
        return {path.parts[0].removesuffix(".py") for path in files(package)}
    except PackageNotFoundError:
        return set()


def test_every_module_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {
        re.match(r"[\w.-]+", one)[0].replace("-", "_")
        for group in groups
        for one in group
    }
    found = imported()
    # Most modules are called as their packages.
    assert found - declared <= {
        module for package in declared - found for module in provided(package)
    }


def test_no_extra_that_people_install_waits_for_the_documentation():
    """The versions of mkdocs-material and its plug-ins are exact; only `make check` asks for them too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    exact = {
        name for name, group in extras.items() if any("==" in one for one in group)
    }
    asking = {name for name, group in extras.items() if "docs]" in str(group)}
    assert exact == {"docs"}
    assert asking == {"check"}
    assert not any("==" in one for one in project["dependencies"])


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
