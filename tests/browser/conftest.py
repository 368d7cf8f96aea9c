"""One server of the bundle that ships and one explorer for all tests of the page; a browser for each file.

A browser does not outlive its file: while Playwright runs, so does its event loop, and tests of other folders
could start none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser.explorer_page import ExplorerPage, launch, opened
from browser.explorer_process import ExplorerProcess
from requirements_gate import require_module, require_system
from server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DEFAULT_BUNDLE = Path(__file__).resolve().parents[2] / "server" / "bundles" / "default"

OpenPage = Callable[..., ExplorerPage]


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def shared_page(browser: Browser, explorer_url: str) -> Iterator[ExplorerPage]:
    """A page on a desktop, ready to sound, for all tests of a file that ask for no other."""
    with opened(browser, explorer_url) as explorer:
        explorer.open().unlock()
        yield explorer


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[ExplorerPage]:
    """A page on a desktop, ready to sound: a new one or, of tests marked so, one that others have used."""
    if request.node.get_closest_marker("shared_page") is None:
        explorer: ExplorerPage = request.getfixturevalue("open_page")()
        explorer.unlock()
        yield explorer
        return
    explorer = request.getfixturevalue("shared_page")
    explorer.start_over()
    yield explorer
    explorer.page.unroute_all()
    faults, explorer.faults[:] = [*explorer.faults], []
    assert faults == []
