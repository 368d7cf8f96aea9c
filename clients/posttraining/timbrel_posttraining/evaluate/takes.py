"""Takes: the bundle writes them, they are measured over several processes, and the cache keeps it all."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import soxr
from numpy.typing import NDArray

from timbrel import Client
from timbrel.pitch import PitchMeter
from timbrel.progress import bar
from timbrel_bundle.audio import resample
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.errors import AudioError
from timbrel_bundle.files import atomic_path
from timbrel_bundle.timbre_encoder import TimbreEncoder
from timbrel_posttraining.bundles import NoteCoder
from timbrel_posttraining.evaluate.evaluation_set import Kind, Take
from timbrel_posttraining.evaluate.measure.features import NOWHERE, NoteFeatures, measure_note
from timbrel_posttraining.evaluate.measure.likeness import Likeness, likeness
from timbrel_posttraining.evaluate.measure.note_statistics import statistics_of
from timbrel_training import processes
from timbrel_training.errors import TrainingError, writing
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.spectrum import HOP, SAMPLE_RATE, floor_below, log_mel, log_mel_distance

CACHE_VERSION = 4
"""Raise it when measurements change: older ones are then made anew."""

TIMEOUT_SECONDS = 600.0
"""Timeout of one note, the wait for a slot included."""

CHUNK = 4
"""Takes handed to a process at a time."""

FRAMES_PER_SECOND = SAMPLE_RATE / HOP
"""Frame rate of the spectrograms."""

CODES, MEL, FEATURES, STATISTICS = "codes.npz", "mel.npy", "json", "statistics.npy"
"""Endings of the files of a take."""

MELS_KEPT = 2048
"""Spectrograms held in memory: some 100 MB."""


@dataclass(frozen=True)
class TakeCache:
    """Keeps a few files for each take, so that a run that was killed goes on where it stopped.

    Processes may share it: files appear whole.
    """

    folder: Path

    @classmethod
    def open(cls, out: Path, bundle: Bundle, library: NoteDataset) -> TakeCache:
        """Opens the folder for this very bundle and library, made as needed."""
        digest = hashlib.sha256(f"{CACHE_VERSION} {bundle.manifest.bundle_hash} ".encode())
        digest.update(json.dumps(library.header, sort_keys=True).encode())
        digest.update(library.index.tobytes())
        folder = out / "cache" / digest.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def has(self, take: Take, *kinds: str) -> bool:
        """Tells whether these files of the take are there: of CODES, MEL, FEATURES and STATISTICS."""
        return all(_holds_something(self._file(take, kind)) for kind in kinds)

    def save_codes(self, take: Take, codes: NDArray[np.uint16], truncated: bool) -> None:
        """Keeps codes [T, K] of a generated take, and whether it was cut at the bundle's cap."""
        with _whole(self._file(take, CODES)) as temporary, open(temporary, "xb") as file:
            np.savez(file, codes=codes, truncated=truncated)

    def codes(self, take: Take) -> tuple[NDArray[np.uint16], bool]:
        """Reads what `save_codes` kept."""
        with _reading(self._file(take, CODES)) as path, np.load(path) as kept:
            return kept["codes"], bool(kept["truncated"])

    def save_mel(self, take: Take, mel: NDArray[np.floating]) -> None:
        """Keeps a log-mel spectrogram [frames, 80] in dB, rounded to fp16: to 0.06 dB or better."""
        _save_array(self._file(take, MEL), mel.astype(np.float16))

    def mel(self, take: Take) -> NDArray[np.float32]:
        """Reads what `save_mel` kept."""
        return _load_array(self._file(take, MEL))

    def save_features(self, take: Take, features: NoteFeatures) -> None:
        """Keeps a take's measurements."""
        _save_json(self._file(take, FEATURES), asdict(features))

    def features(self, take: Take) -> NoteFeatures:
        """Reads what `save_features` kept."""
        with _reading(self._file(take, FEATURES)) as path:
            return NoteFeatures(**json.loads(path.read_text()))

    def save_statistics(self, take: Take, statistics: NDArray[np.float32]) -> None:
        """Keeps the statistics [n] of a take for the two-sample test."""
        _save_array(self._file(take, STATISTICS), statistics)

    def statistics(self, take: Take) -> NDArray[np.float32]:
        """Reads what `save_statistics` kept."""
        return _load_array(self._file(take, STATISTICS))

    def has_likeness(self, source: Take, take: Take) -> bool:
        """Tells whether the two were compared."""
        known = (self.has(each, STATISTICS) for each in (source, take))
        return _holds_something(self._likeness(source, take)) and all(known)

    def save_likeness(self, source: Take, take: Take, found: Likeness) -> None:
        """Keeps what was found of a take beside its source."""
        _save_json(self._likeness(source, take), asdict(found))

    def likeness(self, source: Take, take: Take) -> Likeness:
        """Reads what `save_likeness` kept."""
        with _reading(self._likeness(source, take)) as path:
            values = json.loads(path.read_text()).items()
            fields: Any = {name: tuple(each) if isinstance(each, list) else each for name, each in values}
            return Likeness(**fields)

    def _likeness(self, source: Take, take: Take) -> Path:
        return self._file(take, f"beside-{source.row:06d}.json")

    def _file(self, take: Take, kind: str) -> Path:
        return self.folder / f"{take.id}.{kind}"


def _holds_something(path: Path) -> bool:
    """Whether a file is there: one that is empty is what a power cut leaves of it."""
    return path.is_file() and path.stat().st_size > 0


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """The path of a file that is read. Raises TrainingError: it is damaged."""
    try:
        yield path
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise TrainingError(f"{path}: damaged; delete it, and the same command makes it anew") from error


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A temporary path that takes `path`'s place when the block ends well. Raises WriteError: the disk is
    full."""
    with writing(path), atomic_path(path) as temporary:
        yield temporary


def _save_array(path: Path, array: NDArray[Any]) -> None:
    with _whole(path) as temporary, open(temporary, "xb") as file:
        np.save(file, array)


def _load_array(path: Path) -> NDArray[np.float32]:
    with _reading(path):
        return np.asarray(np.load(path), dtype=np.float32)


def _save_json(path: Path, values: dict[str, Any]) -> None:
    with _whole(path) as temporary:
        temporary.write_text(json.dumps(values))


class TakeAudio:
    """Gives takes their sound: read from the library, resampled, sent through the codec, or decoded."""

    def __init__(self, bundle: Bundle, library: NoteDataset, cache: TakeCache) -> None:
        self._bundle = bundle
        self._decoder = CodecDecoder(bundle, n_threads=1)
        self._library = library
        self._cache = cache

    def of(self, take: Take) -> tuple[NDArray[np.float32], int]:
        """Returns audio [samples], at least one, and its sample rate."""
        if take.kind is Kind.SOURCE:
            return self._library.audio(take.row), self._library.sample_rate
        if take.kind is Kind.SAMPLER:
            return self._repitched(take), self._library.sample_rate
        codes = self._codes(take)
        rate, hop = self._decoder.sample_rate, self._decoder.spec.hop_length
        return (self._decoder.decode(codes, take.seed) if len(codes) else np.zeros(hop, np.float32)), rate

    def _repitched(self, take: Take) -> NDArray[np.float32]:
        """Plays a note of the library faster or slower, as a sampler does to reach another pitch."""
        faster = 2.0 ** ((take.pitch - int(self._library.pitch[take.row])) / 12.0)
        rate = self._library.sample_rate
        played = soxr.resample(self._library.audio(take.row), rate * faster, rate)
        return np.asarray(played, dtype=np.float32)

    def _codes(self, take: Take) -> NDArray[np.uint16]:
        """Reads or makes the codes [T, K] of a take that is decoded."""
        if take.kind is Kind.GENERATED:
            return self._cache.codes(take)[0]
        audio, rate = self._library.audio(take.row), self._library.sample_rate
        return self._coder.encode(audio, rate, float(take.pitch), take.seconds)

    @functools.cached_property
    def _coder(self) -> NoteCoder:
        """Made when it is first needed: not everybody asks for notes through the codec."""
        return NoteCoder(self._bundle)


def write_takes(bundle: Path, takes: Iterable[Take], cache: TakeCache) -> None:
    """Has the bundle write the generated takes among these that are not in the cache yet.

    A private server is started on the bundle, and used with its default sampling. Every take is written once,
    with its own seed: none is picked. Raises TimbrelError: the server does not start, or refuses a note.
    """
    missing = [take for take in takes if take.kind is Kind.GENERATED and not cache.has(take, CODES)]
    if not missing:
        return
    with Client(bundle=bundle, timeout=TIMEOUT_SECONDS) as client:
        client.prepare()
        # As many as there are slots keep the engine's batch full, and some wait so that none is ever empty.
        pool = ThreadPoolExecutor(2 * client.model().n_slots)
        try:
            futures = [pool.submit(_write, client, take, cache) for take in missing]
            with bar("writing", len(missing), "note") as shown:
                for future in as_completed(futures):
                    future.result()
                    shown.update()
        finally:
            pool.shutdown(cancel_futures=True)


def _write(client: Client, take: Take, cache: TakeCache) -> None:
    note = client.generate(take.timbre, take.pitch, take.velocity, take.seconds, take.seed)
    cache.save_codes(take, note.codes, note.truncated)


def measure_takes(
    bundle: Path,
    library: Path,
    wanted: Mapping[Take, bool],
    pairs: Iterable[tuple[Take, Take]],
    cache: TakeCache,
    jobs: int,
) -> None:
    """Measures the takes that the cache lacks: in full where `wanted` says so, else their log-mel
    spectrogram. Then compares the pairs (source, take) that it lacks.

    Each of the `jobs` processes opens bundle and library, both given as folders; 1 works in this one.
    """
    measured = [
        each for each in wanted.items() if not cache.has(each[0], MEL, *([FEATURES] if each[1] else []))
    ]
    compared = [pair for pair in dict.fromkeys(pairs) if not cache.has_likeness(*pair)]
    make_measurer = functools.partial(Measurer, bundle, library, cache)

    def work(what: str, method: Callable[[Measurer, Any], None], missing: Sequence[Any]) -> None:
        if not missing:
            return
        with (
            processes.results(make_measurer, method, missing, jobs, CHUNK) as done,
            bar(what, len(missing), "note") as shown,
        ):
            for _ in done:
                shown.update()

    work("measuring", Measurer.measure, measured)
    work("comparing", Measurer.compare, compared)


class Measurer:
    """Measures takes and keeps what it finds in the cache. One per process."""

    def __init__(self, bundle: Path, library: Path, cache: TakeCache) -> None:
        opened = Bundle.open(bundle, verify=False)  # checked by whoever started this
        self._audio = TakeAudio(opened, NoteDataset(library), cache)
        self._timbre_encoder = TimbreEncoder(opened, n_threads=1)
        self._meter = PitchMeter()
        self._cache = cache

    def measure(self, work: tuple[Take, bool]) -> None:
        """Keeps a take's log-mel spectrogram and, where it is measured in full, its features too."""
        take, in_full = work
        audio, rate = self._audio.of(take)
        if not in_full:
            self._cache.save_mel(take, log_mel(audio, rate))
            return
        features, mel = measure_note(
            audio,
            rate,
            take.pitch,
            take.seconds,
            self._meter,
            point=self._locate(audio, rate),
            truncated=take.kind is Kind.GENERATED and self._cache.codes(take)[1],
        )
        self._cache.save_features(take, features)
        self._cache.save_mel(take, mel)

    def compare(self, pair: tuple[Take, Take]) -> None:
        """Keeps how like its source a take is, and what the two-sample test needs of both.

        Notes that were held for different times are compared while both are held.
        """
        source, take = pair
        sounds = {each: self._audio.of(each) for each in pair}
        for each, (audio, rate) in sounds.items():
            if not self._cache.has(each, STATISTICS):
                self._cache.save_statistics(each, statistics_of(audio, rate))
        (reference, rate), (audio, rate_of_take) = sounds[source], sounds[take]
        audio = resample(audio, rate_of_take, rate)
        if not math.isclose(source.seconds, take.seconds, abs_tol=1e-3):
            end = round(min(source.seconds, take.seconds) * rate)
            reference, audio = reference[:end], audio[:end]
        self._cache.save_likeness(source, take, likeness(reference, audio, rate, source.pitch))

    def _locate(self, audio: NDArray[np.float32], sample_rate: int) -> tuple[float, float]:
        """Places a note by its sound alone, not even its pitch; NOWHERE where there is too little of it."""
        try:
            return self._timbre_encoder.locate(audio, sample_rate)
        except AudioError:
            return NOWHERE


class Measurements:
    """The measurements of takes, read from the cache as they are asked for."""

    def __init__(self, cache: TakeCache) -> None:
        self.features = functools.cache(cache.features)
        """Reads the features of a take that was measured in full."""
        self.mel = functools.lru_cache(MELS_KEPT)(cache.mel)
        """Reads the log-mel spectrogram [frames, 80], in dB, of any take."""
        self.likeness = functools.cache(cache.likeness)
        """Reads how like its source a take is, of a pair that was compared."""
        self._cache = cache

    def column(self, takes: Sequence[Take], field: str) -> NDArray[np.float64]:
        """One field of the takes' features, [takes]; a flag is 0 or 1."""
        return np.array([float(getattr(self.features(take), field)) for take in takes])

    def points(self, takes: Sequence[Take]) -> NDArray[np.float64]:
        """Lists the points [takes, 2] where the timbre encoder puts the takes."""
        features = [self.features(take) for take in takes]
        return np.array([(each.x, each.y) for each in features]).reshape(-1, 2)

    def statistics(self, takes: Sequence[Take]) -> NDArray[np.float32]:
        """The statistics of each for the two-sample test, [takes, n]."""
        return np.stack([self._cache.statistics(take) for take in takes])

    def distance(self, reference: Take, other: Take) -> float:
        """The log-mel distance in dB."""
        return float(log_mel_distance(self.mel(reference), self.mel(other)))

    def held_distance(self, reference: Take, other: Take, floor: float | None = None) -> float:
        """The log-mel distance in dB over the time for which both keys are held. Both are clipped at the
        floor in dB; None: 60 dB below the reference's peak."""
        n_frames = max(1, int(min(reference.seconds, other.seconds) * FRAMES_PER_SECOND))
        return log_mel_distance(self.mel(reference)[:n_frames], self.mel(other)[:n_frames], floor)

    def nearest(self, take: Take, candidates: Sequence[Take]) -> int:
        """Finds which of the candidates is nearest to a take, while both are held.

        All are clipped at one floor, 60 dB below the take's own peak.
        """
        floor = floor_below(self.mel(take))
        return int(np.argmin([self.held_distance(candidate, take, floor) for candidate in candidates]))

    def distances(self, references: Sequence[Take], others: Sequence[Take]) -> NDArray[np.float64]:
        """The log-mel distances [takes] in dB, pair by pair."""
        pairs = zip(references, others, strict=True)
        return np.array([self.distance(reference, other) for reference, other in pairs])
