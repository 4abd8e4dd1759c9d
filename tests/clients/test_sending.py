"""“Send from your app”: every example of the page sends to a real collector, and counts there."""

import http.server
import shutil
import subprocess
import threading
from functools import partial

import pytest

import sstq
from clients.c import header
from tests.browsing import CHROMIUM, browsing
from tests.cli.test_cli import run
from tests.clients.c_client import compilers
from tests.clients.node import find_node
from tests.test_documentation import ROOT, blocks, shell_lines

pytest.importorskip("fastapi")

from tests.service.serving import serving

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "sending.md"
ADDRESS = "https://collect.example"
KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A collector with the campaign whose mechanism the page's commands write."""
    folder = tmp_path_factory.mktemp("sending")
    for command in shell_lines(PAGE):
        words = [str(folder / word) if word.startswith("rooms.") else word for word in command.split()]
        assert run(*words[1:]) if words[0] == "sstq" else header.main(words[2:]) is None
    with serving(folder) as running:
        running.create("rooms", sstq.from_json((folder / "rooms.json").read_text()), origins=["*"])
        running.folder = folder
        yield running


def example(server, language):
    """The page's one example in a language, with this collector's address and key; in C it has neither."""
    (text,) = [block for block in blocks(PAGE, language) if ADDRESS in block or language == "c"]
    (key,) = server.http.get("/v1/campaigns/rooms").json()["keys"]
    return text.replace(ADDRESS, server.url).replace(KEY, key)


@pytest.fixture
def counted(server):
    """One message arrives during the test, and no more."""
    before = server.status("rooms")["received"]
    yield
    assert server.status("rooms")["received"] == before + 1


@pytest.mark.usefixtures("counted")
def test_python(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(example(server, "python"), str(PAGE), "exec"), {})  # noqa: S102
    assert capsys.readouterr().out == "1 message sent\n"
    assert "rooms" in (tmp_path / "me.ledger").read_text()


@pytest.mark.usefixtures("counted")
def test_node(server, tmp_path):
    for module in ("sstq.js", "node-ledger.js"):
        shutil.copy(ROOT / "clients" / "js" / module, tmp_path)
    (tmp_path / "send.mjs").write_text(example(server, "js"))
    done = subprocess.run([find_node(), "send.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "1 message sent\n", done.stderr
    assert "rooms" in (tmp_path / "me.ledger").read_text()


_BATCH = """
import { Client } from "./sstq.js";
const [url, token] = process.argv.slice(2), uploads = [], ask = globalThis.fetch;
globalThis.fetch = (url, options) => {
  if (options.method === "POST") uploads.push(options.headers["SSTQ-Count"]);
  return ask(url, options);
};
const client = await Client.open(url, { mostEpsilon: 8, token });
await client.send(Array.from({ length: 25 }, () => new Array(client.campaign.mechanism.dim).fill(0)));
console.log(uploads.join(" "));
"""


@pytest.mark.parametrize("with_token", [True, False])
def test_node_sends_one_batch_with_a_senders_token(server, tmp_path, with_token):
    for module in ("sstq.js", "node-ledger.js"):
        shutil.copy(ROOT / "clients" / "js" / module, tmp_path)
    (tmp_path / "send.mjs").write_text(_BATCH)
    command = [find_node(), "send.mjs", f"{server.url}/rooms", *([server.sender("rooms")] if with_token else [])]
    before = server.status("rooms")["received"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == ("25\n" if with_token else " ".join(["1"] * 25) + "\n"), done.stderr
    assert server.status("rooms")["received"] == before + 25


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def site(tmp_path):
    """A web site of another origin, and its folder."""
    shutil.copy(ROOT / "clients" / "js" / "sstq.js", tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=tmp_path)) as serving_site:
        thread = threading.Thread(target=serving_site.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving_site.server_port}", tmp_path
        finally:
            serving_site.shutdown()
            thread.join()


@pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER: the page's example is not run; install chromium")
@pytest.mark.usefixtures("counted")
def test_browser(server, site):
    playwright = pytest.importorskip("playwright.sync_api")
    address, folder = site
    (folder / "index.html").write_text(f"<!doctype html><title>Send</title><body>\n{example(server, 'html')}</body>\n")
    with browsing() as browser:
        page = browser.new_page()
        page.goto(f"{address}/index.html")
        playwright.expect(page.locator("body")).to_have_text("1 message sent")


@pytest.mark.skipif(not compilers(), reason="NO C COMPILER: the example in C is not run")
@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("openssl"), reason="NO CURL or openssl")
@pytest.mark.usefixtures("counted")
def test_c(server, tmp_path):
    (tmp_path / "encode.c").write_text(example(server, "c"))
    shutil.copy(server.folder / "rooms.h", tmp_path)
    (tmp_path / "clients").symlink_to(ROOT / "clients")
    done = subprocess.run(
        ["/bin/sh", "-ec", example(server, "sh")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == '{"count":1}', done.stderr
    # It encodes what the page says: with the strict flags nothing is left to warn of.
    strict = [compilers()[0], "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
    folders = ["-I", "clients/c", "-I", "."]
    subprocess.run([*strict, *folders, "-c", "encode.c", "-o", "encode.o"], cwd=tmp_path, check=True)


def test_the_examples_are_short():
    for language in ("html", "js", "c", "python"):
        (text,) = blocks(PAGE, language)
        lines = [line for line in text.splitlines() if len(line.strip()) > 1]
        assert len(lines) <= 12, language
