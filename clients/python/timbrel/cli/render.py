"""`timbrel render`: one note to a file, or a morph to several."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timbrel.audio import check_audio_target, write_audio
from timbrel.cli import options
from timbrel.client import Client
from timbrel.core.request import NoteRequest
from timbrel.core.timbre import parse_timbre
from timbrel.core.timbre import path as points_along
from timbrel.errors import refusal
from timbrel.library.plan.voice import tell_untrained
from timbrel.note import Note
from timbrel.pitch import parse_pitch
from timbrel_bundle.request_fields import REQUEST_FIELDS, SAMPLING_FIELDS

_EXAMPLES = """\
examples:
  timbrel render --timbre Violin --pitch 60 --out note.wav
  timbrel render --timbre "0.2,-0.4" --pitch 48 --velocity 80 --seconds 3 --seed 1 --out low.flac
  timbrel render --timbre Flute --pitch F#5 --temperature 0 --server studio:50051 --out flute.wav
  timbrel render --timbre Flute --sample-rate 44100 --out flute.ogg
  timbrel render --timbre Violin --pitch "C3,E3,G3" --out chord.wav    a chord
  timbrel render --timbre Violin --cents "0:0,0.5:200" --out slide.wav   a tone up within half a second
  timbrel render --timbre Violin --move 0.5:Violin --move 1.5:Trumpet --out moving.wav    while it sounds
  timbrel render --morph Violin:Trumpet --steps 5 --out morph.wav       morph-1.wav to morph-5.wav
  timbrel render --timbre Oboe --out oboe.wav --json | jq ".notes[0].seed"

The same command with the same --seed writes the same bytes (as .ogg: the same sound). `timbrel info` lists
the instruments and ranges.
"""

SHOWN = " (default %(default)s)"

DEFAULT_STEPS = 5
MOST_STEPS = 1000


class RenderCommand:
    """Renders notes and says how long they are and how long it took."""

    help = "render a note, a chord or a morph to .wav, .flac or .ogg"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = (
            "Renders one note to a .wav or .flac (24 bit) or .ogg file, or the notes between two timbres."
        )
        parser.epilog = _EXAMPLES
        _add_note(parser)
        _add_sampling(parser)
        _add_files(parser)
        options.add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        timbres = _timbres(args)
        paths = _paths(args, len(timbres))
        pitches = [parse_pitch(text) for text in args.pitch.split(",")]
        with options.client_of(args) as client:
            requests = _requests(args, client, timbres, pitches)
            client.prepare()
            start = time.perf_counter()
            notes = list(client.generate_many(requests, progress=len(requests) > 1))
            duration = sum(note.duration for note in notes)
            elapsed = time.perf_counter() - start
            sounding = [*timbres, *(timbre for _, timbre in requests[0].path)]
            named = [timbre for timbre in sounding if isinstance(timbre, str)]
            if untrained := tell_untrained(named, client.timbre_map(), pitches):
                print(f"timbrel: {untrained}", file=sys.stderr)
        chords = [notes[start : start + len(pitches)] for start in range(0, len(notes), len(pitches))]
        for path, chord in zip(paths, chords, strict=True):
            write_audio(path, _mixed(chord), chord[0].sample_rate, args.sample_rate)
        if args.json:
            options.print_json(_facts(paths, chords, args.sample_rate, elapsed))
        else:
            print(
                "\n".join(_lines(paths, chords)) + f" ({elapsed:.2f} s, {duration / elapsed:.1f} x real time)"
            )
        return 0


def _timbres(args: argparse.Namespace) -> list[tuple[float, float] | str]:
    """The timbre, or the corners of a morph; whatever can be refused without a server is."""
    missing = [
        option
        for option, given in (("--timbre (or --morph)", args.timbre or args.morph), ("--out", args.out))
        if not given
    ]
    if missing:
        raise ValueError(f"these options are needed: {', '.join(missing)} (see timbrel render --help)")
    if args.timbre and args.morph:
        raise ValueError("--timbre and --morph exclude each other")
    if args.move and args.morph:
        raise ValueError("--move goes with --timbre: it moves within one note, --morph from note to note")
    if args.steps is not None and not args.morph:
        raise ValueError("--steps is for --morph")
    if args.timbre:
        return [parse_timbre(args.timbre)]
    corners = [parse_timbre(part) for part in args.morph.split(":")]
    if len(corners) < 2:
        raise refusal("morph", f"must be A:B, instruments or points, got {args.morph!r}")
    return corners


def _paths(args: argparse.Namespace, n_timbres: int) -> list[Path]:
    """A file for each note: NAME-1.wav, NAME-2.wav for a morph."""
    path = check_audio_target(args.out, args.sample_rate)
    if n_timbres == 1:
        return [path]
    steps = DEFAULT_STEPS if args.steps is None else args.steps
    if not 2 <= steps <= MOST_STEPS:
        raise refusal("steps", f"{steps} are not allowed; 2 to {MOST_STEPS} are")
    width = len(str(steps))
    return [path.with_name(f"{path.stem}-{step:0{width}}{path.suffix}") for step in range(1, steps + 1)]


def _requests(
    args: argparse.Namespace,
    client: Client,
    timbres: Sequence[tuple[float, float] | str],
    pitches: Sequence[int],
) -> list[NoteRequest]:
    """The notes of each file in turn: one timbre after the other, with each pitch of the chord."""
    points = list(timbres)
    if args.morph:
        corners = [client.point(timbre) for timbre in timbres]
        points = [*points_along(corners, args.steps or DEFAULT_STEPS)]
    path = [_moved(text) for text in args.move]
    numbers = {field.name: getattr(args, field.name) for field in REQUEST_FIELDS}
    first = NoteRequest(points[0], **{**numbers, "pitch": pitches[0]}).seeded()
    ways = [[(0.0, point), *path] if path else point for point in points]
    return [replace(first, timbre=way, pitch=pitch) for way in ways for pitch in pitches]


def _moved(text: str) -> tuple[float, tuple[float, float] | str]:
    """Reads 0.5:Flute."""
    seconds, _, timbre = text.partition(":")
    try:
        if timbre.strip():
            return float(seconds), parse_timbre(timbre)
    except ValueError:
        pass
    raise refusal("move", f"must be SECONDS:TIMBRE, such as 0.5:Flute, got {text!r}")


def _mixed(chord: Sequence[Note]) -> npt.NDArray[np.float32]:
    """The sound of one note, or of several at once: their sum, at -1 dBFS where it would clip."""
    if len(chord) == 1:
        return chord[0].audio
    mix = np.zeros(max(len(note.audio) for note in chord), np.float32)
    for note in chord:
        mix[: len(note.audio)] += note.audio
    peak = float(np.abs(mix).max(initial=0.0))
    return mix if peak <= 1.0 else mix * np.float32(10.0 ** (-1 / 20) / peak)


def _lines(paths: Sequence[Path], chords: Sequence[Sequence[Note]]) -> list[str]:
    """One for each file."""
    lines = []
    for path, chord in zip(paths, chords, strict=True):
        note = chord[0]
        x, y = note.timbre
        place = f", timbre ({x:.3f}, {y:.3f})" if len(chords) > 1 else ""
        cut = ", cut at the bundle's cap" if any(each.truncated for each in chord) else ""
        pitch = ", ".join(str(each.pitch) for each in chord)
        lines.append(
            f"{path}: {_duration(chord):.2f} s{place}, pitch {pitch}, velocity {note.velocity}, "
            f"seed {note.seed}{cut}"
        )
    return lines


def _facts(
    paths: Sequence[Path], chords: Sequence[Sequence[Note]], sample_rate: int | None, elapsed_seconds: float
) -> dict[str, Any]:
    """The object that --json prints."""
    return {
        "notes": [
            {
                "file": str(path),
                "timbre": list(note.timbre),
                "path": note.path,
                "pitch": note.pitch if len(chord) == 1 else [each.pitch for each in chord],
                "velocity": note.velocity,
                "held_seconds": note.seconds,
                "seconds": round(_duration(chord), 6),
                "sample_rate": sample_rate or note.sample_rate,
                "seed": note.seed,
                "cents": note.cents,
                "truncated": any(each.truncated for each in chord),
            }
            for path, chord in zip(paths, chords, strict=True)
            for note in chord[:1]
        ],
        "elapsed_seconds": round(elapsed_seconds, 3),
    }


def _duration(chord: Sequence[Note]) -> float:
    return max(note.duration for note in chord)


def _add_note(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("note")
    group.add_argument("--timbre", metavar="X,Y|NAME", help="a point of the unit disc, or an instrument")
    group.add_argument(
        "--move",
        action="append",
        default=[],
        metavar="SECONDS:TIMBRE",
        help="what the timbre has become then, from what it was before; several are a path",
    )
    group.add_argument(
        "--morph",
        metavar="A:B",
        help="from one timbre to another (or A:B:C through several): one file a step",
    )
    group.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help=f"notes of a morph, both ends included (default {DEFAULT_STEPS})",
    )
    group.add_argument(
        "--pitch",
        default=str(NoteRequest.pitch),
        metavar="NOTE[,NOTE...]",
        help="MIDI note number or name: 60 is C4; several are a chord (default %(default)s)",
    )
    remarks = {"velocity": SHOWN, "seconds": SHOWN}
    remarks["cents"] = ": a number, or a bend as points SECONDS:CENTS with commas between" + SHOWN
    options.add_number_options(group, remarks, remarks)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    names = ["seed", *(field.name for field in SAMPLING_FIELDS)]
    options.add_number_options(group, names, {"seed": " (default: drawn and printed)"})


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("file")
    group.add_argument("--out", metavar="FILE", help="the file to write: .wav, .flac or .ogg")
    options.add_sample_rate_option(group)
    options.add_json_option(parser)


command = RenderCommand()
