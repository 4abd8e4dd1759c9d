"""The vectors are what the library does today."""

import json

import pytest

from tests.clients.files import FILES, text_of
from tests.clients.written import FOLDER


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_library_does(name):
    if name in ("campaign.json", "upload.json", "envelope.json"):
        pytest.importorskip("sstq.service", exc_type=ImportError)
    # Compared as lines: of two long texts pytest would show all.
    written, expected = (FOLDER / name).read_text(encoding="utf-8").splitlines(), text_of(name).splitlines()
    changed = [number for number, pair in enumerate(zip(written, expected, strict=False), 1) if pair[0] != pair[1]]
    assert not changed, f"{name} differs in lines {changed[:9]}: run `python -m tests.clients` if that is deliberate"
    assert len(written) == len(expected)


@pytest.mark.slow
def test_the_library_s_client_accepts_and_refuses_the_same_documents():
    pytest.importorskip("sstq.service", exc_type=ImportError)
    from sstq.client.campaigns import read_document
    from sstq.client.signing import signer

    file = json.loads((FOLDER / "campaign.json").read_text(encoding="utf-8"))

    def check(case):
        document = case["document"].encode()
        campaign, keys, _ = read_document(document)
        assert signer(document, case["signature"], keys, file["public_key"]) == file["public_key"]
        return campaign

    for case in file["cases"]:
        assert check(case).digest == case["digest"]
    for case in file["refused"]:
        with pytest.raises(ValueError, match=r"signature|canonical|sealing_key|version 1|most_messages"):
            check(case)


def test_there_are_no_other_files():
    assert {path.name for path in FOLDER.iterdir()} == {*FILES, "README.md"}
