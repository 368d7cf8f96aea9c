"""Takes the README's pictures of the explorer: desktop and phone, to clients/screenshots/.

    python tests/browser/screenshots.py

A real `timbrel explore` with a server of the bundle that ships. The page has the system's own fonts, so the
pictures look best where a good one is installed (Debian: fonts-inter).
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from PIL import Image
from server_process import ServerProcess

from browser.conftest import DEFAULT_BUNDLE
from browser.explorer_page import ExplorerPage, launch, opened
from browser.explorer_process import ExplorerProcess

TARGET = Path(__file__).resolve().parents[2] / "clients" / "screenshots"
MOST_BYTES = 400_000
STEP = 3
"""Between two levels of a colour that are told apart, of 256; white stays white."""

DESKTOP: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, "device_scale_factor": 1}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}
PICTURES = {
    "desktop_light": DESKTOP | {"color_scheme": "light"},
    "desktop_dark": DESKTOP | {"color_scheme": "dark"},
    "phone": PHONE | {"color_scheme": "light"},
}


def play_around(page: ExplorerPage, *, phone: bool) -> None:
    """A few notes, two of them kept, and A and B: what the page looks like in use."""
    page.unlock()
    for name in ("Violin", "Orchestral Harp", "Oboe"):
        page.click(*page.instrument(name))
        page.until("timbrel.player.current.complete", timeout=60)
        if name == "Orchestral Harp" or phone:
            continue
        page.page.locator("#keep").click()
        page.page.locator("#set-a" if name == "Violin" else "#set-b").click()
    page.click(0.34, 0.57)
    page.until("timbrel.player.current.complete", timeout=60)
    page.page.locator("#play").click()
    page.page.mouse.move(5, 5)
    page.page.wait_for_timeout(900)


def take(page: ExplorerPage, name: str) -> None:
    """One picture."""
    path = TARGET / f"{name}.png"
    picture = np.asarray(Image.open(io.BytesIO(page.page.screenshot())).convert("RGB"))
    coarse = picture // STEP * STEP  # nobody sees it, and a third of the bytes goes
    Image.fromarray(coarse.astype(np.uint8)).save(path, optimize=True)
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{path.name} has {size} bytes; at most {MOST_BYTES} are wanted")
    print(f"{path} {size // 1000} kB")


def main() -> None:
    """All of them."""
    from playwright.sync_api import sync_playwright

    TARGET.mkdir(exist_ok=True)
    server = ServerProcess(DEFAULT_BUNDLE)
    explorer = ExplorerProcess(server.address)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            for name, options in PICTURES.items():
                with opened(browser, explorer.url, **options) as page:
                    page.open("#s=2")
                    play_around(page, phone=name == "phone")
                    take(page, name)
            browser.close()
    finally:
        explorer.close()
        server.close()


if __name__ == "__main__":
    main()
