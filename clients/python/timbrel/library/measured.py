"""What was measured of raw notes, on disk: one line of JSON a note, appended as it is measured."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timbrel.library.measure import MEASURE_VERSION, Measurement


class MeasurementBook:
    """Measurements by the notes' keys. Safe to use from several threads of one process.

    A line that a kill cut short, and one by another version or by other trackers, counts as none.
    """

    def __init__(self, path: Path, trackers: str) -> None:
        """
        Args:
            path: the file; it need not exist.
            trackers: names of those who measure.
        """
        self._path = path
        self._identity: dict[str, Any] = {"version": MEASURE_VERSION, "trackers": trackers}
        self._lock = threading.Lock()
        self._known = dict(self._read())
        self._torn = _is_torn(path)

    def get(self, key: str) -> Measurement | None:
        """What was measured of this note; None where nothing was."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, measurement: Measurement) -> None:
        """
        Raises:
            OSError: it cannot be written.
        """
        line = json.dumps({"key": key, **self._identity, "measurement": measurement.to_json()}) + "\n"
        with self._lock, self._path.open("ab") as file:
            file.write((("\n" if self._torn else "") + line).encode())
            file.flush()
            self._torn = False
            self._known[key] = measurement

    def _read(self) -> Iterator[tuple[str, Measurement]]:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                found = json.loads(line)
                if {name: found[name] for name in self._identity} == self._identity:
                    yield found["key"], Measurement.from_json(found["measurement"])
            except (ValueError, KeyError, TypeError):
                continue


def _is_torn(path: Path) -> bool:
    """Whether the last line has no end."""
    try:
        with path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) != b"\n"
    except OSError:  # there is no file, or nothing in it
        return False
