"""Files: their hashes, writing them whole or not at all, and protobuf messages as JSON files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from timbrel_bundle.errors import BundleError

M = TypeVar("M", bound=Message)


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes `path`'s place when the block ends well.

    Where the block raises, `path` stays as it was and the temporary file goes. An OSError that names no file,
    as that of a full disk, or the temporary one, names `path`.

    Raises:
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `path` is a folder.
        PermissionError: `path` cannot be replaced, such as, on Windows, what a program has open.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, a file name is needed")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    # Without the file's own name, which may be as long as names can be.
    temporary = path.with_name(f".timbrel.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _replace(temporary, path)
    except OSError as error:
        if error.filename in (None, temporary, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):  # on a disk that has become read-only, say: what raised says more
            temporary.unlink(missing_ok=True)


def _replace(temporary: Path, path: Path) -> None:
    try:
        os.replace(temporary, path)
    except PermissionError as error:
        if not path.exists():
            raise
        reason = f"it cannot be replaced ({error.strerror}); another program may have it open"
        raise PermissionError(error.errno, reason, str(path)) from None


def atomic_write(path: Path | str, data: bytes | str) -> None:
    """Writes a whole file by renaming a temporary one; text becomes UTF-8. Raises as `atomic_path` does."""
    content = data.encode() if isinstance(data, str) else data
    with atomic_path(path) as temporary, open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def parse_json(text: str | bytes) -> Any:
    """Reads a JSON text. Raises ValueError where it is none, or is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds. Raises BundleError where it is missing or holds no such thing."""
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise BundleError(path, "the file is missing") from None
    except OSError as error:
        raise BundleError(
            path, f"cannot be read ({error.strerror})", "check the path and its permissions"
        ) from None
    except ValueError as error:
        raise BundleError(path, f"is not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise BundleError(path, f"holds a JSON {type(content).__name__}, an object is needed")
    return content


def parse_message(content: dict[str, Any], message: M, path: Path) -> M:
    """Fills `message` from JSON; fields that this version does not know are skipped.

    Raises BundleError, naming `path`, where a field has the wrong type.
    """
    try:
        return json_format.ParseDict(content, message, ignore_unknown_fields=True)
    # The last is what protobuf makes of a name with half a surrogate pair.
    except (json_format.ParseError, RecursionError, UnicodeError, SystemError) as error:
        raise BundleError(path, f"does not describe a {type(message).__name__} ({error})") from None


def write_message(message: Message, path: Path | str) -> None:
    """Writes a message as JSON, whole or not at all: proto3's JSON mapping, with the field names kept."""
    text = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2, ensure_ascii=False)
    atomic_write(path, text + "\n")
