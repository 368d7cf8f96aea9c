"""`timbrel play`: a MIDI file performed."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from timbrel.audio import check_audio_target, write_audio
from timbrel.cli import options
from timbrel.errors import refusal
from timbrel.performance import PerformanceOptions, parse_timbres, perform, read_score
from timbrel.performance.summary import as_facts, as_text
from timbrel.scala import EQUAL_TEMPERAMENT, read_tuning

_EXAMPLES = """\
examples:
  timbrel play song.mid --timbre Violin --out song.wav
  timbrel play canon.mid --timbre 1=Flute --timbre "2=0.1,-0.3" --out canon.flac
  timbrel play song.mid --out song.ogg --sample-rate 44100         instruments after the file's programs
  timbrel play song.mid --timbre Harpsichord --fold --takes 3 --seed 7 --out song.wav
  timbrel play song.mid --drums FluidR3_GM.sf2 --out song.wav      FluidSynth plays the drums
  timbrel play song.mid --tuning pelog.scl --keyboard-map white_keys.kbm --out song.wav
  timbrel play song.mid --out song.wav --json | jq "{parts, not_performed, remarks}"

Performed: pitch bend and its range, MPE (bend, pressure and slide of each note), modulation (a vibrato),
channel and key pressure (louder and brighter by up to 6 dB), controller 74 (brightness), volume, expression,
pan, sustain, sostenuto and soft pedals, portamento, fine, coarse and master tuning, MIDI Tuning. What else a
file asks for is named by the summary, as is what was left out, transposed or made softer, and what of it is
damaged. Channels count from 1; drums, on channel 10 and where the file has more kits, are left out
unless --drums or a timbre is given for them. A program that the timbre map lacks is played by the
instrument nearest to it, but for sound effects (Reverse Cymbal to Gunshot), which are left out unless a
timbre is given. Notes longer than the bundle can hold are lengthened as if they were held. Equal notes
are rendered once; the same command with the same --seed writes the same bytes.
"""


class PlayCommand:
    """Reads a score, plays it, writes a file and says what was done."""

    help = "perform a MIDI file: .wav, .flac or .ogg"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.description = (
            "Performs a MIDI file (type 0, 1 or 2), each channel with a timbre of its own, in stereo: notes,"
            " tempo changes, pedals, bends, vibrato, pressure, slides, portamento, tunings, levels and pan."
        )
        parser.epilog = _EXAMPLES
        parser.add_argument("file", metavar="FILE", help="the .mid file")
        parser.add_argument("--out", required=True, metavar="FILE", help="the sound file to write")
        parser.add_argument(
            "--timbre",
            action="append",
            default=[],
            metavar="[N=]NAME|X,Y",
            help="an instrument or a point of the unit disc, for all channels or for channel N; may be given "
            "several times (default: after the file's programs)",
        )
        _add_notes(parser)
        _add_sound(parser)
        options.add_json_option(parser)
        options.add_server_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        # What can be said without a server is said without one.
        path = check_audio_target(args.out, args.sample_rate)
        if args.keyboard_map and not args.tuning:
            raise refusal("keyboard_map", "it lays a scale on the keys: give the scale by --tuning FILE.scl")
        asked = parse_timbres(args.timbre)
        tuning = read_tuning(args.tuning, args.keyboard_map) if args.tuning else EQUAL_TEMPERAMENT
        score = read_score(args.file, tuning)
        how = PerformanceOptions(
            seed=args.seed,
            takes=args.takes,
            fold=args.fold,
            normalize=args.normalize,
            sample_rate=args.sample_rate,
            drums=Path(args.drums) if args.drums else None,
            progress=True,
        )
        how.check()
        with options.client_of(args) as client:
            client.prepare()
            start = time.perf_counter()
            performance = perform(client, score, asked, how)
            elapsed = time.perf_counter() - start
            model = client.model()
        write_audio(path, performance.audio, performance.sample_rate)
        if args.json:
            options.print_json(as_facts(path, performance, how, elapsed))
        else:
            print(as_text(path, performance, how, model, elapsed))
        return 0


def _add_notes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("notes")
    group.add_argument(
        "--seed", type=int, default=PerformanceOptions.seed, help="of every note (default %(default)s)"
    )
    group.add_argument(
        "--takes",
        type=int,
        default=1,
        metavar="N",
        help="render a note that comes again up to N times, seeds counting up, and take turns (default 1)",
    )
    group.add_argument(
        "--fold",
        action="store_true",
        help="transpose notes beyond the bundle's pitches by octaves (default: bend its nearest pitch to "
        "theirs; left out beyond two octaves, and where its codec does not bend)",
    )
    group.add_argument(
        "--tuning", metavar="FILE.scl", help="a Scala scale, from middle C (default: equal temperament)"
    )
    group.add_argument("--keyboard-map", metavar="FILE.kbm", help="lays the scale on the keys, as Scala does")


def _add_sound(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sound")
    options.add_sample_rate_option(group)
    group.add_argument(
        "--drums",
        metavar="FONT.sf2",
        help="FluidSynth plays the drums with this SoundFont (default: they are left out)",
    )
    group.add_argument(
        "--normalize",
        action="store_true",
        help="bring the peak to -1 dBFS (default: only where it would clip)",
    )


command = PlayCommand()
