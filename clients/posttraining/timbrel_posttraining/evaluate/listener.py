"""Hearing a take: its sound, and all that is measured of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder, CodecEncoder
from timbrel_posttraining.evaluate.cache import TakeCache
from timbrel_posttraining.evaluate.locator import Locator
from timbrel_posttraining.evaluate.measure.features import measure_note
from timbrel_posttraining.evaluate.measure.tuning import TuningMeter
from timbrel_posttraining.evaluate.record import Record
from timbrel_posttraining.evaluate.take import Kind, Take
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.notes.spectrum import log_mel

Audio = NDArray[np.float32]


class Sounds:
    """The sound of takes: read from the library, sent through the codec, or decoded from written codes."""

    def __init__(self, bundle: Bundle, library: NoteDataset, cache: TakeCache) -> None:
        self._encoder = CodecEncoder(bundle, n_threads=1)
        self._decoder = CodecDecoder(bundle, n_threads=1)
        self._library = library
        self._cache = cache

    def of(self, take: Take) -> tuple[Audio, int]:
        """Audio [samples], at least one, and its sample rate."""
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


class Listener:
    """Measures takes and keeps what it finds in the cache. One per process."""

    def __init__(self, bundle: Path, library: Path, cache: TakeCache) -> None:
        opened = Bundle.open(bundle, verify=False)  # checked by whoever started this
        self._sounds = Sounds(opened, NoteDataset(library), cache)
        self._locator = Locator(opened)
        self._meter = TuningMeter()
        self._cache = cache

    def listen(self, take: Take, *, in_full: bool) -> None:
        """Keeps the take's log-mel spectrogram, and where it is heard in full its record too."""
        audio, rate = self._sounds.of(take)
        if not in_full:
            self._cache.save_mel(take, log_mel(audio, rate))
            return
        features = measure_note(audio, rate, take.pitch, take.seconds, self._meter)
        truncated = take.kind is Kind.GENERATED and self._cache.codes(take)[1]
        record = Record.of(features, point=self._locator.locate(audio, rate), truncated=truncated)
        self._cache.save_record(take, record)
        self._cache.save_mel(take, features.log_mel)
