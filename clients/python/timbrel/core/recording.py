"""Makes the request that locates a recording, and refuses one that no server would take."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel_bundle.errors import AudioError
from timbrel_bundle.request_fields import check_recording
from timbrel_bundle.timbre_encoder import longest_seconds, prepare_recording
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


def locate_request(
    audio: npt.NDArray[Any], sample_rate: int, pitch: float | None, manifest: pb.Manifest
) -> pb.LocateRequest:
    """The request on the wire, which holds the server to this bundle.

    Only what the server would listen to is sent: one channel at the bundle's sample rate, without the silence
    before and after, and no more than the bundle's longest note.

    Args:
        audio: [samples] or [samples, channels].
        sample_rate: its samples per second.
        pitch: MIDI note number; None where it is not known.

    Raises:
        InvalidRequestError: the sample rate or the pitch is out of range, or the audio is silent, too short,
            of another shape or not finite.
    """
    if violations := check_recording(sample_rate, pitch):
        raise InvalidRequestError.of([FieldViolation(*violation) for violation in violations])
    try:
        sound = prepare_recording(audio, sample_rate, manifest.codec, longest_seconds(manifest))
    except AudioError as error:
        raise InvalidRequestError.of([FieldViolation("audio", str(error))]) from None
    return pb.LocateRequest(
        audio=sound.astype("<f4").tobytes(),
        sample_rate=manifest.codec.sample_rate,
        pitch=pitch,
        bundle_hash=manifest.bundle_hash,
    )
