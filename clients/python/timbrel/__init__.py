"""The Python client: renders notes through a timbrel server.

import timbrel

with timbrel.Client() as client:
    note = client.generate("Violin", pitch=60, velocity=100, seconds=2.0, seed=1)
    note.save("note.wav")
"""

import timbrel.forks  # noqa: F401  # isort: split
from timbrel.aio.client import AsyncClient
from timbrel.aio.player import AsyncPlayedNote, AsyncPlayer
from timbrel.client import Client
from timbrel.core.location import Location, Neighbour
from timbrel.core.model import DataSource, Model, SamplingDefaults
from timbrel.core.request import NoteRequest
from timbrel.core.timbre import Instrument, morph, path
from timbrel.errors import (
    AuthenticationError,
    BundleMismatchError,
    CancelledError,
    DeadlineExceededError,
    FieldViolation,
    InvalidRequestError,
    MissingExtraError,
    NotFoundError,
    OverloadedError,
    ServerError,
    TimbrelError,
    UnavailableError,
)
from timbrel.note import Note
from timbrel.player import PlayedNote, Player
from timbrel.settings import Security

__all__ = [
    "AsyncClient",
    "AsyncPlayedNote",
    "AsyncPlayer",
    "AuthenticationError",
    "BundleMismatchError",
    "CancelledError",
    "Client",
    "DataSource",
    "DeadlineExceededError",
    "FieldViolation",
    "Instrument",
    "InvalidRequestError",
    "Location",
    "MissingExtraError",
    "Model",
    "Neighbour",
    "NotFoundError",
    "Note",
    "NoteRequest",
    "OverloadedError",
    "PlayedNote",
    "Player",
    "SamplingDefaults",
    "Security",
    "ServerError",
    "TimbrelError",
    "UnavailableError",
    "morph",
    "path",
]
