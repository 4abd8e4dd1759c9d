"""The files of deploy/ are read as Docker and systemd would; that images build is for a machine with Docker."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer.main

from sstq.cli import app

DEPLOY = Path(__file__).parents[1] / "deploy"
ROOT = DEPLOY.parent
PINNED = r"[a-z/]+:\d+\.\d+(\.\d+)?-[a-z-]+"


@pytest.fixture
def compose():
    return read("compose.yaml")


def read(name):
    return pytest.importorskip("yaml").safe_load((DEPLOY / name).read_text())


@pytest.fixture
def instructions():
    """The instructions of the Dockerfile with their arguments, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def test_images_are_pinned(instructions, compose):
    images = [rest for word, rest in instructions if word == "FROM"]
    images += [compose["services"][name]["image"] for name in ("database", "proxy")]
    assert all(re.fullmatch(PINNED, image) for image in images), images


def test_what_the_image_copies_is_there_and_not_ignored(instructions):
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        name
        for word, rest in instructions
        if word == "COPY"
        for name in rest.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_image_serves_as_a_user_without_rights(instructions):
    words = [word for word, _ in instructions]
    assert dict(instructions)["USER"] == "sstq"
    assert words.index("USER") < words.index("CMD")
    assert json.loads(dict(instructions)["CMD"]) == ["sstq", "serve"]


def options(command):
    """The variables that are options of a server."""
    parameters = typer.main.get_command(app).commands[command].params
    return {parameter.envvar for parameter in parameters if parameter.envvar} | {
        "SSTQ_UPGRADE"
    }


def variables(command):
    """All variables that a server reads."""
    from sstq.service.settings import Settings, ShufflerSettings

    read = fields(Settings if command == "serve" else ShufflerSettings)
    return options(command) | {f"SSTQ_{own.name.upper()}" for own in read}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "service", "command"),
    [
        ("compose.yaml", "collector", "serve"),
        ("compose.shuffler.yaml", "shuffler", "shuffler"),
    ],
)
def test_every_variable_is_an_option_of_the_server(
    instructions, name, service, command
):
    known = variables(command)
    text = " ".join(rest for word, rest in instructions if word == "ENV") + " ".join(
        read(name)["services"][service]["environment"]
    )
    names = set(re.findall(r"SSTQ_\w+", text))
    assert names
    assert names <= known


@pytest.mark.parametrize(
    ("name", "role"),
    [("compose.yaml", "collector"), ("compose.shuffler.yaml", "shuffler")],
)
def test_only_the_proxy_is_reached_and_believed(name, role):
    whole = read(name)
    services = whole["services"]
    assert "ports" not in services[role]
    (network,) = whole["networks"]["front"]["ipam"]["config"]
    assert services[role]["environment"]["SSTQ_BEHIND_PROXY"] == network["subnet"]
    assert services["proxy"]["environment"]["SSTQ_UPSTREAM"] == f"{role}:8080"
    assert [
        own for own in services if "front" in services[own].get("networks", ())
    ] == [role, "proxy"]
    assert services["proxy"]["depends_on"] == {role: {"condition": "service_healthy"}}


def test_the_database_is_reached_by_the_collector_only(compose):
    collector = compose["services"]["collector"]
    database = compose["services"]["database"]
    assert not {"ports", "networks"} & set(database)
    assert collector["depends_on"]["database"]["condition"] == "service_healthy"
    assert (
        DEPLOY / collector["build"]["context"] / collector["build"]["dockerfile"]
    ).exists()


def test_a_shuffler_runs_like_a_collector_elsewhere(compose):
    shuffler = read("compose.shuffler.yaml")
    ours = shuffler["services"]["shuffler"]
    theirs = compose["services"]["collector"]
    # on one machine, for a try, they share no volume
    assert shuffler["name"] != compose["name"]
    assert ours["command"] == ["sstq", "shuffler"]
    same = (
        "build",
        "depends_on",
        "restart",
        "stop_grace_period",
        "cap_drop",
        "security_opt",
    )
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    same = [
        {**file["services"]["proxy"], "depends_on": {}, "environment": {}}
        for file in (compose, shuffler)
    ]
    assert same[0] == same[1]
    assert shuffler["services"]["database"] == {
        "extends": {"file": "compose.yaml", "service": "database"}
    }
    assert set(shuffler["volumes"]) == set(compose["volumes"])


@pytest.mark.parametrize("name", ["compose.yaml", "compose.shuffler.yaml"])
def test_no_secret_is_in_the_files(name):
    for service in read(name)["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|DATABASE", name):
                assert "${" in value or name == "POSTGRES_DB"


def test_data_outlives_the_containers(compose):
    (mount,) = compose["services"]["database"]["volumes"]
    assert mount.split(":")[0] in compose["volumes"]


UNITS = {"sstq-collector.service": "serve", "sstq-shuffler.service": "shuffler"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), UNITS.items())
def test_a_unit_of_systemd_runs_the_server_with_its_options_and_without_rights(
    name, command
):
    text = (DEPLOY / name).read_text()
    assert f"\nExecStart=/opt/sstq/bin/sstq {command}\n" in text
    found = set(re.findall(r"\b(SSTQ_[A-Z_]+)=", text))
    assert {"SSTQ_FOLDER", "SSTQ_BEHIND_PROXY"} <= found <= variables(command)
    assert re.search("^Wants=.* caddy.service$", text, flags=re.MULTILINE)
    for line in (
        "DynamicUser=yes",
        "UMask=0077",
        "StateDirectoryMode=0700",
        "NoNewPrivileges=yes",
    ):
        assert f"\n{line}\n" in text


def test_both_units_give_the_same_rights():
    collector, shuffler = (
        (DEPLOY / name).read_text().partition("DynamicUser")[2] for name in UNITS
    )
    assert shuffler == collector.replace("sstq-collector", "sstq-shuffler")


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_a_unit(name, tmp_path):
    text = (DEPLOY / name).read_text()
    unit = tmp_path / name
    # it must be there: any program
    unit.write_text(text.replace("/opt/sstq/bin/sstq", sys.executable))
    said = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
    )
    assert not [line for line in said.stderr.splitlines() if name in line], said.stderr


@pytest.mark.slow
def test_every_variable_is_in_the_table_and_in_the_help():
    page = (ROOT / "docs" / "deploying.md").read_text()
    said = (ROOT / "src/sstq/cli/serve.py").read_text()
    assert set(re.findall(r"SSTQ_[A-Z_]+", said)) <= variables("serve") | variables(
        "shuffler"
    )
    only = variables("shuffler") - options("serve") - options("shuffler")
    rows = re.findall(r"^\| (`SSTQ_[^|]+) \|", page, flags=re.MULTILINE)
    assert only == {name for row in rows for name in re.findall(r"SSTQ_[A-Z_]+", row)}
    assert all(name in said for name in only)
