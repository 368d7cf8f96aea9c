"""What a library holds, in figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LibrarySummary:
    """Counts of one finished library."""

    n_notes: int
    n_instruments: int
    seconds: float  # of audio
    n_cut: int  # notes still sounding where their audio ends
    dropped: Mapping[str, int]  # reason -> notes
    splits: Mapping[str, int]  # split -> notes

    def lines(self) -> list[str]:
        """The summary as lines to print."""
        dropped = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items()) or "none"
        splits = ", ".join(f"{count} {name}" for name, count in self.splits.items())
        return [
            f"{self.n_notes} notes of {self.n_instruments} instruments, {self.seconds / 3600:.2f} hours",
            f"dropped: {dropped}",
            f"split: {splits}",
            f"cut while still sounding: {self.n_cut}",
        ]
