"""Makes the request for a note, and refuses one that no server would take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from timbrel.errors import FieldViolation, InvalidRequestError
from timbrel_bundle.ranges import SamplingValues, check_request
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


@dataclass(frozen=True)
class NoteRequest:
    """A note to be written. Nothing in it is checked before `to_pb`."""

    timbre: tuple[float, float]
    """The point (x, y) of the timbre map."""

    pitch: int
    """MIDI note number."""

    velocity: int
    """MIDI velocity."""

    seconds: float
    """How long the key is held."""

    seed: int | None = None
    """None: the server draws one."""

    temperature: float | None = None
    """0 always takes the most likely code; None: the server's default, as for the next two."""

    top_k: int | None = None
    """Only the k most likely codes are drawn from."""

    top_p: float | None = None
    """Only the most likely codes that make up this probability are drawn from."""

    def to_pb(self, manifest: pb.Manifest) -> pb.GenerateRequest:
        """The request on the wire, which holds the server to this bundle.

        Raises:
            InvalidRequestError: naming every field that is out of the bundle's ranges, or not even a number.
        """
        timbre = _point(self.timbre)
        sampling = SamplingValues(self.temperature, self.top_k, self.top_p)
        violations = check_request(
            manifest.ranges, timbre, self.pitch, self.velocity, self.seconds, sampling, self.seed
        )
        if violations:
            raise InvalidRequestError.of([FieldViolation(*violation) for violation in violations])
        return pb.GenerateRequest(
            timbre=pb.Timbre(x=timbre[0], y=timbre[1]),
            pitch=self.pitch,
            velocity=self.velocity,
            seconds=self.seconds,
            seed=self.seed,
            sampling=pb.Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p),
            bundle_hash=manifest.bundle_hash,
        )


def _point(timbre: object) -> tuple[float, ...]:
    """Whatever was given, as a tuple: what is no pair becomes a tuple that is none either."""
    return tuple(timbre) if isinstance(timbre, Iterable) else (cast(float, timbre),)
