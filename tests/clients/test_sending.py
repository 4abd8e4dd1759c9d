"""“Send from your app”: every example of the page, and other clients, send to a real collector and count there."""

import json
import shutil
import subprocess
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import sstq
from sstq.clients import FILES
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
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: nothing is sent from one; install chromium"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A collector with the campaign whose mechanism the page's commands write."""
    folder = tmp_path_factory.mktemp("sending")
    for command in shell_lines(PAGE):
        words = [
            str(folder / word) if word.startswith("rooms.") else word
            for word in command.split()
        ]
        assert run(*words[1:])
    with serving(folder) as running:
        running.create(
            "rooms", sstq.from_json((folder / "rooms.json").read_text()), origins=["*"]
        )
        running.folder = folder
        yield running


def example(server, language):
    """The page's one example in a language, with this collector's address and key; in C it has neither."""
    (text,) = [
        block for block in blocks(PAGE, language) if ADDRESS in block or language == "c"
    ]
    (key,) = server.http.get("/v1/campaigns/rooms").json()["keys"]
    return text.replace(ADDRESS, server.url).replace(KEY, key)


@pytest.fixture(scope="module")
def shuffler(server, tmp_path_factory):
    quick = {"fetch_seconds": 0.2, "closing_seconds": 0}
    with serving(
        tmp_path_factory.mktemp("shuffler"),
        command="shuffler",
        collector=server.url,
        **quick,
    ) as running:
        running.keys = running.http.get("/v1/key").json()
        yield running


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


def in_node(folder, program):
    """What a program beside the JavaScript client prints, a line each."""
    for module in ("sstq.js", "sealing.js", "node-files.js"):
        shutil.copy(ROOT / "clients" / "js" / module, folder)
    return run_program(folder, program)


def run_program(folder, program):
    (folder / "send.mjs").write_text(program)
    done = subprocess.run(
        [find_node(), "send.mjs"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An empty folder in which the npm package is installed, from the archive that would be published."""
    if shutil.which("npm") is None:
        pytest.skip("NO NPM: the package of the JavaScript client is not installed")
    folder = tmp_path_factory.mktemp("npm")
    npm(folder, "pack", "--silent", ROOT / "clients" / "js")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        names = {name.removeprefix("package/") for name in packed.getnames()}
    assert names == set(FILES["js"])
    npm(folder, "install", "--offline", archive)
    return folder


def npm(folder, *arguments):
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund"]
    command = [shutil.which("npm"), *arguments, *quiet]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page in a browser, of a web site of another origin; and the folder of the site."""
    pytest.importorskip("playwright")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    folder = tmp_path_factory.mktemp("site")
    for module in ("sstq.js", "sealing.js"):
        shutil.copy(ROOT / "clients" / "js" / module, folder)
    (folder / "index.html").write_text("<!doctype html><title>Nothing</title>")
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as site,
        browsing() as browser,
    ):
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            opened = browser.new_page(base_url=f"http://127.0.0.1:{site.server_port}")
            opened.goto("/index.html")
            yield opened, folder
        finally:
            site.shutdown()
            thread.join()


@pytest.mark.usefixtures("counted")
def test_node(server, tmp_path):
    assert in_node(tmp_path, example(server, "js")) == ["1 message sent"]
    assert "rooms" in (tmp_path / "me.ledger").read_text()


@pytest.mark.usefixtures("counted")
def test_the_npm_package_sends(server, installed):
    program = example(server, "js").replace('"./sstq.js"', '"sstq"')
    assert run_program(installed, program) == ["1 message sent"]
    assert "rooms" in (installed / "me.ledger").read_text()


_TYPED = """
import { Client, Ledger, type Campaign } from "sstq";
import { answer, Question } from "sstq/studies";
const ledger: Ledger = await Ledger.open("rooms", { epsilon: 8 });
const client = await Client.open("https://collect.example/rooms", { mostEpsilon: 4, ledger });
const sent: number = (await client.sendWaiting()) || (await client.send(new Float32Array(16)));
const { name, shuffling }: Campaign = client.campaign;
const bytes: Uint8Array = await answer("{}", { city: "Graz" }, { mostEpsilon: 2, ledger });
export const told = [sent, name, shuffling?.threshold, bytes.length, new Question("{}").kind];
"""


def test_the_types_of_the_npm_package_are_those_that_typescript_expects(installed):
    try:
        npm(installed, "install", "typescript")
    except subprocess.CalledProcessError as error:
        pytest.skip(
            f"NO TYPESCRIPT: the types of the JavaScript client are not checked: {error.stderr[-200:]}"
        )
    flags = [
        "--noEmit",
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2022,dom",
    ]
    checked = []
    for name, text in (
        ("right", _TYPED),
        ("wrong", _TYPED.replace("mostEpsilon: 4", "mostEpsilon: '4'")),
    ):
        (installed / f"{name}.mts").write_text(text)
        command = ["node_modules/.bin/tsc", *flags, f"{name}.mts"]
        checked.append(
            subprocess.run(
                command, cwd=installed, capture_output=True, text=True, check=False
            )
        )
    right, wrong = checked
    assert right.returncode == 0, right.stdout
    assert "TS2322" in wrong.stdout


@needs_browser
@pytest.mark.usefixtures("counted")
def test_browser(server, page):
    from playwright import sync_api as playwright

    opened, folder = page
    (folder / "send.html").write_text(
        f"<!doctype html><title>Send</title><body>\n{example(server, 'html')}</body>\n"
    )
    opened.goto("/send.html")
    playwright.expect(opened.locator("body")).to_have_text("1 message sent")


_ANSWERING = """async ([url, isReached]) => {
  const { Client, Ledger } = await import("/sstq.js");
  const ask = globalThis.fetch;
  const gone = () => Promise.reject(new TypeError("gone"));
  const blocked = (url, options) => (options.method === "POST" ? gone() : ask(url, options));
  globalThis.fetch = isReached ? ask : blocked;
  const ledger = await Ledger.open("answering", { epsilon: 4 });
  const client = await Client.open(url, { mostEpsilon: 4, patience: 0, ledger });
  const send = async () => (await client.sendWaiting()) || client.send(new Float32Array(16));
  return [await send().catch(({ code, waiting }) => [code, waiting]), await ledger.spent()];
}"""


@needs_browser
@pytest.mark.usefixtures("counted")
def test_a_page_that_was_closed_sends_what_it_paid_for_at_its_next_visit(server, page):
    opened, _ = page
    for _ in range(2):
        opened.goto("/index.html")
        assert opened.evaluate(_ANSWERING, [f"{server.url}/rooms", False]) == [
            ["unreachable", 1],
            4,
        ]
    opened.goto("/index.html")
    assert opened.evaluate(_ANSWERING, [f"{server.url}/rooms", True]) == [1, 4]


_BATCHES = """
import { Client } from "./sstq.js";
const uploads = [], ask = globalThis.fetch;
globalThis.fetch = (url, options) => {
  if (options.method === "POST") uploads.push(options.headers["SSTQ-Count"]);
  return ask(url, options);
};
for (const token of [TOKEN, undefined]) {
  const client = await Client.open("URL/rooms", { mostEpsilon: 8, token });
  await client.send(Array.from({ length: 25 }, () => new Array(client.campaign.mechanism.dim).fill(0)));
}
console.log(uploads.join(" "));
"""


def test_node_sends_one_batch_with_a_senders_token(server, tmp_path):
    before = server.status("rooms")["received"]
    program = _BATCHES.replace("URL", server.url).replace(
        "TOKEN", json.dumps(server.sender("rooms"))
    )
    assert in_node(tmp_path, program) == [" ".join(["25", *["1"] * 25])]
    assert server.status("rooms")["received"] == before + 50


_VECTOR = [0.6, 0.0, -0.8]
_PEOPLE = 50
_CROWD = """async ([url, pins, people, vector]) => {
  const { Client } = await import(MODULE);
  const client = await Client.open(url, { mostEpsilon: 36, ...pins });
  return client.send(Array(people).fill(vector));
}"""


@pytest.mark.parametrize(
    "runtime", ["node", "package", pytest.param("browser", marks=needs_browser)]
)
def test_a_crowd_is_counted_behind_a_shuffler(
    server, shuffler, runtime, tmp_path, request
):
    mechanism = sstq.FrameUnit(3, 18.0, frames=10_000, messages=2)
    terms = {"url": shuffler.url, "threshold": _PEOPLE, **shuffler.keys}
    server.create(
        runtime,
        mechanism,
        closes="2100-01-01T00:00:00Z",
        shuffling=terms,
        origins=["*"],
    )
    pins = {
        "pinnedKey": server.http.get("/v1/key").json()["key"],
        "pinnedShuffler": shuffler.keys["key"],
    }
    given = [f"{shuffler.url}/{runtime}", pins, _PEOPLE, _VECTOR]
    if runtime != "browser":
        module = "sstq" if runtime == "package" else "./sstq.js"
        program = f"const sent = {_CROWD.replace('MODULE', json.dumps(module))};"
        program += f"\nconsole.log(await sent({json.dumps(given)}));"
        if runtime == "package":
            printed = run_program(request.getfixturevalue("installed"), program)
        else:
            printed = in_node(tmp_path, program)
        assert printed == [str(2 * _PEOPLE)]
    else:
        opened, _ = request.getfixturevalue("page")
        assert (
            opened.evaluate(_CROWD.replace("MODULE", json.dumps("/sstq.js")), given)
            == 2 * _PEOPLE
        )
    assert (
        server.administer(
            "PATCH", f"/v1/campaigns/{runtime}", json={"closed": True}
        ).status_code
        == 200
    )
    found = server.estimate(runtime, 2 * _PEOPLE)
    claim = found["shuffling"]
    assert (found["count"], claim["batches"], claim["accepted"]) == (
        2 * _PEOPLE,
        2,
        2 * _PEOPLE,
    )
    assert [crowd["people"] for crowd in claim["crowds"]] == [_PEOPLE]
    assert not any(claim["refused"].values())
    assert claim["local_epsilon"] == 36.0
    # About normal. At worst all of it is in one direction; beyond 30 times the variance lies a share of 4e-8.
    error = np.sum((np.array(found["value"]) - _VECTOR) ** 2)
    assert (
        error
        < 30 * mechanism.expected_mse(np.array(_VECTOR), clients=_PEOPLE).total
        < 0.15
    )


@needs_browser
def test_groups_coordinates_and_answers_are_sent_from_a_page_of_another_origin(
    server, page
):
    """Rarer than 1e-6: six standard errors of readings, and seven of the share of the group that all are in.

    Measured over 1,500 seeds that share is 1.00 ± 0.08. Its stated error would not do: it is 0 if few disagree.
    """
    mechanisms = {
        "answers": sstq.Survey(
            3.0,
            {
                "c": sstq.Choice(["a", "b"]),
                "n": sstq.Number(0, 8),
                "n by c": sstq.By("c", "n"),
            },
        ),
        "travel": sstq.GroupUnit(dim=3, epsilon=3.0, groups=5, blocks=2, frames=64),
        "readings": sstq.SSTQ(dim=6, epsilon=2.0, bits=3),
    }
    for name, mechanism in mechanisms.items():
        server.create(name, mechanism, origins=["*"])
    vector = [0.5, 0, -0.5, 0.1, 0.2, 0.3]
    sent = page[0].evaluate(
        """async ([url, vector, tokens]) => {
            const { Client } = await import("/sstq.js");
            const open = (name, token) => Client.open(`${url}/${name}`, { mostEpsilon: 3, patience: 10, token });
            const groups = Array(400).fill(3), some = Array.from({ length: 120 }, (_, i) => i % 5);
            const [travel, readings] = [await open("travel", tokens[0]), await open("readings", tokens[1])];
            const answers = await open("answers");
            const people = some.slice(100).map((i) => ({ c: i % 2 ? "b" : "a", n: i }));
            return [
                await answers.send(people) + await answers.send({ c: "?", n: NaN }),
                await travel.send(groups.map(() => new Float32Array([0.2, -0.5, 0.3])), groups),
                await readings.send(some.map(() => vector)),
            ];
        }""",
        [server.url, vector, [server.sender(name) for name in ("travel", "readings")]],
    )
    assert sent == [21, 400, 120]
    assert (
        sum(each["count"] for each in server.estimate("answers", 21)["questions"]) == 21
    )
    readings = server.estimate("readings", 120)
    travel = server.estimate("travel", 400)
    z = (np.array(readings["value"]) - vector) / readings["stderr"]
    assert np.abs(z).max() < 6
    assert travel["groups"]["shares"][3] > 0.45


@pytest.mark.skipif(
    not compilers(), reason="NO C COMPILER: the example in C is not run"
)
@pytest.mark.skipif(
    not shutil.which("curl") or not shutil.which("openssl"), reason="NO CURL or openssl"
)
@pytest.mark.usefixtures("counted")
def test_c(server, tmp_path):
    (tmp_path / "encode.c").write_text(example(server, "c"))
    shutil.copy(server.folder / "rooms.h", tmp_path)
    (tmp_path / "clients").symlink_to(ROOT / "clients")
    done = subprocess.run(
        ["/bin/sh", "-ec", example(server, "sh")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == '{"count":1}', done.stderr
    # It encodes what the page says: with the strict flags nothing is left to warn of.
    strict = [
        compilers()[0],
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-ffp-contract=off",
    ]
    folders = ["-I", "clients/c", "-I", "."]
    subprocess.run(
        [*strict, *folders, "-c", "encode.c", "-o", "encode.o"],
        cwd=tmp_path,
        check=True,
    )


def test_the_examples_are_short():
    for language in ("html", "js", "c", "python"):
        (text,) = blocks(PAGE, language)
        lines = [line for line in text.splitlines() if len(line.strip()) > 1]
        assert len(lines) <= 12, language
