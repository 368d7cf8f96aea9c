"""Opens the user's browser, where there is one to be seen."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Variables one of which is set where a Linux desktop, or a browser of choice, is at hand."""


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser that opens would be seen by anybody."""
    return platform in ("darwin", "win32") or any(environment.get(name) for name in DISPLAYS)


def open_browser(url: str) -> None:
    """Opens the page, without waiting for it."""
    if has_display(os.environ):
        threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()
