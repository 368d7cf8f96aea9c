"""The catalogue of designs."""

from __future__ import annotations

import pytest

from timbrel_posttraining.codec_comparison.design import DESIGNS, Design, designs_named
from timbrel_training.codec.timbrel_notes import TimbrelNotesConfig
from timbrel_training.errors import ConfigError


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_designs_are_what_their_names_say(design: Design) -> None:
    codec = design.make_codec()
    rate = next(part for part in design.name.split("-") if part[0].isdigit())
    assert codec.frame_rate == float(rate)
    assert codec.hop_length * 48_000 % codec.sample_rate == 0, (
        "frames must be whole samples of a 48 kHz library"
    )
    if isinstance(design.codec, TimbrelNotesConfig):
        assert codec.sample_rate == 48_000
        assert design.codec.hop_length % design.codec.n_subframes == 0


def test_names_are_unique_and_found() -> None:
    assert len({design.name for design in DESIGNS}) == len(DESIGNS)
    assert designs_named([]) == list(DESIGNS)
    assert [design.name for design in designs_named(["seanet-50", "timbrel-notes-75"])] == [
        "seanet-50",
        "timbrel-notes-75",
    ]


def test_an_unknown_name_is_told_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"seanet-60: no such codec design; there are timbrel-notes-75, "):
        designs_named(["seanet-60"])
