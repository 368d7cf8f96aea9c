"""Takes in the making: the bundle writes them, they sound, and all that is known of them is kept in files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel import Client
from timbrel.progress import bar
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder, CodecEncoder
from timbrel_bundle.files import atomic_path
from timbrel_posttraining.evaluate.evaluation_set import Kind, Take
from timbrel_posttraining.evaluate.measure.features import NoteFeatures
from timbrel_training.notes.library import AudioLibrary

CACHE_VERSION = 1
"""Raise it when measurements change: older ones are then made anew."""

TIMEOUT_SECONDS = 600.0
"""For one note, the wait for a slot included."""


@dataclass(frozen=True)
class TakeCache:
    """A folder with up to three files for each take, so that a run that was killed goes on where it stopped.

    Processes may share it: files appear whole.
    """

    folder: Path

    @classmethod
    def open(cls, out: Path, bundle: Bundle, library: AudioLibrary) -> TakeCache:
        """Opens the folder for this very bundle and library, made as needed."""
        digest = hashlib.sha256(f"{CACHE_VERSION} {bundle.manifest.bundle_hash} ".encode())
        digest.update(json.dumps(library.header, sort_keys=True).encode())
        digest.update(library.index.tobytes())
        folder = out / "cache" / digest.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def has_codes(self, take: Take) -> bool:
        """Whether a generated take has been written."""
        return self._codes(take).is_file()

    def save_codes(self, take: Take, codes: NDArray[np.uint16], truncated: bool) -> None:
        """Keeps codes [T, K] of a generated take, and whether it was cut at the bundle's cap."""
        with atomic_path(self._codes(take)) as temporary, open(temporary, "xb") as file:
            np.savez(file, codes=codes, truncated=truncated)

    def codes(self, take: Take) -> tuple[NDArray[np.uint16], bool]:
        """Reads what `save_codes` kept."""
        with np.load(self._codes(take)) as kept:
            return kept["codes"], bool(kept["truncated"])

    def has_mel(self, take: Take) -> bool:
        """Whether the take's log-mel spectrogram is there."""
        return self._mel(take).is_file()

    def save_mel(self, take: Take, mel: NDArray[np.floating]) -> None:
        """Keeps a log-mel spectrogram [frames, 80] in dB, rounded to fp16: to 0.06 dB or better."""
        with atomic_path(self._mel(take)) as temporary, open(temporary, "xb") as file:
            np.save(file, mel.astype(np.float16))

    def mel(self, take: Take) -> NDArray[np.float32]:
        """Reads what `save_mel` kept."""
        return np.asarray(np.load(self._mel(take)), dtype=np.float32)

    def has_features(self, take: Take) -> bool:
        """Whether the take was measured in full."""
        return self._features(take).is_file()

    def save_features(self, take: Take, features: NoteFeatures) -> None:
        """Keeps a take's measurements."""
        with atomic_path(self._features(take)) as temporary:
            temporary.write_text(json.dumps(features.to_json()))

    def features(self, take: Take) -> NoteFeatures:
        """Reads what `save_features` kept."""
        return NoteFeatures.from_json(json.loads(self._features(take).read_text()))

    def _codes(self, take: Take) -> Path:
        return self.folder / f"{take.id}.codes.npz"

    def _mel(self, take: Take) -> Path:
        return self.folder / f"{take.id}.mel.npy"

    def _features(self, take: Take) -> Path:
        return self.folder / f"{take.id}.json"


class TakeAudio:
    """Gives takes their sound: read from the library, sent through the codec, or decoded from codes."""

    def __init__(self, bundle: Bundle, library: AudioLibrary, cache: TakeCache) -> None:
        self._encoder = CodecEncoder(bundle, n_threads=1)
        self._decoder = CodecDecoder(bundle, n_threads=1)
        self._library = library
        self._cache = cache

    def of(self, take: Take) -> tuple[NDArray[np.float32], int]:
        """Returns audio [samples], at least one, and its sample rate."""
        if take.kind is Kind.SOURCE:
            return self._library.audio(take.row), self._library.sample_rate
        codes = self._codes(take)
        rate, hop = self._decoder.sample_rate, self._decoder.spec.hop_length
        return (self._decoder.decode(codes) if len(codes) else np.zeros(hop, np.float32)), rate

    def _codes(self, take: Take) -> NDArray[np.uint16]:
        """[T, K]"""
        if take.kind is Kind.GENERATED:
            return self._cache.codes(take)[0]
        audio = self._library.audio(take.row)
        return self._encoder.encode(audio, self._library.sample_rate, float(take.pitch))


def write_takes(bundle: Path, takes: Iterable[Take], cache: TakeCache, *, progress: bool = False) -> None:
    """Has the bundle write the generated takes among these that are not in the cache yet.

    A private server is started on the bundle, and used with its default sampling. Every take is written once,
    with its own seed: none is picked.

    Raises:
        TimbrelError: the server does not start, or refuses a note.
    """
    missing = [take for take in takes if take.kind is Kind.GENERATED and not cache.has_codes(take)]
    if not missing:
        return
    with Client(bundle=bundle, timeout=TIMEOUT_SECONDS) as client:
        client.prepare()
        # As many as there are slots keep the engine's batch full, and some wait so that none is ever empty.
        pool = ThreadPoolExecutor(2 * client.model().n_slots)
        try:
            futures = [pool.submit(_write, client, take, cache) for take in missing]
            with bar("writing", len(missing), "note", shown=progress) as shown:
                for future in as_completed(futures):
                    future.result()
                    shown.update()
        finally:
            pool.shutdown(cancel_futures=True)


def _write(client: Client, take: Take, cache: TakeCache) -> None:
    note = client.generate(take.timbre, take.pitch, take.velocity, take.seconds, take.seed)
    cache.save_codes(take, note.codes, note.truncated)
