"""MIDI files as strangers write them, and stranger: for hypothesis to draw."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

SEVEN_BITS = st.integers(0, 127)
CHANNEL = st.integers(0, 15) | st.just(0)
CONTROLLER = st.sampled_from(
    (1, 5, 6, 7, 10, 11, 38, 64, 65, 74, 84, 96, 97, 98, 99, 100, 101, 120, 121, 123, 126)
)
TUNING = (
    b"\x7f\x7f\x08\x02",
    b"\x7e\x7f\x08\x01",
    b"\x7f\x7f\x08\x08",
    b"\x7e\x7f\x08\x09",
    b"\x7f\x7f\x08\x07",
)
UNIVERSAL = (b"\x7e\x7f\x09\x01", b"\x7f\x7f\x04\x01", b"\x7f\x7f\x04\x03", b"\x7f\x7f\x04\x04", *TUNING)


def variable(number: int) -> bytes:
    """A number of up to 28 bits as files write it."""
    taken = [number & 0x7F]
    while number := number >> 7:
        taken.insert(0, number & 0x7F | 0x80)
    return bytes(taken)


def sized(data: bytes) -> bytes:
    return variable(len(data)) + data


def chunk(name: bytes, content: bytes, off_by: int = 0) -> bytes:
    return name + struct.pack(">I", max(0, len(content) + off_by)) + content


def voice(kind: int, channel: int, *data: int) -> bytes:
    return bytes([kind << 4 | channel, *data])


def registered(channel: int, parameter: int, coarse: int, fine: int) -> bytes:
    """Controllers one after another, in running status, at one time."""
    return voice(0xB, channel, 101, 0, 0, 100, parameter, 0, 6, coarse, 0, 38, fine)


NOTES = st.builds(lambda *data: voice(0x9, *data), CHANNEL, st.integers(30, 100), SEVEN_BITS)
ENDS = st.builds(lambda *data: voice(0x8, *data), CHANNEL, st.integers(30, 100), SEVEN_BITS)
EVENTS = st.one_of(
    NOTES,
    NOTES,
    ENDS,
    st.builds(lambda *data: voice(0xB, *data), CHANNEL, CONTROLLER | SEVEN_BITS, SEVEN_BITS),
    st.builds(lambda *data: voice(0xE, *data), CHANNEL, SEVEN_BITS, SEVEN_BITS),
    st.builds(lambda *data: voice(0xD, *data), CHANNEL, SEVEN_BITS),
    st.builds(lambda *data: voice(0xC, *data), CHANNEL, SEVEN_BITS),
    st.builds(lambda *data: voice(0xA, *data), CHANNEL, st.integers(30, 100), SEVEN_BITS),
    st.builds(registered, CHANNEL, st.integers(0, 7), SEVEN_BITS, SEVEN_BITS),
    st.builds(registered, st.sampled_from((0, 15)), st.just(6), st.integers(0, 16), st.just(0)),
    st.builds(
        lambda head, rest, end: b"\xf0" + sized(head + rest + end),
        st.sampled_from(UNIVERSAL) | st.binary(max_size=6),
        st.binary(max_size=40),
        st.sampled_from((b"\xf7", b"")),
    ),
    st.builds(lambda data: b"\xf7" + sized(data), st.binary(max_size=8)),
    # Texts, tempos, key signatures, and others of any length.
    st.builds(
        lambda kind, data: bytes([0xFF, kind]) + sized(data),
        st.sampled_from((0, 1, 3, 0x20, 0x21, 0x51, 0x54, 0x58, 0x59, 0x7F)) | SEVEN_BITS,
        st.binary(max_size=8),
    ),
    st.binary(min_size=1, max_size=3),
)
DELTAS = st.sampled_from((0, 0, 1, 30, 60, 120, 240)).map(variable)
TRACKS = st.builds(
    lambda first, events, end: first + b"".join(delta + event for delta, event in events) + end,
    st.sampled_from((b"", b"\x00\x90\x3c\x50", b"\x00\x92\x43\x50", b"\x00\x99\x26\x50")),
    st.lists(st.tuples(DELTAS, EVENTS), min_size=1, max_size=40),
    st.sampled_from((b"\x00\xff\x2f\x00", b"")),
)
CHUNKS = st.one_of(
    st.builds(chunk, st.just(b"MTrk"), TRACKS),
    st.builds(chunk, st.just(b"MTrk"), TRACKS, st.sampled_from((-3, 0, 5))),
    st.builds(chunk, st.sampled_from((b"XFIH", b"XFKM", b"\0\1\2\3")), st.binary(max_size=20)),
)


def _file(kind: int, n_more: int, division: int, chunks: list[bytes], before: bytes, cut: int) -> bytes:
    header = struct.pack(">HHH", kind, max(0, len(chunks) + n_more), division)
    data = before + chunk(b"MThd", header) + b"".join(chunks)
    return data[: len(data) - cut]


FILES = st.builds(
    _file,
    st.sampled_from((0, 1, 1, 1, 2, 3)),
    st.sampled_from((0, 0, 0, -1, 2)),
    st.sampled_from((96, 480, 480, 0xE728, 0)),
    st.lists(CHUNKS, min_size=1, max_size=4),
    st.sampled_from((b"", b"", b"RIFF\0\1\0\0RMIDdata\0\1\0\0")),
    st.sampled_from((0, 0, 0, 1, 7)),
)
