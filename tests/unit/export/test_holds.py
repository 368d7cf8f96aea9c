"""How a bundle says that keys are held for longer than its model writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timbrel_bundle.manifest import (
    LONGEST_HOLD_SECONDS,
    held_frames,
    longest_note,
    manifest_faults,
    written_ranges,
)
from timbrel_export.bundle_folder import HOLD_SECONDS, lengthen_holds
from timbrel_export.codec_graphs import describe_codec
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.header import HeaderConfig


@pytest.fixture
def manifest() -> pb.Manifest:
    """Of a codec whose header is said once; the model was trained on holds of up to 4 s."""
    config = TimbrelNotesConfig(n_templates=1, header=HeaderConfig(n_codes=6, width=8, n_blocks=1))
    return pb.Manifest(
        codec=describe_codec(TimbrelNotes(config)),
        model=pb.ModelSpec(max_frames=232, codebook_delay=0),
        ranges=pb.RequestRanges(seconds_min=0.1, seconds_max=4.0),
    )


def hold_faults(manifest: pb.Manifest) -> list[str]:
    return [fault for fault in manifest_faults(manifest) if "hold" in fault or "held" in fault]


def test_the_codebooks_of_the_header_hold_and_the_others_move(manifest: pb.Manifest) -> None:
    codec = manifest.codec
    assert list(codec.hold) == [codec.codebook_size] * 2 + [codec.codebook_size - 1] * 2


def test_at_a_high_rate_keys_are_held_for_as_long_as_a_note_may_be(manifest: pb.Manifest) -> None:
    manifest.codec.sample_rate = 96_000
    lengthen_holds(manifest)
    assert hold_faults(manifest) == []
    assert 300 < manifest.ranges.seconds_max < HOLD_SECONDS


def test_the_model_writes_less_than_it_was_trained_on_and_a_request_may_ask_for_minutes(
    manifest: pb.Manifest,
) -> None:
    lengthen_holds(manifest)
    assert manifest.ranges.seconds_max == HOLD_SECONDS
    assert manifest.codec.lead_frames < manifest.model.hold_frames < held_frames(4.0, manifest.codec)
    assert written_ranges(manifest).seconds_max == pytest.approx(3.0, abs=0.05)
    longest = held_frames(HOLD_SECONDS, manifest.codec)
    assert longest_note(manifest) == longest + 232 - manifest.model.hold_frames
    assert hold_faults(manifest) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.codec.ClearField("hold"),
        lambda manifest: manifest.model.ClearField("codebook_delay"),
    ],
)
def test_notes_of_other_codecs_are_held_as_before(
    manifest: pb.Manifest, change: Callable[[pb.Manifest], None]
) -> None:
    change(manifest)
    lengthen_holds(manifest)
    assert (manifest.ranges.seconds_max, manifest.model.hold_frames) == (4.0, 0)
    assert written_ranges(manifest) == manifest.ranges and longest_note(manifest) == 232


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.codec.ClearField("hold"), "gives 0 entries of codec.hold for 4 codebooks"),
        (lambda manifest: manifest.codec.hold.append(0), "gives 5 entries of codec.hold"),
        (lambda manifest: manifest.codec.hold.__setitem__(0, 1025), "beyond codec.codebook_size 1024"),
        (lambda manifest: manifest.model.ClearField("codebook_delay"), "codebook_delay 1, only 0 goes"),
        (lambda manifest: setattr(manifest.model, "hold_frames", 232), "hold_frames 232, which must be"),
        (lambda manifest: setattr(manifest.model, "hold_frames", 4), "hold_frames 4, which must be"),
        (
            lambda manifest: setattr(manifest.ranges, "seconds_max", LONGEST_HOLD_SECONDS),
            "has held notes of",
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_is_named(
    manifest: pb.Manifest, change: Callable[[pb.Manifest], None], message: str
) -> None:
    lengthen_holds(manifest)
    change(manifest)
    assert [fault for fault in hold_faults(manifest) if message in fault]
