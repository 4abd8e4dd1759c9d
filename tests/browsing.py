"""The browser that pages are tested in: that of SSTQ_CHROMIUM, or the Chromium on the PATH."""

import os
import shutil
from contextlib import contextmanager

from tests.patience import PATIENCE

CHROMIUM = os.environ.get("SSTQ_CHROMIUM") or shutil.which("chromium")

# A dashboard asks every two seconds otherwise, and tests would wait for that most of the time.
HASTY = "const later = setTimeout; setTimeout = (f, ms = 0, ...own) => later(f, ms / 20, ...own)"


@contextmanager
def browsing():
    """A running browser; pages may take their time to show what is expected."""
    from playwright import sync_api as playwright

    playwright.expect.set_options(timeout=1000 * PATIENCE)
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * PATIENCE
        )
        try:
            yield running
        finally:
            running.close()


@contextmanager
def quiet_page(browser, url):
    """A page whose console must stay empty: it would have a breach of the policy, an error or a file from elsewhere."""
    context = browser.new_context(
        viewport={"width": 1200, "height": 900},
        accept_downloads=True,
        color_scheme="light",
    )
    said = []
    opened = context.new_page()
    opened.set_default_timeout(1000 * PATIENCE)
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            request.url.startswith((url, "blob:")) or said.append(request.url)
        ),
    )
    opened.add_init_script(HASTY)
    opened.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error(e.violatedDirective))"
    )
    yield opened
    # A request that a test answers may be on its way.
    opened.unroute_all(behavior="ignoreErrors")
    context.close()
    assert said == []
