"""The text of a model card (Mitchell et al., 2019, "Model Cards for Model Reporting"), from an evaluation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.files import atomic_write
from timbrel_bundle.manifest import heard_seconds, written_ranges
from timbrel_posttraining.evaluate import evaluation
from timbrel_posttraining.evaluate.report import show_number
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.config import NAMED
from timbrel_training.errors import TrainingError

LIMITS = """
## What it cannot do

- It plays single notes, each with an attack of its own: chords are several notes, and legato is not learnt.
{moves}{source}- An instrument is one voice, as its source plays it: it knows the pianos of the table above,
  not the piano.
- Loudness follows the sources' own velocity curves. The lowest velocities are almost silent where theirs are.
- What lies outside the ranges above was never trained and is refused.
"""

FIXED_TIMBRE = "- The timbre is fixed for a note's whole length; a morph is a series of notes.\n"
"""Of a codec whose notes cannot move over the map."""

SOURCE = """\
- Sounds are partials and filtered noise, up to 224 partials, the lowest 64 of them where they are in stiff
  strings, bars and bells. Drums, speech and chords within one sound are beyond it.
- Vibrato, beating and tremolo are the most alike of a fixed set of movements of real notes, not the
  instrument's very own.
"""
"""Of a codec that bends, since it plays a source."""

DEPARTURES = """
## After pGESAM, and where it departs

The model follows pGESAM (Limberg et al., DAFx 2025): a two-dimensional timbre space learnt first, then a
Transformer that writes a note's codec frames from a point and a pitch.

| | pGESAM | here |
|---|---|---|
| predicts | continuous 128-d codec vectors, by mean-squared error | codec tokens, by cross-entropy |
| variation | none | sampling with a seed: temperature, top-k, top-p |
{pitch}| velocity | one | continuous |
| pitches | 25 | {n_pitches} |
| length | 4 s, fixed | held for {held}, then a release of learned length |
| decoding | recomputes everything at each step | KV cache in a static arena, batched across requests |
| codec | EnCodec, 24 kHz | `{codec.id}`, {codec.sample_rate} Hz |

pGESAM's own published demo notes are 75 % in tune within 50 cents by swift-f0, measured as here.
"""


FINE_TUNED = re.compile(r"; fine-tuned from (?P<base>[^;]+) by config (?P<config>[^;]+)$")
"""The last step that `timbrel train finetune` adds to the account of a training."""

OTHERS = (
    "That is {n_heard} instruments, of which the map names {n_named}: the others were held out, are much "
    "like one of another source, or are recordings by which the timbre encoder alone learns to "
    "tell instruments."
)
"""Of sources with more instruments than there are on the map."""

PITCH = "| pitch | learnt | the fundamental is coded relative to the pitch asked |\n"
"""Of a codec that codes the fundamental."""


def read_evaluation(folder: Path, manifest: pb.Manifest) -> tuple[Mapping[str, Any], str]:
    """Reads from `folder` the report on a bundle, and the picture of its map as SVG. Raises TrainingError:
    there is none, it is damaged, or it judged another bundle."""
    try:
        report = json.loads((folder / evaluation.REPORT_JSON).read_text("utf-8"))
        picture = (folder / evaluation.MAP_PICTURE).read_text("utf-8")
        judged = str(report["bundle_hash"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{folder}: holds no finished evaluation ({error}); run `timbrel train evaluate --out {folder}`"
        ) from error
    if judged != manifest.bundle_hash:
        raise TrainingError(
            f"{folder}: judged bundle {judged[:12]}, this one is {manifest.bundle_hash[:12]}; "
            "evaluate it, then write the card"
        )
    return report, picture


def write_card(folder: Path, evaluated: Path) -> Path:
    """Writes the card and the picture of the map into a bundle's folder; returns the card's path. Raises
    BundleError: the folder holds no bundle; TrainingError: `evaluated` holds no evaluation of this bundle."""
    bundle = Bundle.open(folder)
    report, picture = read_evaluation(evaluated, bundle.manifest)
    atomic_write(folder / layout.MAP_PICTURE, picture)
    atomic_write(folder / layout.MODEL_CARD, model_card(bundle.manifest, bundle.timbre_map, report))
    return folder / layout.MODEL_CARD


def model_card(manifest: pb.Manifest, timbre_map: pb.TimbreMap, report: Mapping[str, Any]) -> str:
    """Writes the card of a bundle, with the report of `timbrel train evaluate`, as Markdown."""
    parts = (
        _head(manifest),
        _instruments(timbre_map),
        _data(manifest, len(timbre_map.points)),
        _verdict(report),
        _figures(report),
        LIMITS.format(
            moves="" if manifest.codec.moves else FIXED_TIMBRE, source=SOURCE if manifest.codec.bends else ""
        ),
        _departures(manifest),
        _reproduction(manifest),
    )
    return (
        "\n\n".join("\n".join(part) if not isinstance(part, str) else part.strip() for part in parts) + "\n"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Writes the lines of a Markdown table."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in row)} |"


def _head(manifest: pb.Manifest) -> list[str]:
    codec, model, ranges = manifest.codec, manifest.model, manifest.ranges
    rate = codec.sample_rate / codec.hop_length
    size = sum(file.size for file in manifest.files) / 1e6
    facts = [
        ("bundle", f"{manifest.name}, `{manifest.bundle_hash[:12]}`, {size:.1f} MB"),
        ("writes", "single notes: timbre (a point of the map), pitch, velocity, seconds held, seed"),
        ("pitch", f"MIDI {ranges.pitch_min} to {ranges.pitch_max}"),
        ("velocity", f"{ranges.velocity_min} to {ranges.velocity_max}"),
        (
            "seconds held",
            f"{ranges.seconds_min:g} to {ranges.seconds_max:g}; the model writes keys held for up to "
            f"{written_ranges(manifest).seconds_max:.1f}, and {heard_seconds(model.max_frames, codec):.1f} s "
            f"of a note at most",
        ),
        (
            "codec",
            f"{codec.id}: {codec.sample_rate} Hz, {rate:g} frames/s, "
            f"{codec.n_codebooks} codebooks of {codec.codebook_size}, "
            f"{1000 * codec.delay_samples / codec.sample_rate:.1f} ms behind its codes",
        ),
        (
            "model",
            f"encoder-decoder Transformer, {model.n_parameters / 1e6:.1f} M parameters: "
            f"width {model.d_model}, {model.n_decoder_layers} decoder and {model.n_encoder_layers} encoder "
            f"layers, {model.n_heads} heads, {model.n_kv_heads} for keys and values",
        ),
        ("training", f"{manifest.training.n_steps} steps, config {manifest.training.config or 'of its own'}"),
    ]
    return [f"# Model card: {manifest.name}", "", *table(("", ""), facts)]


def _instruments(timbre_map: pb.TimbreMap) -> list[str]:
    by_family: dict[str, list[str]] = {}
    for point in timbre_map.points:
        by_family.setdefault(point.family, []).append(point.instrument)
    rows = [(family, ", ".join(sorted(names))) for family, names in sorted(by_family.items())]
    return [
        f"## Instruments ({len(timbre_map.points)})",
        "",
        f"![The timbre map]({layout.MAP_PICTURE})",
        "",
        *table(("family", "instruments"), rows),
    ]


def _data(manifest: pb.Manifest, n_named: int) -> list[str]:
    sources = manifest.training.sources
    rows = [(source.name, source.n_instruments, source.n_notes, source.licence) for source in sources]
    lines = ["## Trained on", "", *table(("source", "instruments", "notes", "licence"), rows)]
    if (n_heard := sum(source.n_instruments for source in sources)) > n_named:
        lines += ["", OTHERS.format(n_heard=n_heard, n_named=n_named)]
    return lines


def _verdict(report: Mapping[str, Any]) -> list[str]:
    judged = [
        (section["title"], report["figures"][name])
        for section in report["sections"].values()
        for name in section["figures"]
        if report["figures"][name]["bar"] is not None
    ]
    met, missed, unknown = (
        [each for each in judged if each[1]["met"] is is_met] for is_met in (True, False, None)
    )
    count = report["settings"]["count"]
    lines = [
        "## How good it is",
        "",
        f"Judged by `timbrel train evaluate --count {count}`: every note written once by the engine with its "
        "default sampling, with a seed made of what the note is, at the instrument's published point. "
        "Intervals are 95 % bootstrap intervals. "
        f"{len(met)} of {len(judged)} bars are met.",
    ]
    for heading, figures in (("Missed", missed), ("Not measured", unknown)):
        if figures:
            lines += ["", f"{heading}:", "", *(f"- {_sentence(title, figure)}" for title, figure in figures)]
    return lines


def _sentence(title: str, figure: Mapping[str, Any]) -> str:
    return f"{title}, {figure['label']}: {_value(figure)}; the bar is {_bar(figure)}."


def _figures(report: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for section in report["sections"].values():
        figures = [report["figures"][name] for name in section["figures"]]
        rows = [(figure["label"], _value(figure), _bar(figure), _mark(figure)) for figure in figures]
        lines += [f"### {section['title']}", "", section["method"], ""]
        lines += [*table(("", "measured", "bar", ""), rows), ""]
        for breakdown in section["tables"]:
            shown = [[_cell(cell) for cell in row] for row in breakdown["rows"]]
            lines += [f"{breakdown['title']}:", "", *table(breakdown["columns"], shown), ""]
    return lines[:-1]


def _value(figure: Mapping[str, Any]) -> str:
    value, low, high, unit = (figure[key] for key in ("value", "low", "high", "unit"))
    if value is None:
        return "not measured"
    if low is None or high is None:
        return show_number(value, unit)
    return f"{show_number(value, unit)} ({show_number(low, unit)} to {show_number(high, unit)})"


def _bar(figure: Mapping[str, Any]) -> str:
    return "" if figure["bar"] is None else f"{figure['bar_is']} {show_number(figure['bar'], figure['unit'])}"


def _mark(figure: Mapping[str, Any]) -> str:
    return {True: "met", False: "**missed**", None: ""}[figure["met"]]


def _cell(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def _departures(manifest: pb.Manifest) -> str:
    ranges = manifest.ranges
    return DEPARTURES.format(
        pitch=PITCH if manifest.model.codes_per_semitone else "",
        n_pitches=ranges.pitch_max - ranges.pitch_min + 1,
        held="as long as asked" if manifest.model.hold_frames else f"up to {ranges.seconds_max:g} s",
        codec=manifest.codec,
    )


def _reproduction(manifest: pb.Manifest) -> list[str]:
    """Returns how to come to such a bundle: from nothing by a configuration of ours, from the bundle that it
    was fine-tuned from, else from the bundle itself."""
    config = manifest.training.config or "cpu"
    commit, dash, state = manifest.git_revision.partition("-")
    if tuned := FINE_TUNED.search(config):
        how = [
            "    timbrel train finetune --from-bundle BASE --source folder:SAMPLES "
            f"--config {tuned['config']} --out BUNDLE",
            "",
            f"teaches BASE, which is {tuned['base']}, samples such as those of the last source above. "
            f"The whole way: {config}.",
        ]
    elif config in NAMED:
        how = [
            "    apt-get install fluidsynth fluid-soundfont-gm musescore-general-soundfont",
            f"    make pretrain CONFIG={config}",
            "",
            "renders the notes, trains the codec, the map and the model, exports the bundle, judges it and "
            "writes this card.",
        ]
    else:
        how = [
            "    timbrel train unpack --bundle BUNDLE --out runs/on",
            "",
            "makes the folders of all its stages, to go on from. It was trained so itself, or by a "
            f"configuration of its own ({config}); `make pretrain` trains one from nothing.",
        ]
    exported = f"It was exported from revision `{commit[:12]}{dash}{state}`." if commit else ""
    repeats = "Training on a CPU repeats bit for bit only on a like CPU."
    return ["## Make it again", "", *how[:-1], " ".join(filter(None, (how[-1], exported, repeats)))]
