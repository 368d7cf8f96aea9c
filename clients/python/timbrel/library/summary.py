"""What became of a job, in figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from timbrel.library.manifest import ManifestRow


@dataclass(frozen=True)
class LibrarySummary:
    """A finished library."""

    folder: str
    n_instruments: int
    n_notes: int
    n_rendered: int
    """Notes that this run asked the server for, further attempts included; the others were there already."""

    seconds: float
    """This run."""

    render_seconds: float
    """Of that, from the first request to the last note kept; notes are measured beside it."""

    n_tuned: int
    """Samples that the sampler is told to tune."""

    n_again: int
    """Samples that needed more than one attempt."""

    n_looped: int
    n_unpitched: int
    """Samples in which neither tracker hears a pitch."""

    out_of_tune: tuple[str, ...]
    """Files further than half a semitone off by every tracker that hears a pitch, after all attempts."""

    notices: tuple[str, ...]
    """What was left out, one line each."""

    @property
    def notes_per_second(self) -> float:
        return self.n_rendered / self.render_seconds if self.render_seconds > 0.0 else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "notes_per_second": round(self.notes_per_second, 3)}

    def to_text(self) -> str:
        lines = [
            f"{self.folder}: {self.n_notes} samples of {self.n_instruments} instruments, "
            f"{self.seconds:.1f} s; {self.n_rendered} notes rendered in {self.render_seconds:.1f} s "
            f"({self.notes_per_second:.1f} a second)",
            f"  {self.n_looped} looped, {self.n_tuned} tuned, {self.n_again} rendered more than once, "
            f"{self.n_unpitched} without a pitch",
        ]
        if self.out_of_tune:
            shown = ", ".join(self.out_of_tune[:5]) + (", ..." if len(self.out_of_tune) > 5 else "")
            lines.append(f"  {len(self.out_of_tune)} out of tune after every attempt: {shown}")
        return "\n".join([*lines, *(f"  {notice}" for notice in self.notices)])


def summarise(
    folder: str,
    rows: Sequence[ManifestRow],
    n_rendered: int,
    seconds: float,
    render_seconds: float,
    notices: Sequence[str],
) -> LibrarySummary:
    """The figures of a library's manifest, beside those of the run."""
    unpitched = [row for row in rows if row.pitch_measured is None and row.pitch_measured_other is None]
    return LibrarySummary(
        folder=folder,
        n_instruments=len({row.instrument for row in rows}),
        n_notes=len(rows),
        n_rendered=n_rendered,
        seconds=round(seconds, 3),
        render_seconds=round(render_seconds, 3),
        n_tuned=sum(row.tune_cents != 0 for row in rows),
        n_again=sum(row.attempts > 1 for row in rows),
        n_looped=sum(row.loop_start is not None for row in rows),
        n_unpitched=len(unpitched),
        out_of_tune=tuple(row.file for row in rows if not row.in_tune and row not in unpitched),
        notices=tuple(notices),
    )
