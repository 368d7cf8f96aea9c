"""listening.html: a blind ABX test by ear of a few notes, in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import soundfile
from numpy.typing import NDArray

from timbrel_bundle.audio import resample
from timbrel_bundle.bundle import Bundle
from timbrel_posttraining.evaluate.evaluation_set import EvaluationSet, Take
from timbrel_posttraining.evaluate.measure.features import level_db
from timbrel_posttraining.evaluate.sections.realism import Realism
from timbrel_posttraining.evaluate.takes import TakeAudio

FORMS = {"sampler": "sampler", "reconstruction": "codec", "generated": "written"}
"""The candidates that are heard beside the source, and what the page calls them."""
PAIRS = (("source", "codec"), ("source", "written"), ("source", "sampler"), ("codec", "written"))
"""Forms that are told apart."""
N_NOTES = 8
"""Notes of the page, of as many instruments."""
LOUD_VELOCITY = 50
"""Softer notes are hard to hear."""
SECONDS = (0.4, 3.0)
"""Notes are held for at least this long, and are heard for at most that long."""
FADE_SECONDS = 0.02
"""Where a note is cut."""
PEAK = 0.7
"""The highest sample of the loudest form of a note."""


@dataclass(frozen=True)
class Heard:
    """A note to hear: its title, and its audio [samples] by form, all at one sample rate in Hz."""

    title: str
    sample_rate: int
    forms: Mapping[str, NDArray[np.float32]]


def notes_to_hear(notes: EvaluationSet, section: Realism, audio: TakeAudio) -> list[Heard]:
    """Chooses loud notes of different instruments, kind of sound after kind of sound, in all their forms."""
    by_kind: dict[str, dict[str, int]] = {}
    for number, source in enumerate(section.sources):
        complete = all(section.takes[form][number] is not None for form in FORMS)
        if complete and source.velocity >= LOUD_VELOCITY and source.seconds >= SECONDS[0]:
            by_kind.setdefault(section.kinds[number], {}).setdefault(section.instruments[number], number)
    waiting = [list(instruments.values()) for instruments in by_kind.values()]
    chosen = [found[n] for n in range(N_NOTES) for found in waiting if n < len(found)][:N_NOTES]
    heard = []
    for number in chosen:
        takes: dict[str, Take] = {"source": section.sources[number]}
        takes |= {name: take for form, name in FORMS.items() if (take := section.takes[form][number])}
        sounds = {name: audio.of(take) for name, take in takes.items()}
        source = takes["source"]
        title = f"{notes.name(source.row)}, pitch {source.pitch}, velocity {source.velocity}"
        rate = max(of for _, of in sounds.values())
        forms = {name: resample(sound, of, rate) for name, (sound, of) in sounds.items()}
        heard.append(Heard(title, rate, matched(forms, rate)))
    return heard


def matched(forms: Mapping[str, NDArray[np.float32]], sample_rate: int) -> dict[str, NDArray[np.float32]]:
    """Brings all forms to one loudness and to one length, so that neither tells them apart."""
    length = min(round(SECONDS[1] * sample_rate), *(len(sound) for sound in forms.values()))
    fade = min(length, round(FADE_SECONDS * sample_rate))
    falling = np.concatenate([np.ones(length - fade), np.linspace(1.0, 0.0, fade)]).astype(np.float32)
    cut = {name: sound[:length] * falling for name, sound in forms.items()}
    level = {name: sound * 10.0 ** (-level_db(sound, sample_rate) / 20.0) for name, sound in cut.items()}
    peak = max(float(np.abs(sound).max(initial=0.0)) for sound in level.values())
    return {name: np.asarray(sound * (PEAK / max(peak, 1e-9)), np.float32) for name, sound in level.items()}


def render_listening(bundle: Bundle, heard: Sequence[Heard]) -> str:
    """Writes the page's HTML, with the audio in it as FLAC."""
    notes = [
        {
            "title": note.title,
            "audio": {name: _flac(sound, note.sample_rate) for name, sound in note.forms.items()},
        }
        for note in heard
    ]
    manifest = bundle.manifest
    told = {"bundle": manifest.name, "bundle_hash": manifest.bundle_hash, "pairs": PAIRS, "notes": notes}
    told["id"] = hashlib.sha256(json.dumps(notes).encode()).hexdigest()[:12]
    template = files("timbrel_posttraining.evaluate").joinpath("listening.html").read_text("utf-8")
    return template.replace("__DATA__", json.dumps(told).replace("<", "\\u003c"))


def _flac(sound: NDArray[np.float32], sample_rate: int) -> str:
    file = io.BytesIO()
    soundfile.write(file, sound, sample_rate, format="FLAC", subtype="PCM_16")
    return f"data:audio/flac;base64,{base64.b64encode(file.getvalue()).decode()}"
