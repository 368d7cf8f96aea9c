"""`timbrel library`: whole instruments, for samplers."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from timbrel import Client, NoteRequest, Security
from timbrel.cli.options import add_bundle_option, add_number_options
from timbrel.core.timbre import Instrument, parse_timbre
from timbrel.errors import FieldViolation, InvalidRequestError, refusal
from timbrel.library import SAMPLE_FORMATS, BuildOptions, LibraryJob, ModelIdentity, Voice, build_library
from timbrel.library.finish import shards
from timbrel.library.plan.folder import LibraryFolder
from timbrel.library.plan.job import check_job
from timbrel.library.plan.ranges import parse_chords, parse_pitches, parse_velocities
from timbrel.library.plan.voice import (
    NamedPoint,
    grid_points,
    name_voices,
    parse_path,
    path_points,
    tell_untrained,
)
from timbrel.library.render import source as sources
from timbrel.library.render.hold import LASTING_SECONDS, LONGEST_SECONDS
from timbrel.private_server import BUNDLE_VARIABLE, PrivateServer
from timbrel.scala import EQUAL_TEMPERAMENT, KeyCents, read_tuning
from timbrel_bundle.request_fields import FIELD, SAMPLING_FIELDS, SamplingSettings
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

_EXAMPLES = """\
examples:
  timbrel library --timbre Violin --out violin
  timbrel library --timbre Violin --pitches 48-84:3 --velocities "40,80,120" --out violin
  timbrel library --timbre Flute --timbre Oboe --timbre "0.2,-0.4" --pitches C3-C6:4 --out winds
  timbrel library --path "Flute:-0.5,0.3:8" --pitches "60,72" --out morph   eight steps from one to the other
  timbrel library --grid 12 --pitches 60 --velocities 100 --out map       the whole disc, 12 points across
  timbrel library --all --round-robins 4 --server studio:50051 --server attic:50051 --out everything
  timbrel library --all --pitches 36-96 --velocities 20-120:20 --engine ray --out s3://bucket/notes
  timbrel library --timbre Violin --chords "maj,min,7" --sf2 --out violin   chords on single keys; an .sf2
  timbrel library --timbre Violin --cents -31 --out violin                lower, by a third of a semitone
  timbrel library --timbre Violin --tuning pelog.scl --out violin         in a scale of Scala's
  timbrel verify violin

Pitches are MIDI note numbers, 60 = C4, or names; 48-84:3 is every third from 48 to 84. Where a job is
stopped, by whatever, the same command continues it: no note is rendered twice. The folder gets samples/,
NAME.sfz (Sforzando, sfizz), NAME.dspreset (Decent Sampler), manifest.jsonl, LICENSE and README.md.

With --engine ray, nothing is made for samplers: raw notes, their codes and measurements, go into shards of
Parquet or WebDataset. RAY_ADDRESS names a cluster to run on, with timbrel and the bundle on every machine.
"""


FINISHED = "finished samples, which --engine ray does not write"


class LibraryCommand:
    """Renders what is missing of a library and finishes it."""

    help = "render whole instruments for samplers: .sfz, .dspreset, loops, tuning"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = (
            "Renders whole instruments into a folder that a sampler can load: every pitch, velocity and "
            "round robin, trimmed, looped, tuned and levelled."
        )
        parser.epilog = _EXAMPLES
        _add_instruments(parser)
        _add_notes(parser)
        _add_files(parser)
        _add_servers(parser)
        _add_engine(parser)

    def run(self, args: argparse.Namespace) -> int:
        # What can be said without a server is said without one.
        pitches, velocities = parse_pitches(args.pitches), parse_velocities(args.velocities)
        chords = {} if args.chords is None else parse_chords(args.chords)
        tuning = _tuning_of(args)
        wanted = _Wanted(args)
        _check_engine(args)
        if args.engine == "ray":
            return _run_sharded(args, wanted, pitches, velocities)
        folder = Path(args.out)
        LibraryFolder(folder).check()
        with ExitStack() as stack:
            clients, patience_seconds = _clients_of(args, stack)
            client = sources.first_answering(clients, _tell)
            job = _job_of(args, client, wanted.voices(client.timbre_map()), pitches, velocities)
            source = sources.ClientSource(clients, patience_seconds=patience_seconds, tell=_tell)
            source.require(job.writer)
            options = BuildOptions(args.sf2, not args.json, chords=chords, tuning=tuning)
            chooses = args.seconds is None
            summary = build_library(client, job, folder, options, source, choose_holds=chooses)
        print(json.dumps(summary.to_json(), indent=2) if args.json else summary.to_text())
        return 0


class _Wanted:
    """The instruments that the options ask for: read at once, found on the map later."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._all = bool(args.all)
        self._named = [parse_timbre(text) for text in args.timbre or ()]
        self._grid = [] if args.grid is None else grid_points(args.grid)
        self._paths = [parse_path(text) for text in args.path or ()]
        if not (self._all or self._named or self._grid or self._paths):
            raise refusal("timbre", "none is given: name some by --timbre, --all, --grid or --path")

    def voices(self, known: Sequence[Instrument]) -> tuple[Voice, ...]:
        """Makes the voices; raises InvalidRequestError where the map has no instrument of a name given."""
        named = [NamedPoint(each.name, each.timbre) for each in known] if self._all else []
        named += [NamedPoint.find(timbre, known) for timbre in self._named]
        named += [NamedPoint(None, point) for point in self._grid]
        for start, end, steps in self._paths:
            first, last = (NamedPoint.find(timbre, known) for timbre in (start, end))
            between = path_points(first.point, last.point, steps)[1:-1]
            named += [first, *(NamedPoint(None, point) for point in between), last]
        return name_voices(named, known)


def _job_of(
    args: argparse.Namespace,
    client: Client,
    voices: tuple[Voice, ...],
    pitches: tuple[int, ...],
    velocities: tuple[int, ...],
) -> LibraryJob:
    model = client.model()
    usual = NoteRequest.seconds if args.engine == "ray" else min(LASTING_SECONDS, model.seconds_range[1])
    job = LibraryJob(
        writer=ModelIdentity.of(model),
        voices=voices,
        pitches=pitches,
        velocities=velocities,
        round_robins=args.round_robins,
        seconds=usual if args.seconds is None else args.seconds,
        sampling=SamplingSettings.of(args),
        seed=args.seed,
        tries=args.tries,
        file_format=args.format or LibraryJob.file_format,
        sample_rate=LibraryJob.sample_rate if args.sample_rate is None else args.sample_rate,
        loops=not args.no_loops,
    ).filled(model)
    check_job(job, model)
    if untrained := tell_untrained([voice.name for voice in voices], client.timbre_map(), pitches):
        _tell(untrained)
    return job


def _tuning_of(args: argparse.Namespace) -> KeyCents | None:
    """Reads how the keys are to be tuned; None: in equal temperament."""
    if (fault := FIELD["cents"].fault(args.cents, pb.RequestRanges())) is not None:
        raise refusal("cents", fault)
    if args.keyboard_map and not args.tuning:
        raise refusal("keyboard_map", "lays a scale on the keys: give one by --tuning FILE.scl")
    if not (args.tuning or args.cents):
        return None
    scale = read_tuning(args.tuning, args.keyboard_map) if args.tuning else EQUAL_TEMPERAMENT
    return tuple(None if each is None else each + args.cents for each in scale)


def _add_instruments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("instruments")
    group.add_argument(
        "--timbre",
        action="append",
        metavar="NAME|X,Y",
        help="an instrument of the map, or a point of the unit disc; may be given several times",
    )
    group.add_argument("--all", action="store_true", help="every instrument of the map")
    group.add_argument("--grid", type=int, metavar="N", help="a lattice over the disc, N points across")
    group.add_argument(
        "--path",
        action="append",
        metavar="A:B:STEPS",
        help="STEPS points from A to B, each a name or x,y; may be given several times",
    )


def _add_notes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("notes")
    group.add_argument(
        "--pitches",
        default="48-84:3",
        metavar="RANGES",
        help="for example 48-84:3, C3-C6:4, 60,64 (default %(default)s)",
    )
    group.add_argument(
        "--velocities", default="40,80,120", metavar="RANGES", help="one layer each (default %(default)s)"
    )
    group.add_argument(
        "--round-robins", type=int, default=1, metavar="N", help="takes of each note (default %(default)s)"
    )
    group.add_argument(
        "--seconds",
        type=float,
        help="how long each key is held; samples without a loop are let go then, however long they are "
        f"played (default: {LASTING_SECONDS:g}, and what dies away, as a piano, until it has, for "
        f"{LONGEST_SECONDS:g} at most; with --engine ray {NoteRequest.seconds:g} for all)",
    )
    group.add_argument(
        "--seed", type=int, default=LibraryJob.seed, help="of the first take (default %(default)s)"
    )
    group.add_argument(
        "--tries",
        type=int,
        default=LibraryJob.tries,
        metavar="N",
        help="attempts at a note that two trackers put more than 50 cents off (default %(default)s)",
    )
    add_number_options(group, [field.name for field in SAMPLING_FIELDS])


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    bits = dict.fromkeys(str(each.bits) for each in SAMPLE_FORMATS.values())
    group.add_argument(
        "--out", required=True, metavar="DIR", help="folder of the library; of shards also s3://..."
    )
    group.add_argument(
        "--format",
        choices=tuple(SAMPLE_FORMATS),
        help=f"{' or '.join(bits)} bit (default {LibraryJob.file_format})",
    )
    group.add_argument(
        "--sample-rate",
        type=int,
        metavar="HZ",
        help=f"of the files (default {LibraryJob.sample_rate}); the README states the true bandwidth",
    )
    group.add_argument("--no-loops", action="store_true", help="leave sustained sounds without loops")
    group.add_argument("--sf2", action="store_true", help="also write NAME.sf2, the first take of each note")
    group.add_argument(
        "--chords",
        metavar="NAMES",
        help="also write instruments whose keys play chords of the same samples (NAME_maj.sfz and so on, "
        "with --sf2 presets of NAME.sf2), for example maj,min7,0-5-10: the last by semitones above the key",
    )
    group.add_argument(
        "--tuning", metavar="FILE.scl", help="tune the instruments to a Scala scale, from middle C"
    )
    group.add_argument("--keyboard-map", metavar="FILE.kbm", help="lays the scale on the keys, as Scala does")
    group.add_argument(
        "--cents",
        type=float,
        default=0.0,
        help="how far from its pitch every key sounds; with --tuning on top of it (default 0)",
    )
    group.add_argument("--json", action="store_true", help="print a JSON summary instead")


def _add_servers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("servers")
    group.add_argument(
        "--server",
        action="append",
        metavar="HOST:PORT",
        help="the server to ask; given several times, or joined by commas, servers of one bundle share the "
        "work; by default TIMBREL_SERVER, else a private one is started for this call (TIMBREL_TOKEN is sent "
        "to servers that ask for it)",
    )
    add_bundle_option(group)
    group.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long a server may give no note before it counts as away (default "
        f"{sources.SILENT_SECONDS:g} more than keys are held; of a private server, which ends where it "
        "cannot go on, at least --patience)",
    )
    group.add_argument(
        "--patience",
        type=float,
        default=sources.PATIENCE_SECONDS,
        metavar="SECONDS",
        help="how long a server may be away before it is given up: the others go on, and without others the "
        "job ends, to be continued later (default %(default)g)",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("millions of notes")
    group.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="ray: raw notes, by workers of Ray Data with a server each, into shards (default %(default)s)",
    )
    group.add_argument(
        "--shards", choices=tuple(shards.SHARD_FORMATS), help=f"(default {shards.DEFAULT_FORMAT})"
    )
    group.add_argument(
        "--shard-notes", type=int, metavar="N", help=f"notes a shard (default {shards.DEFAULT_NOTES})"
    )
    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="one core each (default: all cores but one, which reads and writes)",
    )


def _clients_of(args: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Client], float]:
    """Makes a client for each server that the options name; tells for how long one may be away. Raises
    InvalidRequestError: an address or a time makes no sense, or --bundle stands beside --server."""
    if args.server and args.bundle is not None:
        raise refusal("bundle", f"the server {args.server[0]} serves its own; leave out --bundle")
    if not args.patience >= 0.0:
        raise refusal("patience", f"must be 0 seconds or more, got {args.patience:g}")
    addresses = [] if args.bundle is not None else sources.server_addresses(args.server, os.environ)
    timeout = args.timeout
    if timeout is None:
        # Notes come whole: who writes all that it was asked for at once may take as long as they sound.
        timeout = sources.SILENT_SECONDS + max(0.0, LONGEST_SECONDS if args.seconds is None else args.seconds)
        timeout = timeout if addresses else max(timeout, args.patience)
    clients: dict[str, Client] = {}
    for address in addresses or (None,):
        client = Client(address, timeout=timeout, bundle=args.bundle, progress=True)
        stack.callback(client.close)
        clients[address or "the private server"] = client
    # Nobody brings a private server back.
    return clients, args.patience if addresses else 0.0


def _check_engine(args: argparse.Namespace) -> None:
    """Raises InvalidRequestError, naming all of it, where something is asked for that the other engine
    does."""
    if args.engine == "ray":
        no_files = "for instrument files, which --engine ray does not write"
        own_servers = "is for servers, of which workers have their own; leave it out"
        faults: dict[str, Any] = {
            "server": args.server and "workers have servers of their own; leave it out, or --engine ray",
            "timeout": args.timeout is not None and own_servers,
            "patience": args.patience != sources.PATIENCE_SECONDS and own_servers,
            "sf2": args.sf2 and f"is made of {FINISHED}",
            "format": args.format and f"is of {FINISHED}",
            "sample_rate": args.sample_rate and f"is of {FINISHED}",
            "no_loops": args.no_loops and f"is of {FINISHED}",
            "chords": args.chords and "are instrument files, which --engine ray does not write",
            "tuning": args.tuning and f"is {no_files}",
            "cents": args.cents and f"are {no_files}",
        }
    else:
        options = {"shards": args.shards, "shard_notes": args.shard_notes, "workers": args.workers}
        for_shards = "is for shards; add --engine ray, or leave it out"
        faults = {name: given is not None and for_shards for name, given in options.items()}
        faults["out"] = "://" in args.out and f"{args.out} can hold shards alone; add --engine ray"
    found = [FieldViolation(name, fault) for name, fault in faults.items() if fault]
    if found:
        raise InvalidRequestError.of(found)


def _run_sharded(
    args: argparse.Namespace, wanted: _Wanted, pitches: tuple[int, ...], velocities: tuple[int, ...]
) -> int:
    """Renders shards. Workers have servers of their own: one is asked here only for what there is."""
    from timbrel.library.finish.distributed import build_shards

    given = args.bundle or os.environ.get(BUNDLE_VARIABLE)
    bundle = str(Path(given).resolve()) if given and Path(given).is_dir() else given or None
    with (
        PrivateServer(bundle) as server,
        Client(server.address, server.token, security=Security()) as client,
    ):
        job = _job_of(args, client, wanted.voices(client.timbre_map()), pitches, velocities)
    build = build_shards(
        job,
        args.out,
        bundle=bundle,
        shard_format=args.shards or shards.DEFAULT_FORMAT,
        shard_notes=shards.DEFAULT_NOTES if args.shard_notes is None else args.shard_notes,
        n_workers=args.workers,
        show_progress=not args.json,
    )
    print(json.dumps(build.to_json(), indent=2) if args.json else build.to_text())
    return 0


def _tell(message: str) -> None:
    """Writes a line to standard error that no progress bar is drawn over."""
    tqdm.write(f"timbrel: {message}", file=sys.stderr)


command = LibraryCommand()
