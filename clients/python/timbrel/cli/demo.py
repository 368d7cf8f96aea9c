"""`timbrel demo`: hear what the shipped bundle can do, and see whether it is in tune."""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path

from timbrel.client import Client
from timbrel.demo import (
    PlannedNote,
    RenderedNote,
    draw,
    notes_json,
    plan_notes,
    require_matplotlib,
    summary,
    table,
)
from timbrel.library.render.pitch import TrackerPair, find_trackers
from timbrel.private_server import PrivateServer
from timbrel.progress import bar, counted
from timbrel.settings import Security
from timbrel_bundle.files import atomic_write

N_INSTRUMENTS = 4
N_PITCHES = 4
VELOCITY = 100
HELD_SECONDS = 1.5
SEED = 1

SONG = (
    ((67, 1), (64, 1), (60, 1), (62, 0.5), (64, 0.5), (65, 1), (62, 1), (60, 2)),
    ((48, 2), (55, 2), (50, 2), (48, 2)),
)
"""(MIDI note number, beats) of two voices, the README's violin and cello."""

_EXAMPLES = """\
examples:
  timbrel demo
  timbrel demo --out notes --instruments 8
  timbrel demo --bundle runs/mine/bundle

The instruments and pitches are drawn by a hash of their names: nobody picked them. The folder also gets
spectrograms.png, oboe.wav, song.mid and notes.json with the figures of the table.
"""


class DemoCommand:
    """Starts a server, renders notes through the client, measures them, stops the server."""

    help = "render notes of several instruments, measure their pitch and draw them"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = (
            "Starts a server with the shipped bundle on a free port, renders notes through it, writes them "
            "and a picture of them to a folder, and prints how well each is in tune."
        )
        parser.epilog = _EXAMPLES
        parser.add_argument(
            "--out",
            type=Path,
            default=Path("demo"),
            metavar="DIR",
            help="folder to write (default %(default)s/)",
        )
        parser.add_argument(
            "--instruments", type=int, default=N_INSTRUMENTS, help="how many to draw (default %(default)s)"
        )
        parser.add_argument(
            "--pitches", type=int, default=N_PITCHES, help="how many of each to draw (default %(default)s)"
        )
        parser.add_argument(
            "--bundle",
            metavar="DIR",
            help="bundle to serve; by default TIMBREL_BUNDLE, else the one that ships",
        )

    def run(self, args: argparse.Namespace) -> int:
        if min(args.instruments, args.pitches) < 1:
            raise ValueError("--instruments and --pitches must be at least 1")
        if args.out.exists() and not args.out.is_dir():
            raise ValueError(f"{args.out} is a file, a folder is needed")
        require_matplotlib()
        trackers = find_trackers()
        with (
            PrivateServer(args.bundle) as server,
            Client(server.address, server.token, progress=True, security=Security()) as client,
        ):
            client.prepare()
            plan = plan_notes(client.timbre_map(), args.instruments, args.pitches, client.model().pitch_range)
            if not plan:
                raise ValueError("the bundle's timbre map has no instrument that plays within 36..94")
            args.out.mkdir(parents=True, exist_ok=True)
            results = _render(client, plan, args.out, trackers)
            examples = _write_examples(client, args.out)
        picture = args.out / "spectrograms.png"
        draw(results, picture)
        atomic_write(args.out / "notes.json", notes_json(results).encode())
        print(table(results))
        print(f"\n{counted(len(results), 'note')}, {picture} and notes.json are in {args.out}/")
        print(f"To go on with: {' and '.join(str(args.out / name) for name in examples)}")
        print(summary(results))
        return 0


def _render(
    client: Client, plan: list[PlannedNote], folder: Path, trackers: TrackerPair
) -> list[RenderedNote]:
    shortest, longest = client.model().seconds_range
    held = min(max(HELD_SECONDS, shortest), longest)
    results = []
    with bar("rendering", len(plan), "note") as progress:
        for planned in plan:
            start = time.perf_counter()
            note = client.generate(planned.instrument.name, planned.pitch, VELOCITY, held, SEED)
            audio = note.audio
            elapsed = time.perf_counter() - start
            note.save(folder / planned.file_name)
            measured = trackers.nearest(planned.pitch, audio, note.sample_rate)
            results.append(RenderedNote(planned.file_name, planned.instrument.name, note, measured, elapsed))
            progress.update()
    return results


def _write_examples(client: Client, folder: Path) -> list[str]:
    """Writes what the README's commands read: a note to locate, a song to play; returns the files' names."""
    names = {name.casefold(): name for name in client.instruments()}
    low, high = client.model().pitch_range
    oboe = client.generate(names.get("oboe", next(iter(names.values()))), min(max(70, low), high), seed=SEED)
    oboe.save(folder / "oboe.wav")
    try:
        import mido
    except ImportError:  # then `timbrel play` has to be installed first
        return ["oboe.wav"]
    song = mido.MidiFile(ticks_per_beat=480)
    for channel, line in enumerate(SONG):
        track = song.add_track()
        for pitch, beats in line:
            track.append(mido.Message("note_on", channel=channel, note=pitch, velocity=VELOCITY))
            track.append(mido.Message("note_off", channel=channel, note=pitch, time=int(beats * 480)))
    content = io.BytesIO()
    song.save(file=content)
    atomic_write(folder / "song.mid", content.getvalue())
    return ["oboe.wav", "song.mid"]


command = DemoCommand()
