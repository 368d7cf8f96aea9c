"""Protobuf messages as JSON files: proto3's JSON mapping with the field names kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from timbrel_bundle.errors import BundleError
from timbrel_bundle.files import atomic_write

M = TypeVar("M", bound=Message)


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds. Raises BundleError where it is missing or holds no such thing."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BundleError(path, "the file is missing") from None
    except OSError as error:
        raise BundleError(
            path, f"cannot be read ({error.strerror})", "check the path and its permissions"
        ) from None
    except (ValueError, RecursionError) as error:
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
    except (json_format.ParseError, RecursionError) as error:
        raise BundleError(path, f"does not describe a {type(message).__name__} ({error})") from None


def write_message(message: Message, path: Path | str) -> None:
    """Writes a message as JSON, whole or not at all."""
    text = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2, ensure_ascii=False)
    atomic_write(path, text + "\n")
