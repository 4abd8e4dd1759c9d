"""What is shown while a command works."""

import io
import re
import sys

from sstq.cli import terminal


def test_remarks_stand_above_the_bar_and_never_on_it(monkeypatch):
    terminal._stderr.cache_clear()
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.live_line("Working", 2) as show:
        show(1, "half")
        terminal.note("a remark")
    terminal._stderr.cache_clear()
    # The line is erased (2K) before the remark is written, which ends with a line of its own.
    before, after = re.sub(r"\x1b\[\d*m", "", screen.getvalue()).split("a remark")
    assert before.endswith("\r\x1b[2K")
    assert after.startswith("\n")
