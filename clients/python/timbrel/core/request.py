"""Makes the request for a note, and refuses one that no server would take."""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from timbrel.core.timbre import instrument_point
from timbrel.errors import FieldViolation, InvalidRequestError, refusal
from timbrel_bundle.request_fields import (
    FIELD,
    NO_BENDS,
    NO_MOVES,
    SEED_BITS,
    Cents,
    SamplingSettings,
    TimbrePath,
    check_request,
    is_finite,
    is_unbent,
    timbre_fault,
)
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

Timbre: TypeAlias = tuple[float, float] | str
"""A point (x, y) of the timbre map, or the name of an instrument on it."""

Path: TypeAlias = Sequence[tuple[float, Timbre]]
"""Where a timbre goes: (seconds since the note began, timbre), in order."""

_DEFAULT: Any = {name: field.default for name, field in FIELD.items()}


@dataclass(frozen=True)
class NoteRequest:
    """A note to be written. Nothing in it is checked before it is sent.

    >>> timbrel.NoteRequest("Violin", pitch=67, velocity=80, seconds=1.5, seed=1)
    NoteRequest(timbre='Violin', pitch=67, velocity=80, seconds=1.5, seed=1, temperature=None, ...)

    Args:
        timbre: the point (x, y) of the timbre map, within the unit disc, or the name of an instrument on it;
            or where the timbre goes while the note sounds: (seconds, timbre), the one sound becoming the
            other in between, level before the first and behind the last.
        pitch: MIDI note number, 60 = C4 = 261.63 Hz.
        velocity: MIDI velocity, within the bundle's range (1..127 at most).
        seconds: how long the key is held, in seconds; the release follows.
        seed: the same request with the same seed gives the same codes. None: one is drawn, and the note
            tells it.
        temperature: 0..2; 0 always takes the most likely code. None: the server's default, as for the next
            two.
        top_k: 1..256: only the k most likely codes are drawn from.
        top_p: above 0, up to 1: only the most likely codes that make up this probability are drawn from.
        cents: how far from its pitch it sounds, -2400..2400: a number, or lines through points (seconds,
            cents). The codes stay what they are: a note is bent where it is decoded.
    """

    timbre: Timbre | Path
    pitch: int = _DEFAULT["pitch"]
    velocity: int = _DEFAULT["velocity"]
    seconds: float = _DEFAULT["seconds"]
    seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    cents: Cents = _DEFAULT["cents"]

    def __post_init__(self) -> None:
        # An iterator would be used up by the first who looked at it, and a curve may be changed by its owner.
        # None is what it is where a request leaves it out, since the note is decoded with what stands here.
        cents = _DEFAULT["cents"] if self.cents is None else _bend(self.cents)
        object.__setattr__(self, "cents", cents)
        object.__setattr__(self, "timbre", _kept(self.timbre))

    @property
    def path(self) -> Path:
        """Where the timbre goes; () where it stays. Raises InvalidRequestError: it is no path of pairs."""
        if is_timbre(self.timbre):
            return ()
        path = cast(Path, tuple(self.timbre))
        for point in path:
            if len(point) != 2 or isinstance(point[1], float | int):  # (x, y), say
                shown = " ".join(repr(point).split())[:40]  # what an array shows has lines
                needed = "(seconds, timbre), as in (1.5, 'Flute'), is needed"
                raise refusal("path", f"{shown} is no point of a path; {needed}")
        return path

    def seeded(self) -> NoteRequest:
        """This note with a seed, drawn here where there is none: however often it is sent, it is one note."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(SEED_BITS))


def _kept(given: Any) -> Any:
    """Lists and arrays, and those within, as tuples, which nobody changes and which can be hashed; so are
    iterators, as `zip` gives them."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    return tuple(map(_kept, given)) if isinstance(given, list | tuple | Iterator) else given


def is_timbre(timbre: object) -> bool:
    """Tells a timbre, or what is meant to be one, from a path."""
    if isinstance(timbre, str) or not isinstance(timbre, Sequence) or not timbre:
        return True
    return not all(isinstance(each, Sequence) and not isinstance(each, str) for each in timbre)


def placed(request: NoteRequest, timbre_map: pb.TimbreMap) -> NoteRequest:
    """The request at a point of the map. Raises InvalidRequestError: its timbre is a name that is not on the
    map; the nearest ones are suggested."""

    def point(timbre: Timbre) -> Timbre:
        if isinstance(timbre, str):
            return instrument_point(timbre_map, timbre)
        return cast(Timbre, _point(timbre))

    if path := request.path:
        return replace(request, timbre=tuple((seconds, point(timbre)) for seconds, timbre in path))
    return replace(request, timbre=point(cast(Timbre, request.timbre)))


def placed_to_pb(
    request: NoteRequest, timbre_map: pb.TimbreMap, manifest: pb.Manifest
) -> tuple[NoteRequest, pb.GenerateRequest]:
    """The request `placed`, and that on the wire. Raises InvalidRequestError: naming every field that is out
    of range, an instrument that is not on the map among them."""
    try:
        at_point = placed(request, timbre_map)
    except InvalidRequestError as error:
        try:
            request_to_pb(replace(request, timbre=(0.0, 0.0)), manifest)
        except InvalidRequestError as others:
            raise InvalidRequestError.of([*error.fields, *others.fields]) from None
        raise
    return at_point, request_to_pb(at_point, manifest)


def request_to_pb(request: NoteRequest, manifest: pb.Manifest) -> pb.GenerateRequest:
    """A request that was `placed`, on the wire; it holds the server to this bundle. Raises
    InvalidRequestError: naming every field that is out of the bundle's ranges, or not even a number."""
    path = [(seconds, _point(timbre)) for seconds, timbre in request.path]
    timbre = path[0][1] if path else _point(request.timbre)
    wholes = {name: whole(getattr(request, name)) for name in ("pitch", "velocity", "seed", "top_k")}
    request = replace(request, **wholes)
    sampling = SamplingSettings.of(request)
    cents = _bend(request.cents)
    violations = check_request(
        manifest.ranges,
        timbre,
        request.pitch,
        request.velocity,
        request.seconds,
        sampling,
        request.seed,
        cents,
        path=cast(TimbrePath, path),
        bends=manifest.codec.bends,
        moves=manifest.codec.moves,
    )
    if violations:
        raise InvalidRequestError.of([FieldViolation(*violation) for violation in violations])
    return pb.GenerateRequest(
        timbre=pb.Timbre(x=timbre[0], y=timbre[1]),
        path=[pb.TimbreAt(seconds=seconds, timbre=pb.Timbre(x=x, y=y)) for seconds, (x, y) in path],
        pitch=request.pitch,
        velocity=request.velocity,
        seconds=request.seconds,
        seed=request.seed,
        sampling=sampling.to_pb(),
        bundle_hash=manifest.bundle_hash,
    )


def whole(value: Any) -> Any:
    """60 of 60.0, as arrays and JSON give it; anything else as it is."""
    return int(value) if is_finite(value) and float(value).is_integer() else value


def check_bend(cents: Cents, codec: pb.CodecSpec) -> Cents:
    """Returns a bend in a form that can be read again and again; it is decoded here, and may have any number
    of points. Raises InvalidRequestError: it is out of range, or not for this codec."""
    given = math.nan if cents is None else _bend(cents)  # which only a request may leave out
    fault = FIELD["cents"].fault(given, pb.RequestRanges(), most_points=None)
    if fault is None and not codec.bends and not is_unbent(given):
        fault = NO_BENDS
    if fault is not None:
        raise refusal("cents", fault)
    return given


def check_move(timbre: tuple[float, float], codec: pb.CodecSpec) -> None:
    """Raises InvalidRequestError where this is no point of the map, or notes of this codec cannot move."""
    fault = timbre_fault(_point(timbre)) if codec.moves else NO_MOVES
    if fault is not None:
        raise refusal("timbre", fault)


def _point(timbre: object) -> tuple[float, ...]:
    """Whatever was given, as a tuple: what is no pair becomes a tuple that is none either. The keys of a
    dictionary, {0: "Violin", 1: "Flute"}, are none, and the numbers of a set have no order."""
    if isinstance(timbre, Iterable) and not isinstance(timbre, Mapping | Set):
        with contextlib.suppress(TypeError):  # of an array without dimensions, which only claims to be one
            return tuple(timbre)
    return (cast(float, timbre),)


def _bend(cents: Cents) -> Cents:
    """A bend's points as tuples, whatever they were, so that each look finds them; anything else as it is."""
    if isinstance(cents, str | bytes) or not isinstance(cents, Iterable):
        return cents
    if isinstance(cents, np.ndarray) and cents.ndim:
        cents = cents.tolist()
    elif isinstance(cents, tuple) and all(type(each) is tuple for each in cents):
        return cents
    points = (_point(each) if isinstance(each, Iterable) else each for each in _point(cents))
    return cast(Cents, tuple(points))
