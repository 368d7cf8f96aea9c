"""`timbrel train unpack`: a bundle becomes the folders of the stages that made it, to go on from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from timbrel_export.errors import ExportError
from timbrel_training.stages import add_device_argument, add_folder

CONFIG = "config.toml"

help = "make the folders of all stages from a bundle, to go on from what shipped"

examples = """\
example:
  timbrel train unpack --bundle default --out runs/on
  timbrel train tokens --notes runs/notes --codec runs/on/codec --out runs/on/tokens.bin
  timbrel train unpack --bundle default --out runs/on --tokens runs/on/tokens.bin --notes runs/notes
  timbrel train model --config runs/on/config.toml --init runs/on/model --tokens runs/on/tokens.bin \\
      --timbre runs/on/timbre --out runs/on/further

With --tokens and --notes the bundle's encoder also places these notes on its map, which `train model` needs.
Weights are as they ship, rounded to 16 bits. To train the codec on as well, before it codes the notes:

  timbrel train codec --config runs/on/config.toml --set codec.init=runs/on/codec --notes runs/notes \\
      --out runs/on/codec-further
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--bundle", default="default", metavar="PATH", help="the bundle (default: the one that ships)"
    )
    add_folder(parser, "out", "folder for codec/, timbre/, model/ and config.toml")
    parser.add_argument(
        "--tokens",
        type=Path,
        metavar="PATH",
        help="a token store, made with that codec or one trained on from it",
    )
    parser.add_argument("--notes", type=Path, metavar="PATH", help="the dataset that it was made of")
    add_device_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the folders, and says what is in them."""
    from timbrel_export.bundle_folder import bundle_path

    if (args.tokens is None) != (args.notes is None):
        raise ExportError("--tokens and --notes: both or neither")
    told = unpack(bundle_path(args.bundle), args.out)
    if args.tokens is not None:
        told.append(place_notes(args.out / "timbre", args.tokens, args.notes, args.device))
    print(f"{args.out}:", *told, sep="\n  ")
    return 0


def unpack(bundle_dir: Path, out: Path) -> list[str]:
    """Writes codec/, timbre/, model/ and, unless there is one, config.toml into `out`, and returns a line
    about each. Raises BundleError: no bundle, or a file is missing or altered; ExportError: its model fits
    none that this timbrel can build, or `out` holds other weights; CheckpointError: its codec or its timbre
    encoder fits none."""
    from timbrel_bundle.files import write_message
    from timbrel_bundle.layout import CODEC_WEIGHTS, TIMBRE_REFERENCES
    from timbrel_export.bundle_folder import WRITTEN_SHARE
    from timbrel_posttraining.finetune.base import Base
    from timbrel_training.checkpoint import replace_file, save_weights
    from timbrel_training.codec import registry
    from timbrel_training.codec.interface import WEIGHTS_NAME, codec_hash
    from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
    from timbrel_training.note_training.train import BEST, MODEL
    from timbrel_training.timbre.map import ENCODER, write_chart

    base = Base.open(bundle_dir)
    bundle, manifest = base.bundle, base.bundle.manifest
    encoder, about_encoder = _timbre_encoder(bundle)
    codec, timbre, model = out / "codec", out / "timbre", out / "model"
    made = registry.codec_in_bundle(bundle.file(CODEC_WEIGHTS))
    held, released = tuple(made.held_codes), tuple(made.released_codes)  # older bundles do not say them
    config = replace(base.model.config, held_codes=held, released_codes=released)
    sources = [
        {name: getattr(source, name) for name in ("name", "licence", "n_instruments", "n_notes")}
        for source in manifest.training.sources
    ]
    _check_own(
        (codec, WEIGHTS_NAME, made),
        (timbre, ENCODER, encoder),
        *((model, name, base.model) for name in (MODEL, BEST)),
    )
    about_codec = {"id": made.id, "config": asdict(made.config), "sources": sources}
    save_weights(codec, WEIGHTS_NAME, made, about_codec)
    save_weights(timbre, ENCODER, encoder, {"kind": ENCODER, **about_encoder})
    write_chart(timbre, base.chart)
    if (references := bundle.timbre_references) is not None:
        write_message(references, timbre / TIMBRE_REFERENCES)
    ranges, frame_rate = base.ranges, base.header.frame_rate
    lead = manifest.codec.lead_frames
    # Export writes a share of what was trained on: what it has to be given back for the same bundle.
    longer = (1.0, 1.0 / WRITTEN_SHARE if manifest.model.hold_frames else 1.0)
    shortest_and_longest = zip(ranges.held_frames, longer, strict=True)
    description = {
        "kind": "note_transformer",
        "model": asdict(config),
        "codec_hash": codec_hash(codec),
        "frame_rate": frame_rate,
        "lead_frames": lead,
        "ranges": {
            "pitch": list(ranges.pitch),
            "velocity": list(ranges.velocity),
            "held_seconds": [(frames - lead) / frame_rate * times for frames, times in shortest_and_longest],
        },
        "instruments": [point.instrument for point in base.chart.points],
        "steps": manifest.training.n_steps,
        "config": manifest.training.config,
        "sources": sources,
        "validation": {"held_out": manifest.training.validation_loss},
    }
    for name in (MODEL, BEST):
        save_weights(model, name, base.model, description)
    sections = {"model": asdict(config)}
    if isinstance(made, TimbrelNotes):  # which alone is trained on from another
        sections["codec.codec"] = asdict(made.config)
    lines = ['extends = "cpu"', *(line for section in sections.items() for line in _section(*section))]
    if not (is_kept := (out / CONFIG).exists()):  # it may have been edited
        replace_file(out / CONFIG, lambda path: path.write_text("\n".join(lines) + "\n", encoding="utf-8"))
    return [
        f"codec/   {manifest.codec.id}",
        f"timbre/  encoder and map of {len(base.chart.points)} instruments",
        f"model/   {base.model.n_parameters / 1e6:.1f} M parameters",
        f"{CONFIG}   {'kept as it was' if is_kept else 'the sizes of model and codec, for --config'}",
    ]


def _section(name: str, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a config's section, then of those within it; what is None is left out."""
    yield from ("", f"[{name}]")
    within = {key: value for key, value in fields.items() if isinstance(value, dict)}
    for key, value in fields.items():
        if value is not None and key not in within:
            yield f"{key} = {json.dumps(value)}"
    for key, value in within.items():
        yield from _section(f"{name}.{key}", value)


def _check_own(*weights: tuple[Path, str, nn.Module]) -> None:
    """Raises ExportError where a folder holds weights of the name that are not these."""
    for folder, name, module in weights:
        path = folder / f"{name}.safetensors"
        tensors = {key: value.contiguous().clone() for key, value in module.state_dict().items()}
        if path.is_file() and path.read_bytes() != save(tensors):
            raise ExportError(f"{path}: holds other weights than the bundle's; choose another --out")


def place_notes(timbre: Path, tokens: Path, notes: Path, device: str) -> str:
    """Places notes with the encoder of a stage-1 folder, leaves their points there, and says so. Raises
    CheckpointError: the folder is no finished stage 1; TrainingError: the tokens are not of these notes."""
    from timbrel_training.loop import pick_device
    from timbrel_training.notes.dataset import NoteDataset
    from timbrel_training.timbre.features import library_features, locate
    from timbrel_training.timbre.map import read_chart, write_map
    from timbrel_training.timbre.train import check_same_notes, load_encoder
    from timbrel_training.tokens.table import TokenTable

    table, library = TokenTable.read(tokens), NoteDataset(notes)
    check_same_notes(table, library)
    where = pick_device(device)
    encoder = load_encoder(timbre).to(where)
    points = locate(encoder, library_features(timbre, encoder, library), np.arange(table.n_notes), where)
    write_map(timbre, read_chart(timbre), points, table)
    return f"{table.n_notes} notes placed"


def _timbre_encoder(bundle: Any) -> tuple[Any, dict[str, Any]]:
    """Makes a bundle's timbre encoder again; returns it and its description."""
    from timbrel_bundle.layout import TIMBRE_WEIGHTS
    from timbrel_training.checkpoint import no_larger_than
    from timbrel_training.errors import CheckpointError
    from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig

    path = bundle.file(TIMBRE_WEIGHTS)
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["config"])
        if "n_channels" not in about["encoder"]:
            raise ValueError("its layers are of an older timbrel; unpack with the one that exported it")
        config = TimbreEncoderConfig(**about["encoder"])
        with no_larger_than(path):
            encoder = TimbreEncoder(config, about["sample_rate"], about["n_instruments"])
        encoder.load_state_dict({name: each.float() for name, each in load_file(path).items()})
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: no timbre encoder that this timbrel can make again ({reason})"
        ) from error
    return encoder.eval(), about
