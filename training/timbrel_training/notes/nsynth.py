"""NSynth (Engel et al., 2017) as published: a folder with examples.json and audio/*.wav."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from timbrel_training.notes.note import Note, Source, SourceError
from timbrel_training.notes.recording import read_recording, sounding_samples

EXAMPLES_FILE = "examples.json"
AUDIO_FOLDER = "audio"
HELD_SECONDS = 3.0
"""Every note of the data set is held for three seconds and recorded for one more."""

FAMILIES = {
    "bass": "Bass",
    "brass": "Brass",
    "flute": "Pipe",
    "guitar": "Guitar",
    "keyboard": "Piano",
    "mallet": "Chromatic Percussion",
    "organ": "Organ",
    "reed": "Reed",
    "string": "Strings",
    "synth_lead": "Synth Lead",
    "vocal": "Ensemble",
}
"""NSynth's families in the words of General MIDI, so that sources can be mixed."""


class NSynthSource(Source):
    """All notes of one part (train, valid or test) of the data set; one group per instrument. Raises
    SourceError: the folder is not in the published layout, or a file is missing or corrupt."""

    name = "nsynth"
    licence = "CC-BY-4.0"

    def __init__(self, folder: str | Path, *, sample_rate: int = 16_000) -> None:
        self.folder = Path(folder)
        self.sample_rate = sample_rate
        self._examples = _read_examples(self.folder / EXAMPLES_FILE)
        self._by_instrument: dict[str, list[str]] = {}
        for key in sorted(self._examples):
            self._by_instrument.setdefault(str(self._field(key, "instrument_str")), []).append(key)

    def settings(self) -> Mapping[str, object]:
        examples = self.folder / EXAMPLES_FILE
        return {
            "examples_bytes": examples.stat().st_size,
            "n_notes": len(self._examples),
            "sample_rate": self.sample_rate,
        }

    def check(self) -> None:
        for key in self._examples:
            self._number(key, "pitch", 0)
            self._number(key, "velocity", 1)

    def groups(self) -> Sequence[str]:
        return list(self._by_instrument)

    def notes(self, group: str) -> Iterator[Note]:
        for key in self._by_instrument[group]:
            yield self._note(key)

    def _note(self, key: str) -> Note:
        audio, sample_rate = read_recording(self.folder / AUDIO_FOLDER / f"{key}.wav")
        length = sounding_samples(audio, sample_rate)
        family = str(self._field(key, "instrument_family_str"))
        return Note(
            audio=audio[:length],
            sample_rate=sample_rate,
            instrument=str(self._field(key, "instrument_str")),
            family=FAMILIES.get(family, family),
            pitch=self._number(key, "pitch", 0),
            velocity=self._number(key, "velocity", 1),
            held_seconds=HELD_SECONDS,
            source=self.name,
            cut=length == len(audio),
        )

    def _number(self, key: str, name: str, low: int) -> int:
        value = self._field(key, name)
        if not isinstance(value, int) or not low <= value <= 127:
            where = f"{self.folder / EXAMPLES_FILE}: {key}"
            raise SourceError(f"{where}: {name} must be a whole number, {low} to 127, got {value!r}")
        return value

    def _field(self, key: str, name: str) -> Any:
        try:
            return self._examples[key][name]
        except KeyError:
            raise SourceError(f"{self.folder / EXAMPLES_FILE}: {key} has no {name}") from None


def _read_examples(file: Path) -> dict[str, dict[str, Any]]:
    try:
        examples = json.loads(file.read_text())
    except OSError as error:
        raise SourceError(
            f"{file}: {error.strerror}; an NSynth folder has {EXAMPLES_FILE} and {AUDIO_FOLDER}/"
        ) from None
    except ValueError:
        raise SourceError(f"{file}: not valid JSON") from None
    if not isinstance(examples, dict) or not all(isinstance(entry, dict) for entry in examples.values()):
        raise SourceError(f"{file}: not a table of notes by name")
    if not examples:
        raise SourceError(f"{file}: lists no notes")
    return examples
