"""Opens sources by name, as the command line gives them; several are mixed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from timbrel_training.notes.config import NotesConfig, SourceConfig
from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.fonts import plan_fonts
from timbrel_training.notes.note import Note, Source, SourceError
from timbrel_training.notes.nsynth import NSynthSource
from timbrel_training.notes.playing import NoteRecorder
from timbrel_training.notes.sfz import SfzSource
from timbrel_training.notes.soundfont import SoundfontSource
from timbrel_training.notes.synthesizer import SynthesizerSource

SEPARATOR = "/"
FORMS = "soundfont:FILE, sfz:FILE, nsynth:FOLDER, folder:FOLDER, synthetic:NAME or synthetic:all"
FONT_LICENCES = {
    **dict.fromkeys(("FluidR3_GM", "FluidR3_GS", "FluidR3Mono_GM"), "MIT"),
    **dict.fromkeys(("MuseScore_General", "MuseScore_General_Full", "MuseScore_General_HQ"), "MIT"),
}
"""Licences of well-known fonts, by the stem of the file's name."""


class MixedSource(Source):
    """The notes of all its sources, group by group. Raises SourceError: no sources, or they want notes at
    different sample rates."""

    name = "mixture"

    def __init__(self, sources: Sequence[Source]) -> None:
        if not sources:
            raise SourceError("a mixture needs at least one source")
        if len({source.sample_rate for source in sources}) > 1:
            raise SourceError("the sources of a mixture must agree in their sample rate")
        self.sources = tuple(sources)
        self.sample_rate = sources[0].sample_rate

    @property
    def licences(self) -> Mapping[str, str]:
        """Licence of each source; of sources that share a name, such as several folders, all licences."""
        found: dict[str, list[str]] = {}
        for source in self.sources:
            for name, licence in source.licences.items():
                of_name = found.setdefault(name, [])
                if licence not in of_name:
                    of_name.append(licence)
        return {name: "; ".join(of_name) for name, of_name in found.items()}

    def settings(self) -> Mapping[str, object]:
        return {"sources": [{"name": source.name, **source.settings()} for source in self.sources]}

    def check(self) -> None:
        for source in self.sources:
            source.check()

    def groups(self) -> Sequence[str]:
        return [
            f"{number}{SEPARATOR}{group}"
            for number, source in enumerate(self.sources)
            for group in source.groups()
        ]

    def notes(self, group: str) -> Iterator[Note]:
        number, _, own = group.partition(SEPARATOR)
        return self.sources[int(number)].notes(own)


def open_sources(
    wanted: Sequence[str | SourceConfig],
    config: NotesConfig,
    licence: str | None = None,
    tell: Callable[[str], object] = print,
) -> Source:
    """Opens one source of all that are wanted, each one of FORMS, or, where none are, of those that the
    config names.

    `licence` is that of sources that neither state theirs nor are known. Several soundfonts share the draws
    of each cell, where their programs of one name sound alike. `tell` receives a line for each program that
    is left out or held out, and for each source of another licence or of none. Raises SourceError: none are
    wanted; or as `open_source`.
    """
    if not wanted and not config.sources:
        raise SourceError(f"no source of notes: give --source {FORMS}, or [[notes.sources]] in the config")
    listed = [SourceConfig(each) if isinstance(each, str) else each for each in wanted or config.sources]
    try:
        sources = [open_source(each, config, licence or "unknown") for each in listed]
    except SourceError as error:
        if wanted:
            raise
        raise SourceError(
            f"{error}; it is a source of the config: timbrel's training/README.md says how those that come "
            "with timbrel are fetched, --source names others"
        ) from error
    for each, source in zip(listed, sources, strict=True):
        if licence and licence not in source.licences.values():
            tell(f"{each.source}: its licence stays {'; '.join(source.licences.values())!r}")
        if "unknown" in source.licences.values():
            tell(f"{each.source}: its licence is unknown, as bundles will say; --licence states it")
    fonts = [source for source in sources if isinstance(source, SoundfontSource)]
    if len(fonts) > 1 or (fonts and (config.held_out_instruments or config.held_out_families)):
        plan = plan_fonts(fonts, config)
        for line in plan.report:
            tell(line)
        for font, draws, names in zip(fonts, plan.draws, plan.names, strict=True):
            font.draws, font.names = draws, names
            font.programs = tuple(draws)
    return sources[0] if len(sources) == 1 else MixedSource(sources)


def open_source(wanted: SourceConfig, config: NotesConfig, licence: str = "unknown") -> Source:
    """Opens one source of FORMS, of this licence if none is stated or known. Raises SourceError: it has none
    of these forms, or the source cannot be read."""
    kind, _, path = wanted.source.partition(":")
    path = os.path.expanduser(path)
    recorder = NoteRecorder(
        config.sample_rate, config.onset_seconds, config.max_held_seconds, config.max_seconds
    )
    pitches, n_draws = config.pitches, config.n_draws
    if not path:
        raise SourceError(f"{wanted.source!r} is not a source; expected {FORMS}")
    match kind:
        case "soundfont":
            return SoundfontSource(
                path,
                recorder=recorder,
                programs=config.programs,
                pitches=pitches,
                n_draws=n_draws,
                licence=wanted.licence or FONT_LICENCES.get(Path(path).stem, licence),
            )
        case "sfz":
            return SfzSource(
                path,
                recorder=recorder,
                pitches=pitches,
                n_draws=n_draws,
                instrument=wanted.instrument,
                family=wanted.family,
                licence=wanted.licence or licence,
            )
        case "synthetic":
            return SynthesizerSource(
                path, recorder=recorder, pitches=pitches, n_draws=n_draws, n_members=config.n_members
            )
        case "nsynth":
            return NSynthSource(path, sample_rate=config.sample_rate)
        case "folder":
            return FolderSource(
                path,
                sample_rate=config.sample_rate,
                instrument=wanted.instrument,
                family=wanted.family,
                licence=wanted.licence or licence,
            )
    raise SourceError(f"{kind!r} is not a kind of source; expected {FORMS}")
