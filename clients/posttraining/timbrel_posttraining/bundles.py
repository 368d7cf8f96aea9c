"""The map and the codec of a finished bundle, as training has them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_bundle.audio import resample
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import CODEC_WEIGHTS
from timbrel_bundle.manifest import codebook_delay
from timbrel_training.codec import registry
from timbrel_training.codec.interface import KnownNote, encode_note
from timbrel_training.errors import CheckpointError
from timbrel_training.model.config import ModelConfig
from timbrel_training.timbre.map import MapPoint, TimbreMap
from timbrel_training.tokens.store import TokenHeader


class NoteCoder:
    """Turns a note's audio into codes, as a bundle's codec does: in PyTorch, of the bundle's weights."""

    def __init__(self, bundle: Bundle, search_steps: int | None = None) -> None:
        """Makes the codec again; `search_steps` in place of its own. Raises BundleError: the weights are
        missing or damaged; CheckpointError: no codec that is known here can be made of them."""
        try:
            self._codec = registry.codec_in_bundle(bundle.file(CODEC_WEIGHTS))
            if search_steps is not None:
                self._codec.search_steps = search_steps
        except CheckpointError as error:
            codec, revision = bundle.manifest.codec.id, bundle.manifest.git_revision or "not stated"
            raise CheckpointError(
                f"{error}; codec {codec!r} is read by the timbrel that exported it: revision {revision}"
            ) from None

    def held_frames(self, seconds: float) -> int:
        """Returns the frames with the key down, of codes of a note that is held for so long."""
        return self._codec.held_frames(seconds)

    def encode(
        self,
        audio: NDArray[np.float32],
        sample_rate: int,
        pitch: float | None = None,
        held_seconds: float | None = None,
    ) -> NDArray[np.uint16]:
        """Returns codes [T, K] of audio [S]; pitch (MIDI note number) and hold are hints."""
        samples = torch.from_numpy(resample(audio, sample_rate, self._codec.sample_rate))
        return encode_note(self._codec, samples, pitch, held_seconds).numpy().astype(np.uint16)

    def encode_alike(self, notes: Iterable[KnownNote]) -> list[NDArray[np.uint16]]:
        """Returns codes [T, K] of notes of one instrument, at the codec's rate: alike where they are near."""
        return [codes.numpy().astype(np.uint16) for codes in self._codec.encode_alike(notes)]


def published_map(bundle: Bundle) -> TimbreMap:
    """Reads the map of a bundle."""
    return TimbreMap(
        tuple(
            MapPoint(p.instrument, p.family, p.x, p.y, p.pitch_min, p.pitch_max)
            for p in bundle.timbre_map.points
        )
    )


def token_header(bundle: Bundle, config: ModelConfig) -> TokenHeader:
    """Describes the codes that a bundle's codec makes, with what the config of its model knows of them."""
    codec = bundle.manifest.codec
    return TokenHeader(
        codec_id=codec.id,
        codec_hash=next(file.sha256 for file in bundle.manifest.files if file.name == CODEC_WEIGHTS),
        sample_rate=codec.sample_rate,
        hop_length=codec.hop_length,
        n_codebooks=codec.n_codebooks,
        codebook_size=codec.codebook_size,
        codes_per_semitone=config.codes_per_semitone,
        code_offset=config.code_offset,
        lead_frames=codec.lead_frames,
        held_codes=config.held_codes,
        released_codes=config.released_codes,
        codebook_delay=codebook_delay(bundle.manifest.model),
        repeats=codec.moves or codec.id == registry.DEFAULT,  # the latter's older bundles do not say so
    )
