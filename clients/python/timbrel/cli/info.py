"""`timbrel info`: what a server serves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from timbrel.cli import options
from timbrel.core.model import Model
from timbrel.core.timbre import Instrument
from timbrel.progress import counted

_EXAMPLES = """\
examples:
  timbrel info
  timbrel info --server studio:50051
  timbrel info --json | jq ".instruments[].name"
"""


class InfoCommand:
    """Shows the bundle, the engine and the instruments."""

    help = "show the model, its ranges and its instruments"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = "Shows the bundle that is served, the engine that runs it, and its instruments."
        parser.epilog = _EXAMPLES
        options.add_json_option(parser)
        options.add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        with options.client_of(args) as client:
            model, instruments = client.model(), client.timbre_map()
        if args.json:
            options.print_json(as_facts(model, instruments))
        else:
            print(as_text(model, instruments))
        return 0


def as_facts(model: Model, instruments: Sequence[Instrument]) -> dict[str, Any]:
    """One object: "model" and "instruments", with the fields of the classes of these names."""
    return {"model": asdict(model), "instruments": [asdict(instrument) for instrument in instruments]}


def as_text(model: Model, instruments: Sequence[Instrument]) -> str:
    lines = [f"{name:<12}{value}" for name, value in _facts(model)]
    lines.append(f"\n{counted(len(instruments), 'instrument')}")
    lines.extend(_instrument_lines(instruments))
    return "\n".join(lines)


def _facts(model: Model) -> Iterator[tuple[str, str]]:
    sampling = asdict(model.default_sampling).items()
    yield "bundle", f"{model.name} ({model.bundle_hash[:12]})"
    yield "parameters", f"{model.n_parameters / 1e6:.2f} million"
    yield (
        "codec",
        f"{model.codec}, {model.sample_rate} Hz, {model.frame_rate:g} frames/s, "
        f"{model.n_codebooks} codebooks of {model.codebook_size}",
    )
    yield (
        "engine",
        f"{model.provider}, {model.precision}, {counted(model.n_slots, 'slot')}, {model.decoder_graph}",
    )
    yield "server", f"timbrel {model.server_version}"
    yield "pitch", _range(model.pitch_range)
    yield "velocity", _range(model.velocity_range)
    play = ", played live without end unless the server bounds it" if model.holds_on else ""
    yield "seconds", f"{_range(model.seconds_range)} held{play}; a note is cut at {model.max_seconds:.1f}"
    drawn = ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in sampling)
    yield "sampling", f"{drawn} by default"
    for source in model.sources:
        yield "trained on", f"{source.name}: {counted(source.n_notes, 'note')}, {source.licence}"


def _range(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:g}..{bounds[1]:g}"


def _instrument_lines(instruments: Sequence[Instrument]) -> Iterator[str]:
    """One line an instrument, family by family."""
    width = max((len(instrument.name) for instrument in instruments), default=0)
    family = None
    for instrument in sorted(instruments, key=lambda each: (each.family, each.name)):
        if instrument.family != family:
            family = instrument.family
            yield f"  {family}"
        x, y = instrument.timbre
        pitches = f"{instrument.pitch_min}..{instrument.pitch_max}"
        yield f"    {instrument.name:<{width}}  ({x:+.2f}, {y:+.2f})  {pitches}"


command = InfoCommand()
