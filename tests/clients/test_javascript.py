"""The JavaScript client in Node: its own tests, fresh random cases of this library, its size and its types."""

import gzip
import json
import re
import secrets
import shutil
import subprocess

import pytest

import sstq
from tests.clients import cases
from tests.clients.node import JAVASCRIPT, ROOT, find_node, run_tests
from tests.test_documentation import blocks

pytestmark = pytest.mark.slow

# Bytes, compressed. The second is only for campaigns that are shuffled, the third only for Node, the last for studies.
LARGEST = {
    "sstq.js": 23_700,
    "sealing.js": 4_000,
    "node-files.js": 2_000,
    "studies.js": 7_400,
}


def test_every_step_reproduces_the_test_vectors():
    assert run_tests("vectors.test.js") >= 20


def test_random_inputs_give_the_bits_of_this_library(tmp_path, seed):
    file = tmp_path / "cases.json"
    assert cases.write(file, 60, seed) > 1000
    assert run_tests("bits.test.js", SSTQ_CASES=str(file)) == 1 + len(
        cases.mechanisms()
    )


def test_the_draw_is_private_whatever_the_library_does():
    run_tests("privacy.test.js")


def test_retries_signatures_and_the_ledger():
    run_tests("client.test.js")


def test_pins_are_checked_before_anything_is_asked():
    assert run_tests("pins.test.js") > 20


def test_what_was_paid_for_waits_until_it_is_acknowledged():
    assert run_tests("outbox.test.js") > 20


def test_envelopes_and_shuffled_campaigns():
    assert run_tests("sealing.test.js") > 20


def test_the_library_opens_what_javascript_seals(tmp_path):
    """With keys of its own, at random."""
    pytest.importorskip("cryptography")
    from sstq.client.sealing import SealingKey, envelope_info, open_envelopes

    key = SealingKey.generate()
    messages = [secrets.token_bytes(length) for length in (0, 1, 2, 4, 32, 1000)]
    infos = [envelope_info(b"\x5a" * 32, slot) for slot in range(2)]
    program = f"""
        import {{ envelopeInfo, seal }} from {json.dumps((JAVASCRIPT / "sealing.js").as_uri())};
        const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
        for (const message of {json.dumps([message.hex() for message in messages])})
          for (const slot of [0, 1]) {{
            const info = envelopeInfo(bytes("5a".repeat(32)), slot);
            console.log(Buffer.from(await seal(bytes(message), bytes("{key.public.hex()}"), info)).toString("hex"));
          }}"""
    (tmp_path / "seal.mjs").write_text(program)
    done = subprocess.run(
        [find_node(), tmp_path / "seal.mjs"], capture_output=True, text=True, check=True
    )
    envelopes = [bytes.fromhex(line) for line in done.stdout.split()]
    assert open_envelopes(key.secret, infos[0], envelopes[::2]) == messages
    assert open_envelopes(key.secret, infos[1], envelopes[1::2]) == messages
    assert open_envelopes(key.secret, infos[1], envelopes[::2]) == [None] * len(
        messages
    )


def test_the_example_of_the_readme_prints_what_it_says(tmp_path):
    (code,), (printed,) = (
        blocks(JAVASCRIPT / "README.md", language) for language in ("js", "text")
    )
    for module in ("sstq.js", "node-files.js"):
        shutil.copy(JAVASCRIPT / module, tmp_path)
    (tmp_path / "example.mjs").write_text(code)
    done = subprocess.run(
        [find_node(), "example.mjs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == printed, done.stderr
    assert (tmp_path / "example.ledger").is_file()


def test_the_modules_are_small_and_complete():
    for name, largest in LARGEST.items():
        module = (JAVASCRIPT / name).read_text()
        assert len(gzip.compress(module.encode(), 9)) <= largest
        assert not re.findall(
            r"from \"(?!node:|\./sstq\.js\")|require\(", module, flags=re.M
        )
    package = json.loads((JAVASCRIPT / "package.json").read_text())
    assert (package["type"], package["version"]) == ("module", sstq.__version__)
    assert (JAVASCRIPT / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert not package.keys() & {"dependencies", "devDependencies", "peerDependencies"}
    for file in [
        *package["files"],
        package["exports"]["."]["types"],
        package["exports"]["."]["default"],
    ]:
        assert (JAVASCRIPT / file).is_file()


def test_the_types_name_what_the_module_exports():
    exported = r"^export (?:declare )?(?:async )?(?:class|function|const) (\w+)"
    module, types = (
        (JAVASCRIPT / name).read_text() for name in ("sstq.js", "sstq.d.ts")
    )
    assert sorted(re.findall(exported, module, flags=re.M)) == sorted(
        re.findall(exported, types, flags=re.M)
    )


def test_a_person_answers_one_stage_of_a_study_once():
    assert run_tests("taking-part.test.js") == 20


def test_studies_are_answered_as_in_the_library():
    assert run_tests("studies.test.js") == 9
