"""The .sfz file: text that Sforzando, sfizz, ARIA, LinuxSampler and others play. One opcode a line."""

from __future__ import annotations

from collections.abc import Iterator

from timbrel.library.region import Region, SamplerInstrument


def sfz_text(instrument: SamplerInstrument) -> str:
    """The whole file. Every region states its loop mode, its tuning and its zones."""
    return "\n".join(_lines(instrument)) + "\n"


def _lines(instrument: SamplerInstrument) -> Iterator[str]:
    yield f"// {instrument.name}"
    yield f"// {instrument.comment}"
    yield ""
    yield "<global>"
    yield f"amp_veltrack={instrument.velocity_tracking}"
    yield f"ampeg_release={instrument.release_seconds:.3f}"
    if instrument.round_robins > 1:
        yield f"seq_length={instrument.round_robins}"
    for region in instrument.regions:
        yield ""
        yield "<region>"
        yield from _region_lines(region, instrument.round_robins)


def _region_lines(region: Region, round_robins: int) -> Iterator[str]:
    yield f"sample={region.file}"
    yield f"pitch_keycenter={region.pitch}"
    yield f"lokey={region.keys[0]}"
    yield f"hikey={region.keys[1]}"
    yield f"lovel={region.velocities[0]}"
    yield f"hivel={region.velocities[1]}"
    yield f"tune={region.tune}"
    if round_robins > 1:
        yield f"seq_position={region.round_robin}"
    yield f"loop_mode={region.loop_mode}"
    if region.loop is not None:
        yield f"loop_start={region.loop[0]}"
        yield f"loop_end={region.loop[1]}"
