"""Chromium without a window, for tests of pages; they skip where there is none."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def executable():
    """The browser: ``$CHROMIUM``, or the first on the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium():
    """A browser, or a skip with the reason."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    path = executable()
    if path is None:
        pytest.skip("no Chromium: install one, or set CHROMIUM to its path")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page in the browser, with what it asked for and complained about."""

    def __init__(self, browser, file, anchor="", wait=True, **options):
        self.page = browser.new_page(viewport={"width": 1300, "height": 900}, **options)
        self.requests, self.faults = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else 0,
        )
        self.address = file.as_uri()
        self.page.goto(self.address + anchor)
        if wait:
            self.page.wait_for_function("document.documentElement.dataset.ready")

    def __call__(self, script, argument=None):
        return self.page.evaluate(script, argument)

    def close(self):
        """End with the checks that every page has to pass."""
        self.page.close()
        assert self.faults == []
        assert [url for url in self.requests if not url.startswith(self.address)] == []
