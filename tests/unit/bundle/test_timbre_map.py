"""Instruments are found by name, and a name that is not there gets the nearest ones."""

from __future__ import annotations

from typing import Any

import pytest

from timbrel_bundle import layout
from timbrel_bundle.errors import BundleError, UnknownInstrumentError
from timbrel_bundle.timbre_map import find_instrument, load_timbre_map, save_timbre_map
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


@pytest.mark.parametrize("name", ["Church Organ", "church organ", " CHURCH  ORGAN "])
def test_case_and_spaces_do_not_matter(folder: Any, name: str) -> None:
    assert find_instrument(folder.open().timbre_map, name).instrument == "Church Organ"


def test_an_accent_may_be_a_character_of_its_own() -> None:
    composed, decomposed = "Fl\u00fbte", "Flu\u0302te"
    for known, asked in ((composed, decomposed), (decomposed, composed)):
        assert find_instrument(pb.TimbreMap(points=[{"instrument": known}]), asked).instrument == known


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("organ", "did you mean 'Church Organ'?"),
        ("Violn", "did you mean 'Violin' or 'Viola'?"),
        ("zzz", "it has 4, such as 'Violin'"),
        ("", "it has 4, such as 'Violin'"),
    ],
)
def test_an_unknown_name_gets_the_nearest(folder: Any, name: str, message: str) -> None:
    with pytest.raises(UnknownInstrumentError) as error:
        find_instrument(folder.open().timbre_map, name)
    assert str(error.value) == f"no instrument {name!r} on the timbre map; {message}"


def test_an_empty_map_says_so() -> None:
    with pytest.raises(UnknownInstrumentError, match="it names none"):
        find_instrument(pb.TimbreMap(), "Violin")


def test_an_unreadable_map(folder: Any) -> None:
    path = folder.path / layout.TIMBRE_MAP
    path.write_text('{"points": 3}')
    with pytest.raises(BundleError, match="does not describe a TimbreMap"):
        load_timbre_map(path)


@pytest.mark.parametrize("name", ["Violin", "violin", " VIOLIN "])
def test_an_instrument_that_no_name_would_find_is_refused(folder: Any, name: str) -> None:
    timbre_map = folder.open().timbre_map
    timbre_map.points.add(instrument=name, pitch_max=96)
    save_timbre_map(timbre_map, folder.path / layout.TIMBRE_MAP)
    with pytest.raises(BundleError, match=f"names 'Violin' and {name!r}, which are one name"):
        load_timbre_map(folder.path / layout.TIMBRE_MAP)
