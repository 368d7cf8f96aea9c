"""One server of the bundle that ships, one explorer and one browser for all tests of the page.

The browser does not outlive its folder: while Playwright runs, so does its event loop, and tests of other
folders could start none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from requirements_gate import require_module, require_system
from server_process import ServerProcess

from browser.explorer_page import ExplorerPage, launch, opened
from browser.explorer_process import ExplorerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DEFAULT_BUNDLE = Path(__file__).resolve().parents[2] / "server" / "bundles" / "default"

OpenPage = Callable[..., ExplorerPage]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, headless."""
    require_system("browser")
    require_module("playwright", "dev")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def explorer_url() -> Iterator[str]:
    """The explorer of the bundle that ships."""
    require_module("starlette", "explore")
    server = ServerProcess(DEFAULT_BUNDLE)
    explorer = ExplorerProcess(server.address)
    yield explorer.url
    explorer.close()
    server.close()


@pytest.fixture
def open_page(browser: Browser, explorer_url: str) -> Iterator[OpenPage]:
    """Opens pages, `open_page("#p=60", color_scheme="dark")`; a fault on any of them fails the test."""
    with ExitStack() as stack:

        def open_one(state: str = "", *, url: str = explorer_url, **options: Any) -> ExplorerPage:
            return stack.enter_context(opened(browser, url, **options)).open(state)

        yield open_one


@pytest.fixture
def unopened(browser: Browser, explorer_url: str) -> Iterator[ExplorerPage]:
    """A page on a desktop that is still to be opened: what it loads may be another before."""
    with opened(browser, explorer_url) as explorer:
        yield explorer


class SharedPage:
    """A page on a desktop, ready to sound, for one test after the other; after one that failed, a new one."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._stack = ExitStack()
        self._page: ExplorerPage | None = None

    def start_over(self) -> ExplorerPage:
        """The page, near to where it was when it was opened."""
        if self._page is None:
            self._page = self._stack.enter_context(opened(self._browser, self._url)).open()
            self._page.unlock()
        self._page.start_over()
        return self._page

    def close(self) -> None:
        self._page = None
        self._stack.close()


@pytest.fixture(scope="package")
def shared_page(browser: Browser, explorer_url: str) -> Iterator[SharedPage]:
    """The page of all tests that are marked so."""
    shared = SharedPage(browser, explorer_url)
    yield shared
    shared.close()


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[ExplorerPage]:
    """A page on a desktop, ready to sound: a new one or, of tests marked so, one that others have used."""
    if request.node.get_closest_marker("shared_page") is None:
        own: ExplorerPage = request.getfixturevalue("open_page")()
        own.unlock()
        yield own
        return
    shared: SharedPage = request.getfixturevalue("shared_page")
    n_failed = request.session.testsfailed
    explorer = shared.start_over()
    yield explorer
    explorer.page.unroute_all()
    faults, explorer.faults[:] = [*explorer.faults], []
    if faults or request.session.testsfailed > n_failed:
        shared.close()
    assert faults == []
