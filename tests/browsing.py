"""The browser that pages are tested in: that of SSTQ_CHROMIUM, or the Chromium on the PATH."""

import os
import shutil
from contextlib import contextmanager

from tests.patience import PATIENCE

CHROMIUM = os.environ.get("SSTQ_CHROMIUM") or shutil.which("chromium")


@contextmanager
def browsing():
    """A running browser; pages may take their time to show what is expected."""
    from playwright import sync_api as playwright

    playwright.expect.set_options(timeout=1000 * PATIENCE)
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * PATIENCE)
        try:
            yield running
        finally:
            running.close()
