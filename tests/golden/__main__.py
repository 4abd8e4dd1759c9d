"""Write the golden files anew: `python -m tests.golden`. Only a deliberate change of the wire is a reason to."""

from tests.golden.frozen import write

write()
