"""A performance in words, and as facts for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timbrel.core.model import Model
from timbrel.performance.instrumentation import PROGRAMS
from timbrel.performance.mix import NORMAL_PEAK_DB
from timbrel.performance.perform import Performance, PerformanceOptions
from timbrel.progress import counted


def as_text(
    path: Path, performance: Performance, options: PerformanceOptions, model: Model, elapsed_seconds: float
) -> str:
    """Says what was written and who played, and in a line each what the file has and the sound has not."""
    plan = performance.plan
    speed = performance.seconds / elapsed_seconds
    first = (
        f"{path}: {performance.seconds:.2f} s, {counted(plan.n_notes, 'note')} "
        f"({len(plan.entries)} different), peak {performance.peak_db + performance.gain_db:.1f} dBFS, "
        f"seed {options.seed} ({elapsed_seconds:.2f} s, {speed:.1f} x real time)"
    )
    return "\n".join([first, *_part_lines(performance), *_remarks(performance, options, model)])


def as_facts(
    path: Path, performance: Performance, options: PerformanceOptions, elapsed_seconds: float
) -> dict[str, Any]:
    """The same for --json."""
    plan, counts = performance.plan, _notes_by_part(performance)
    return {
        "file": str(path),
        "seconds": round(performance.seconds, 6),
        "sample_rate": performance.sample_rate,
        "channels": 2,
        "seed": options.seed,
        "notes": plan.n_notes,
        "rendered": len(plan.entries),
        "parts": [
            {
                "channel": part.channel,
                "program": part.program,
                "program_name": part.program_name,
                "player": part.player,
                "timbre": list(part.timbre),
                "chosen_by": part.reason,
                "notes": counts[part.channel, part.program],
            }
            for part in performance.parts
        ],
        "drums_by": str(options.drums) if performance.with_drums else None,
        "skipped": {
            "drums": 0 if performance.with_drums else plan.n_drums,
            "effects": plan.n_effects,
            "out_of_range": 0 if options.fold else plan.n_out_of_range,
        },
        "folded": plan.n_out_of_range if options.fold else 0,
        "stretched": plan.n_stretched,
        "lengthened": plan.n_long - performance.n_cut,
        "cut": performance.n_cut,
        "unbent": plan.n_unbent,
        "silent": performance.n_silent,
        "not_performed": dict(performance.score.unperformed),
        "remarks": list(performance.score.remarks),
        "peak_db": round(performance.peak_db + performance.gain_db, 3),
        "gain_db": round(performance.gain_db, 3),
        "elapsed_seconds": round(elapsed_seconds, 3),
    }


def _part_lines(performance: Performance) -> Iterator[str]:
    counts = _notes_by_part(performance)
    width = max((len(part.player) for part in performance.parts), default=0)
    for part in performance.parts:
        notes = counted(counts[part.channel, part.program], "note")
        nearest = f", nearest to the file's {part.program_name}"
        why = {"nearest": nearest, "same name": ", as the file has it"}.get(part.reason, "")
        yield f"  channel {part.channel:>2}  {part.player:<{width}}  {notes}{why}"


def _remarks(performance: Performance, options: PerformanceOptions, model: Model) -> Iterator[str]:
    plan, (lowest, highest) = performance.plan, model.pitch_range
    for channel, count in sorted(plan.drums.items()):
        tracks = ", ".join(performance.score.track_names.get(channel, ()))
        yield f"  channel {channel} ({tracks}): {counted(count, 'drum note')}" + (
            f" played by FluidSynth with {options.drums}"
            if performance.with_drums
            else " left out (--drums FONT.sf2 plays them)"
        )
    for (channel, program), count in sorted(plan.effects.items()):
        notes = f"  channel {channel}: {counted(count, 'note')} of {PROGRAMS[program]} left out"
        yield f"{notes}: no instrument is near it (--timbre {channel}=NAME plays them)"
    if plan.n_stretched:
        notes = f"  {counted(plan.n_stretched, 'note')} outside of {lowest}..{highest}"
        yield f"{notes} bent from the nearest pitch (--fold transposes by octaves)"
    if plan.n_out_of_range:
        notes = f"  {counted(plan.n_out_of_range, 'note')} outside of {lowest}..{highest}"
        yield notes + (
            " transposed by octaves" if options.fold else " left out (--fold transposes by octaves)"
        )
    if performance.n_cut:
        yield (
            f"  {counted(performance.n_cut, 'note')} let go after {model.seconds_range[1]:g} s, the bundle's "
            "longest hold: no loop was found in them"
        )
    if plan.n_unbent:
        yield f"  {counted(plan.n_unbent, 'note')} not bent: the bundle's codec does not bend"
    if performance.n_silent:
        yield f"  {counted(performance.n_silent, 'note')} came out silent: another --seed may sound"
    if performance.score.unperformed:
        missed = (f"{name} ({count})" for name, count in performance.score.unperformed.items())
        yield f"  not performed: {', '.join(missed)}"
    for remark in performance.score.remarks:
        yield f"  the file: {remark}"
    if performance.gain_db:
        reason = "it would have clipped" if performance.peak_db > 0.0 else "--normalize"
        yield (
            f"  level changed by {performance.gain_db:+.1f} dB to a peak of {NORMAL_PEAK_DB:g} dBFS: {reason}"
        )


def _notes_by_part(performance: Performance) -> Counter[tuple[int, int]]:
    """Notes played, by channel and program."""
    played = (note for notes in performance.plan.entries.values() for note in notes)
    return Counter((note.channel, note.program) for note in played)
