"""The dataset: samples that are drawn, written by the bundle, encoded as by `locate`, and kept as files."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import AudioError
from timbrel_bundle.layout import CODEC_WEIGHTS, MODEL_WEIGHTS, TIMBRE_MAP
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_posttraining import processes
from timbrel_posttraining.bundles import published_map, token_header
from timbrel_posttraining.evaluate.evaluation_set import Kind, Take
from timbrel_posttraining.evaluate.takes import TakeAudio, TakeCache, write_takes
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.split import Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.tokens.store import TokenStore
from timbrel_training.tokens.store_writer import TokenStoreWriter
from timbrel_training.tokens.table import TokenTable

NO_INSTRUMENT = -1
"""Stands for the instrument of a note from between instruments."""
FIRST_DRAW = 1_000_000
"""Draws are numbered from here on. Evaluation numbers its own from 0, and a take's seed is made of its draw:
no note is written here with a seed that evaluation writes one with."""
LATEST_START = 0.06
"""Seconds of a note that a late recording misses at most."""
SHORTEST_SHARE = 0.3
"""Share of a note that a recording which ends early holds at least."""
TRIES = 10_000
"""Points drawn to find one that is far enough from all instruments."""

VERSION = 1
"""Raise it when samples are drawn or encoded in another way."""
CHUNK = 8
"""Samples handed to a process at a time."""
BETWEEN = "between instruments"
"""The instrument under which the notes between instruments are listed."""
FILES = (MODEL_WEIGHTS, CODEC_WEIGHTS, TIMBRE_MAP)
"""The files of a bundle that samples depend on. Its timbre encoder is not among them: that is what learns."""
FIELDS = (
    "source_notes",
    "own_notes",
    "between_notes",
    "between_distance",
    "hinted_share",
    "hint_semitones",
    "cut_share",
)
"""The fields of the config that samples depend on."""


@dataclass(frozen=True)
class TimbreSample:
    """A take, how it is recorded, and what the encoder has to say of it."""

    take: Take
    instrument: int  # number on the map, or NO_INSTRUMENT
    target: tuple[float, float]  # point of the map
    hint: float | None = None  # pitch that the codec is told, a MIDI note number
    start: float = 0.0  # seconds that a late recording misses
    share: float = 1.0  # of the rest, before a recording ends too early


class SamplePlan:
    """Draws the samples: a function of the bundle's map and ranges, the library and the config alone.

    Source notes are of training cells, and the bundle is asked for pitches of training cells too: nothing of
    a cell or of an instrument that is held out is ever used.

    Raises:
        TrainingError: the library has no training notes of an instrument on the bundle's map.
    """

    def __init__(self, bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig) -> None:
        self.config = config
        self.library = library
        self.ranges = bundle.manifest.ranges
        self.chart = published_map(bundle)
        self._rng = np.random.default_rng(config.loop.seed)
        self._rows = [self._rows_of(point.instrument) for point in self.chart.points]
        for point, rows in zip(self.chart.points, self._rows, strict=True):
            if not len(rows):
                raise TrainingError(
                    f"{library.path}: no training notes of {point.instrument}, which is on the map of "
                    f"{bundle.path}; name the library that the bundle learnt from"
                )
        self._draws = iter(range(FIRST_DRAW, FIRST_DRAW + 10**9))

    def draw(self) -> list[TimbreSample]:
        """Draws all samples, in this order: source notes, the bundle's notes, those in between."""
        config = self.config
        samples = [
            *self._sources(config.source_notes),
            *self._own(config.own_notes),
            *self._between(config.between_notes),
        ]
        return [self._varied(sample) for sample in samples]

    def _sources(self, count: int) -> Iterator[TimbreSample]:
        library = self.library
        for instrument, n_notes in enumerate(self._shares(count)):
            for row in np.sort(self._rng.permutation(self._rows[instrument])[:n_notes]):
                held, pitch = float(library.held_seconds[row]), int(library.pitch[row])
                take = Take(Kind.SOURCE, pitch, int(library.velocity[row]), held, row=int(row))
                yield TimbreSample(take, instrument, self._point(instrument))

    def _own(self, count: int) -> Iterator[TimbreSample]:
        for instrument, n_notes in enumerate(self._shares(count)):
            cells = np.unique(self.library.pitch[self._rows[instrument]])
            for pitch in self._rng.choice(cells, n_notes):
                point = self._point(instrument)
                yield TimbreSample(self._asked(point, int(pitch)), instrument, point)

    def _between(self, count: int) -> Iterator[TimbreSample]:
        for _ in range(count):
            point = self._open_point()
            pitch = int(self._rng.integers(self.ranges.pitch_min, self.ranges.pitch_max + 1))
            yield TimbreSample(self._asked(point, pitch), NO_INSTRUMENT, point)

    def _asked(self, point: tuple[float, float], pitch: int) -> Take:
        """Asks a note of the bundle, as soft or loud and as short or long as it can be."""
        ranges = self.ranges
        velocity = int(self._rng.integers(ranges.velocity_min, ranges.velocity_max + 1))
        seconds = np.exp(self._rng.uniform(np.log(ranges.seconds_min), np.log(ranges.seconds_max)))
        held = min(max(round(float(seconds), 4), ranges.seconds_min), ranges.seconds_max)
        return Take(Kind.GENERATED, pitch, velocity, held, timbre=point, draw=next(self._draws))

    def _varied(self, sample: TimbreSample) -> TimbreSample:
        config, rng = self.config, self._rng
        way, start, share = rng.random(), rng.uniform(0.0, LATEST_START), rng.uniform(SHORTEST_SHARE, 1.0)
        hint = float(np.clip(sample.take.pitch + config.hint_semitones * rng.standard_normal(), 1.0, 127.0))
        if way < config.hinted_share:
            return TimbreSample(sample.take, sample.instrument, sample.target, hint=hint)
        if way < config.hinted_share + config.cut_share:
            return TimbreSample(sample.take, sample.instrument, sample.target, start=start, share=share)
        return sample

    def _open_point(self) -> tuple[float, float]:
        """Draws a point of the disc away from all instruments."""
        distance = self.config.between_distance * self.chart.spacing
        for _ in range(TRIES):
            radius, angle = np.sqrt(self._rng.random()), self._rng.uniform(0.0, 2.0 * np.pi)
            x, y = float(radius * np.cos(angle)), float(radius * np.sin(angle))
            if np.linalg.norm(self.chart.centroids - (x, y), axis=1).min() >= distance:
                return x, y
        raise TrainingError(
            f"the map has no room {distance:.2g} away from all instruments; lower hearing.between_distance"
        )

    def _point(self, instrument: int) -> tuple[float, float]:
        point = self.chart.points[instrument]
        return point.x, point.y

    def _shares(self, count: int) -> list[int]:
        """Shares `count` notes out among the instruments."""
        n = len(self.chart.points)
        return [(count * (number + 1)) // n - (count * number) // n for number in range(n)]

    def _rows_of(self, instrument: str) -> NDArray[np.int64]:
        """Finds the notes of its training cells, within the bundle's range of pitches."""
        library = self.library
        if instrument not in library.instruments:
            return np.zeros(0, np.int64)
        own = library.instrument == library.instruments.index(instrument)
        inside = (library.pitch >= self.ranges.pitch_min) & (library.pitch <= self.ranges.pitch_max)
        trained = (library.split == int(Split.TRAIN)) & (library.length > 0)
        return np.flatnonzero(own & inside & trained).astype(np.int64)


def dataset_key(bundle: Bundle, library: NoteDataset, config: TimbreFinetuneConfig) -> str:
    """Names the dataset by 16 hexadecimal digits: equal ones have the same, and no others."""
    hashes = {file.name: file.sha256 for file in bundle.manifest.files}
    fields = {name: value for name, value in asdict(config).items() if name in FIELDS}
    about = [VERSION, [hashes[name] for name in FILES], fields, config.loop.seed, library.header]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    digest.update(library.index.tobytes())
    return digest.hexdigest()[:16]


def make_dataset(
    bundle: Bundle, library: NoteDataset, samples: list[TimbreSample], folder: Path, jobs: int
) -> TokenTable:
    """Has the bundle write its notes among the samples, encodes all samples, and keeps both in `folder`.

    Args:
        bundle: verified.
        library: of the source notes.
        samples: of `SamplePlan.draw`.
        folder: of these very samples, see `dataset_key`; whatever is there already is not made again.
        jobs: processes that encode.

    Returns:
        The codes, a note for each sample in their order; one with too little to hear has no frames.

    Raises:
        TimbrelError: the bundle cannot be served.
    """
    path = folder / "heard.bin"  # so named that older runs can be resumed
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cache = TakeCache(folder)
        write_takes(bundle.path, [sample.take for sample in samples], cache, progress=True)
        make_extractor = functools.partial(FeatureExtractor, bundle.path, library.path, cache)
        _write_codes(bundle, samples, make_extractor, path, jobs)
    return TokenTable.from_store(TokenStore(path))


def _write_codes(
    bundle: Bundle,
    samples: list[TimbreSample],
    make_extractor: Callable[[], FeatureExtractor],
    path: Path,
    jobs: int,
) -> None:
    points = bundle.timbre_map.points
    with TokenStoreWriter(path, token_header(bundle)) as writer:
        done = len(writer)
        left = samples[done:]
        with (
            processes.results(make_extractor, FeatureExtractor.encode, left, jobs, CHUNK) as encoded,
            bar("hearing", len(samples), "note", initial=done) as shown,
        ):
            for sample, codes in zip(left, encoded, strict=True):
                known = sample.instrument != NO_INSTRUMENT
                writer.add(
                    codes,
                    instrument=points[sample.instrument].instrument if known else BETWEEN,
                    family=points[sample.instrument].family if known else BETWEEN,
                    pitch=sample.take.pitch,
                    velocity=sample.take.velocity,
                    held_frames=writer.header.held_frames(sample.take.seconds),
                    source=str(sample.take.kind),
                    split=int(Split.TRAIN),
                )
                shown.update()
        writer.finish()


class FeatureExtractor:
    """Encodes samples as `locate` encodes recordings: trimmed, at one level, pitch unknown. One per process.

    Args:
        bundle: its folder, whose codec encodes.
        library: of the source notes.
        cache: of the notes that the bundle wrote.
    """

    def __init__(self, bundle: Path, library: Path, cache: TakeCache) -> None:
        opened = Bundle.open(bundle, verify=False)  # checked by whoever started this
        self._audio = TakeAudio(opened, NoteDataset(library), cache)
        self._encoder = TimbreEncoder(opened, n_threads=1)
        self._n_codebooks = opened.manifest.codec.n_codebooks

    def encode(self, sample: TimbreSample) -> NDArray[np.uint16]:
        """Returns codes [T, K]; none where there is too little to hear."""
        audio, rate = self._audio.of(sample.take)
        rest = audio[round(sample.start * rate) :]
        recorded = rest[: round(sample.share * len(rest))]
        try:
            return self._encoder.encode(recorded, rate, sample.hint)
        except AudioError:
            return np.zeros((0, self._n_codebooks), np.uint16)
