"""The report of a check of a library."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from timbrel.progress import counted
from timbrel_bundle.errors import printable


@dataclass(frozen=True)
class LibraryFault:
    """One thing that is wrong with a library."""

    file: str
    """Path within the library."""

    kind: str
    """"missing", "unreadable", "hash", "format", "clipping", "silence", "pitch", "loop", "reference", "text",
    "scale" or "level"."""

    description: str


@dataclass(frozen=True)
class ScaleResult:
    """The notes of an instrument that a sampler played."""

    file: str
    sampler: str
    n_played: int
    n_judged: int
    """Notes played whose sample has a pitch that is tracked with confidence."""

    worst_cents: float
    """Largest distance between a played note and its own tuned sample."""

    n_within_15: int
    """Judged notes at most 15 cents off the scale."""

    largest_step_db: float
    """Between the last velocity of a layer and the first of the next."""


@dataclass(frozen=True)
class VerifyReport:
    """The outcome of a check."""

    folder: str
    n_files: int
    """Samples that the manifest names."""

    n_in_tune: int
    n_unpitched: int
    """Samples in which neither tracker hears a pitch."""

    n_looped: int
    n_instruments: int
    trackers: str
    scales: tuple[ScaleResult, ...]
    faults: tuple[LibraryFault, ...]
    notices: tuple[str, ...]
    """Lines about checks that were left out."""

    @property
    def passed(self) -> bool:
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}

    def to_text(self) -> str:
        lines = [f"{fault.file}: {fault.description}" for fault in self.faults]
        lines.extend(self.notices)
        for scale in self.scales:
            keys = (
                f"{scale.sampler} played {counted(scale.n_played, 'key')}; {scale.n_judged} judged: at most "
                f"{scale.worst_cents:.1f} cents from their own samples, {scale.n_within_15} within 15 cents "
                "of the scale"
                if scale.n_played
                else f"{scale.sampler} played its chords"
            )
            lines.append(f"{scale.file}: {keys}; layers meet within {scale.largest_step_db:.1f} dB")
        verdict = "passed" if self.passed else f"FAILED, {counted(len(self.faults), 'fault')}"
        lines.append(
            f"{self.folder}: {verdict}. {counted(self.n_files, 'sample')} of "
            f"{counted(self.n_instruments, 'instrument')}, "
            f"{self.n_in_tune} in tune, {self.n_unpitched} without a pitch, {self.n_looped} looped "
            f"({self.trackers})"
        )
        return "\n".join(map(printable, lines))
