"""The dataset: samples that are drawn, written by the bundle, heard as by `locate`, and kept as files."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import AudioError
from timbrel_bundle.layout import CODEC_WEIGHTS, MODEL_WEIGHTS, TIMBRE_MAP
from timbrel_bundle.manifest import written_ranges
from timbrel_bundle.timbre_encoder import longest_seconds, prepare_recording
from timbrel_posttraining.bundles import published_map
from timbrel_posttraining.evaluate.evaluation_set import Kind, Take
from timbrel_posttraining.evaluate.takes import TakeAudio, TakeCache, write_takes
from timbrel_training import processes
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.note import fold_name
from timbrel_training.notes.split import VARIANT, Split
from timbrel_training.posttraining_config import TimbreFinetuneConfig
from timbrel_training.timbre.encoder import TimbreEncoder
from timbrel_training.timbre.features import Levels, NoteFeatures, features_key, kept_features, levels_of
from timbrel_training.timbre.recordings import as_recorded
from timbrel_training.timbre.train import N_JUDGED, load_encoder

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

VERSION = 7
"""Raise it when samples are drawn or heard in another way."""
CHUNK = 8
"""Samples handed to a process at a time."""
FILES = (MODEL_WEIGHTS, CODEC_WEIGHTS, TIMBRE_MAP)
"""The files of a bundle that samples depend on. Its timbre encoder is not among them: that is what learns."""
FIELDS = (
    "source_notes",
    "own_notes",
    "between_notes",
    "other_notes",
    "between_distance",
    "cut_share",
    "recorded_share",
)
"""The fields of the config that samples depend on."""


@dataclass(frozen=True)
class TimbreSample:
    """A take, how it is recorded, and what the encoder has to say of it."""

    take: Take
    instrument: int  # number on the map, or NO_INSTRUMENT
    target: tuple[float, float]  # point of the map
    start: float = 0.0  # seconds that a late recording misses
    share: float = 1.0  # of the rest, before a recording ends too early
    flaws: int | None = None  # what the flaws of its recording are drawn with; None: it has none
    library: int = 0  # that a source note is of: 0 is the bundle's, then come the others


class SamplePlan:
    """Draws the samples: a function of the bundle's map and ranges, the library and the config alone.

    Source notes are of training cells, and the bundle is asked for pitches of training cells too: nothing of
    a cell or of an instrument that is held out is ever trained on. Of `others`, libraries of other fonts or
    of recordings, come the notes whose instruments are on the map by name, and whose cells neither they nor
    the bundle's library hold out. Raises TrainingError: the library
    has no training notes of an instrument on the bundle's map, or another one none of any.
    """

    def __init__(
        self,
        bundle: Bundle,
        library: NoteDataset,
        config: TimbreFinetuneConfig,
        others: Sequence[NoteDataset] = (),
    ) -> None:
        self.config = config
        self.library = library
        self.libraries = [library, *others]
        self.ranges = written_ranges(bundle.manifest)
        self.chart = published_map(bundle)
        self._rng = np.random.default_rng(config.loop.seed)
        named = self._named(library, Split.TRAIN)
        self._rows = [np.flatnonzero(named == number) for number in range(len(self.chart.points))]
        for point, rows in zip(self.chart.points, self._rows, strict=True):
            if not len(rows):
                raise TrainingError(
                    f"{library.path}: no training notes of {point.instrument}, which is on the map of "
                    f"{bundle.path}; name the dataset that the bundle learnt from"
                )
        self._draws = iter(range(FIRST_DRAW, FIRST_DRAW + 10**9))
        self._elsewhere: dict[tuple[int, int], dict[int, NDArray[np.int64]]] = {}
        """Of each source of each other library, by their numbers: the rows of each instrument of the map."""
        for number, other in enumerate(others, start=1):
            named = self._named(other, Split.TRAIN)
            named = np.where(self._is_held_out(named, other.pitch), NO_INSTRUMENT, named)
            if named.max(initial=NO_INSTRUMENT) == NO_INSTRUMENT:
                raise TrainingError(
                    f"{other.path}: no training notes of any instrument on the map of {bundle.path}; name "
                    "them as `timbrel info` does"
                )
            both = np.stack([other.source, named], axis=1)
            for source, instrument in np.unique(both[named != NO_INSTRUMENT], axis=0).tolist():
                rows = np.flatnonzero((other.source == source) & (named == instrument))
                self._elsewhere.setdefault((number, source), {})[instrument] = rows

    def draw(self) -> list[TimbreSample]:
        """Draws all samples, in this order: source notes, the bundle's notes, those in between, others'."""
        config = self.config
        samples = [
            *self._sources(config.source_notes),
            *self._own(config.own_notes),
            *self._between(config.between_notes),
        ]
        drawn = [self._varied(sample) for sample in samples]
        return drawn + [self._varied(sample) for sample in self._others(config.other_notes)]

    def draw_judged(self) -> list[TimbreSample]:
        """Draws source notes of held-out cells, half of them other libraries', if there are any, each as a
        recording has it: what references are fitted to."""
        rng = np.random.default_rng([self.config.loop.seed, N_JUDGED])
        n_others = len(self.libraries) - 1
        shares = [N_JUDGED // 2, *_shares(N_JUDGED // 2, n_others)] if n_others else [N_JUDGED]
        found = []
        for number, (library, share) in enumerate(zip(self.libraries, shares, strict=True)):
            named = self._named(library, Split.HELD_OUT_CELL)
            for row in rng.permutation(np.flatnonzero(named != NO_INSTRUMENT))[:share].tolist():
                found.append(self._source(row, int(named[row]), number))
        return [
            replace(found[place], flaws=int(rng.integers(2**31))) for place in rng.permutation(len(found))
        ]

    def sources_elsewhere(self) -> list[dict[str, object]]:
        """Says what other libraries are made of: name, licence, how many instruments and notes of the map."""
        told = []
        for (number, source), found in self._elsewhere.items():
            name, licences = self.libraries[number].sources[source], self.libraries[number].licences
            counts = {"n_instruments": len(found), "n_notes": sum(map(len, found.values()))}
            told.append({"name": name, "licence": licences[name], **counts})
        return told

    def _sources(self, count: int) -> Iterator[TimbreSample]:
        for instrument, n_notes in enumerate(_shares(count, len(self.chart.points))):
            for row in np.sort(self._rng.permutation(self._rows[instrument])[:n_notes]):
                yield self._source(int(row), instrument)

    def _own(self, count: int) -> Iterator[TimbreSample]:
        for instrument, n_notes in enumerate(_shares(count, len(self.chart.points))):
            cells = np.unique(self.library.pitch[self._rows[instrument]])
            for pitch in self._rng.choice(cells, n_notes):
                point = self._point(instrument)
                yield TimbreSample(self._asked(point, int(pitch)), instrument, point)

    def _between(self, count: int) -> Iterator[TimbreSample]:
        for _ in range(count):
            point = self._open_point()
            pitch = int(self._rng.integers(self.ranges.pitch_min, self.ranges.pitch_max + 1))
            yield TimbreSample(self._asked(point, pitch), NO_INSTRUMENT, point)

    def _others(self, count: int) -> Iterator[TimbreSample]:
        """Draws notes of other libraries, each source's share by the square root of how many notes it has,
        evenly among its instruments: a small one is heard more than once, and does not drown a large one. A
        note that comes again is recorded in another way."""
        weights = [sum(map(len, found.values())) ** 0.5 for found in self._elsewhere.values()]
        borders = np.rint(count * np.cumsum([0.0, *weights]) / max(sum(weights), 1.0)).astype(int)
        shares = np.diff(borders).tolist()
        for n_notes, ((number, _), found) in zip(shares, self._elsewhere.items(), strict=True):
            for n_own, (instrument, rows) in zip(_shares(n_notes, len(found)), found.items(), strict=True):
                for row in self._rng.choice(rows, n_own).tolist():
                    yield self._source(row, instrument, number)

    def _named(self, library: NoteDataset, split: Split) -> NDArray[np.int64]:
        """Finds the number on the map of each note's instrument, by its name; of a soundfont's, that of its
        own variant where the map has one. Notes that are not on it, not of this split, silent or beyond the
        bundle's pitches have NO_INSTRUMENT."""
        known = {fold_name(point.instrument): number for number, point in enumerate(self.chart.points)}
        numbers = np.full((len(library.instruments), len(library.sources)), NO_INSTRUMENT, np.int64)
        for (i, name), (j, source) in itertools.product(
            enumerate(library.instruments), enumerate(library.sources)
        ):
            font = Path(source).stem.partition(" ")[2].replace("_", " ")
            own = known.get(fold_name(name), NO_INSTRUMENT)
            numbers[i, j] = known.get(fold_name(f"{name}{VARIANT}{font}"), own)
        inside = (library.pitch >= self.ranges.pitch_min) & (library.pitch <= self.ranges.pitch_max)
        usable = inside & (library.split == int(split)) & (library.length > 0)
        return np.where(usable, numbers[library.instrument, library.source], NO_INSTRUMENT)

    def _is_held_out(self, named: NDArray[np.int64], pitch: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Tells which notes, of instruments by their numbers on the map, are of cells that the bundle's
        library holds out: another one may spell an instrument otherwise, or hold out other cells."""
        cells, cell_of = np.unique(np.stack([named, pitch], axis=1), axis=0, return_inverse=True)
        rule, points = self.library.rule, self.chart.points
        held_out = [
            number != NO_INSTRUMENT
            and rule.split_of(points[number].instrument, height, points[number].family) != Split.TRAIN
            for number, height in cells.tolist()
        ]
        return np.array(held_out, dtype=bool)[cell_of.reshape(-1)]

    def _asked(self, point: tuple[float, float], pitch: int) -> Take:
        """Asks a note of the bundle, as soft or loud and as short or long as it can be."""
        ranges = self.ranges
        velocity = int(self._rng.integers(ranges.velocity_min, ranges.velocity_max + 1))
        seconds = np.exp(self._rng.uniform(np.log(ranges.seconds_min), np.log(ranges.seconds_max)))
        held = min(max(round(float(seconds), 4), ranges.seconds_min), ranges.seconds_max)
        return Take(Kind.GENERATED, pitch, velocity, held, timbre=point, draw=next(self._draws))

    def _varied(self, sample: TimbreSample) -> TimbreSample:
        rng = self._rng
        way, start, share = rng.random(), rng.uniform(0.0, LATEST_START), rng.uniform(SHORTEST_SHARE, 1.0)
        flaws = int(rng.integers(2**31)) if rng.random() < self.config.recorded_share else None
        sample = replace(sample, flaws=flaws)
        return replace(sample, start=start, share=share) if way < self.config.cut_share else sample

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

    def _source(self, row: int, instrument: int, number: int = 0) -> TimbreSample:
        library = self.libraries[number]
        held, pitch = float(library.held_seconds[row]), int(library.pitch[row])
        take = Take(Kind.SOURCE, pitch, int(library.velocity[row]), held, row=row)
        return TimbreSample(take, instrument, self._point(instrument), library=number)


def _shares(count: int, n_parts: int) -> list[int]:
    """Shares `count` notes out among so many instruments."""
    return [(count * (number + 1)) // n_parts - (count * number) // n_parts for number in range(n_parts)]


def dataset_key(
    bundle: Bundle, plan: SamplePlan, config: TimbreFinetuneConfig, encoder: TimbreEncoder
) -> str:
    """Names the dataset by 16 hexadecimal digits: equal ones have the same, and no others."""
    hashes = {file.name: file.sha256 for file in bundle.manifest.files}
    fields = {name: value for name, value in asdict(config).items() if name in FIELDS}
    about = [VERSION, [hashes[name] for name in FILES], fields, config.loop.seed]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for library in plan.libraries:
        digest.update(features_key(encoder, library).encode())
    return digest.hexdigest()[:16]


def make_dataset(
    bundle: Bundle,
    libraries: Sequence[NoteDataset],
    samples: list[TimbreSample],
    timbre_dir: Path,
    folder: Path,
    jobs: int,
) -> NoteFeatures:
    """Has the bundle write its notes among the samples of `SamplePlan.draw`, hears all with stage 1's
    encoder, in `jobs` processes, and keeps both in the folder of these very samples (see `dataset_key`).

    Returns what is heard of the samples, in their order; one with too little to hear has no frames. Raises
    TimbrelError: the bundle cannot be served.
    """
    cache = TakeCache(folder)
    paths = [library.path for library in libraries]
    make_extractor = functools.partial(FeatureExtractor, bundle.path, paths, timbre_dir, cache)

    def compute(done: int) -> Iterator[Levels]:
        write_takes(bundle.path, [sample.take for sample in samples], cache)
        with (
            processes.results(make_extractor, FeatureExtractor.hear, samples[done:], jobs, CHUNK) as heard,
            bar("hearing", len(samples), "note", initial=done) as shown,
        ):
            for levels in heard:
                yield levels
                shown.update()

    folder.mkdir(parents=True, exist_ok=True)
    return kept_features(folder / "heard.f16", load_encoder(timbre_dir), len(samples), compute)


class FeatureExtractor:
    """Hears samples as `locate` hears recordings: trimmed, at one level. One per process, with the bundle's
    codec for the notes that it wrote, which the cache holds."""

    def __init__(self, bundle: Path, libraries: Sequence[Path], timbre_dir: Path, cache: TakeCache) -> None:
        opened = Bundle.open(bundle, verify=False)  # checked by whoever started this
        self._audio = [TakeAudio(opened, NoteDataset(library), cache) for library in libraries]
        self._encoder = load_encoder(timbre_dir)
        self._manifest = opened.manifest

    def hear(self, sample: TimbreSample) -> Levels:
        """Returns levels [T, n_bands]; none where there is too little to hear."""
        audio, rate = self._audio[sample.library].of(sample.take)
        rest = audio[round(sample.start * rate) :]
        recorded, manifest = rest[: round(sample.share * len(rest))], self._manifest
        longest = longest_seconds(manifest)
        if sample.flaws is not None and len(recorded):
            recorded = recorded[: round(longest * rate)]
            recorded = as_recorded(recorded, rate, np.random.default_rng(sample.flaws))
        try:
            sound = prepare_recording(recorded, rate, manifest.codec, longest)
        except AudioError:
            return np.zeros((0, self._encoder.config.n_bands), np.float16)
        return levels_of(self._encoder, [sound])[0]
