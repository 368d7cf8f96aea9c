"""Everything that timbrel's client raises on purpose.

    TimbrelError
    ├── InvalidRequestError      a field is out of range; `fields` names each one
    ├── NotFoundError            the server has no such bundle or file
    ├── OverloadedError          the server's queue is full, and stayed so through the retries
    ├── DeadlineExceededError    the time allowed for the call ran out
    ├── CancelledError           the call was cancelled
    ├── AuthenticationError      no credentials, or not the right ones
    ├── UnavailableError         no server there, or one that is shutting down or has lost its engine
    ├── BundleMismatchError      the server's bundle, or a file of it, is not the one expected
    ├── ServerError              anything else that went wrong in the server; `error_id` is in its log
    └── MissingExtraError        an optional part of timbrel is not installed; `extra` names it

Parts that do more than ask a server add their own: `library` (LockedError, OtherJobError, DiskFullError),
`audio` (SpeakerError). Each message is one line that can be shown to a user as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, NamedTuple


class TimbrelError(Exception):
    """The base of every error that timbrel's client raises on purpose.

    >>> try:
    ...     client.generate("Violni", pitch=12)
    ... except timbrel.TimbrelError as error:
    ...     print(error)
    timbre: no instrument 'Violni' ...
    """


class FieldViolation(NamedTuple):
    """One field of a request, and what is wrong with it.

    >>> timbrel.FieldViolation("pitch", "must be 36..96, got 12").field
    'pitch'
    """

    field: str
    """Its name in the request, for example "pitch"."""

    description: str
    """What is wrong, and what is allowed."""


class InvalidRequestError(TimbrelError):
    """A request that no server would accept: some field is out of range. Nothing was generated.

    >>> try:
    ...     client.generate((0.9, 0.9), velocity=0)
    ... except timbrel.InvalidRequestError as error:
    ...     [field.field for field in error.fields]
    ['timbre', 'velocity']
    """

    def __init__(self, message: str, fields: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message)
        self.fields: tuple[FieldViolation, ...] = tuple(fields)
        """Each field that is wrong; empty where the server did not name them."""

    @classmethod
    def of(cls, fields: Sequence[FieldViolation]) -> InvalidRequestError:
        """The error whose message is made of the fields' own."""
        return cls("; ".join(f"{name}: {description}" for name, description in fields), fields)


def refusal(field: str, description: str) -> InvalidRequestError:
    """The error to raise for one field that is out of range."""
    return InvalidRequestError.of([FieldViolation(field, description)])


def within_allowed(seconds: float | None) -> str:
    """The end of a message, such as " within the 120 s allowed"; "" where there is no bound."""
    if seconds is None:
        return ""
    # In three digits, or in as many as it takes: an hour is 3600 and not 3.6e+03.
    shown = f"{seconds:.0f}" if seconds >= 100.0 else f"{seconds:.3g}"
    return f" within the {shown} s allowed"


class NotFoundError(TimbrelError):
    """The server has no bundle or file of this name.

    >>> issubclass(timbrel.NotFoundError, timbrel.TimbrelError)
    True
    """


class OverloadedError(TimbrelError):
    """The server's queue is full, or the deadline too near to be met; trying again was of no use.

    >>> error = timbrel.OverloadedError("the queue is full", retry_after_seconds=1.5)
    >>> error.retry_after_seconds  # None where the server does not say
    1.5
    """

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        """When the server suggests to try again; None where it says nothing."""


class DeadlineExceededError(TimbrelError):
    """The time allowed for the call ran out.

    >>> impatient = timbrel.Client(timeout=0.001)  # seconds
    >>> impatient.generate("Violin")
    Traceback (most recent call last):
    timbrel.errors.DeadlineExceededError: ...
    """


class CancelledError(TimbrelError):
    """The call was cancelled, here or by the server.

    >>> with client.play() as player:
    ...     note = player.note_on("Violin")
    ...     note.cancel()
    ...     chunks = list(note)
    Traceback (most recent call last):
    timbrel.errors.CancelledError: ...
    """


class AuthenticationError(TimbrelError):
    """The server asks for credentials: none were sent, or not the right ones.

    >>> issubclass(timbrel.AuthenticationError, timbrel.TimbrelError)
    True
    """


class UnavailableError(TimbrelError):
    """No server answers at the address, or it is shutting down or has lost its engine.

    >>> timbrel.Client("localhost:1", timeout=1).model()
    Traceback (most recent call last):
    timbrel.errors.UnavailableError: the server at localhost:1 is not available: ...
    """


class BundleMismatchError(TimbrelError):
    """The server's bundle, or a file fetched from it, is not the one expected.

    A client holds the server to the bundle that it served first, so that one seed stays one note; a new
    client takes what is served now.

        >>> issubclass(timbrel.BundleMismatchError, timbrel.TimbrelError)
        True
    """


class ServerError(TimbrelError):
    """The server failed, or answered something that makes no sense.

    >>> timbrel.ServerError("internal error", error_id="1f2e3d4c5b6a").error_id  # look for it in the log
    '1f2e3d4c5b6a'
    """

    def __init__(self, message: str, error_id: str | None = None) -> None:
        super().__init__(message)
        self.error_id = error_id
        """Names the failure in the server's log; None where the server gave no id."""


class MissingExtraError(TimbrelError):
    """An optional part of timbrel is needed and not installed.

    >>> print(timbrel.MissingExtraError("decoding a note into sound", "cpu"))
    decoding a note into sound needs an optional part of timbrel: pip install "timbrel[cpu]"
    """

    def __init__(self, purpose: str, extra: str) -> None:
        if _has_gpu_runtime():
            extra = extra.replace("cpu", "gpu")  # whose files that one would overwrite
        # Windows' cmd.exe knows no other quotes.
        super().__init__(f'{purpose} needs an optional part of timbrel: pip install "timbrel[{extra}]"')
        self.extra = extra
        """What to install, as in timbrel[extra]."""
        self._purpose = purpose

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._purpose, self.extra)  # on the way out of a worker process


def _has_gpu_runtime() -> bool:
    try:
        return bool(distribution("onnxruntime-gpu"))
    except PackageNotFoundError:
        return False
