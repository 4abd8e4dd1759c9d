"""Write `clients/vectors` anew: `python -m tests.clients`. Only a deliberate change of the wire is a reason to."""

from tests.clients.files import FILES, text_of
from tests.clients.written import FOLDER

FOLDER.mkdir(parents=True, exist_ok=True)
for name in FILES:
    (FOLDER / name).write_text(text_of(name), encoding="utf-8")
