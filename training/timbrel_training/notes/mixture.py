"""Several sources as one: their groups side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from timbrel_training.notes.note import Note, Source, SourceError

SEPARATOR = "/"


class MixedSource:
    """The notes of all its sources, group by group.

    Raises:
        SourceError: no sources, or they want notes at different sample rates.
    """

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
        """Licence of each source."""
        return {name: licence for source in self.sources for name, licence in source.licences.items()}

    def settings(self) -> Mapping[str, object]:
        return {"sources": [{"name": source.name, **source.settings()} for source in self.sources]}

    def groups(self) -> Sequence[str]:
        return [
            f"{number}{SEPARATOR}{group}"
            for number, source in enumerate(self.sources)
            for group in source.groups()
        ]

    def notes(self, group: str) -> Iterator[Note]:
        number, _, own = group.partition(SEPARATOR)
        return self.sources[int(number)].notes(own)

    def __len__(self) -> int:
        return sum(len(source) for source in self.sources)

    def __iter__(self) -> Iterator[Note]:
        for source in self.sources:
            yield from source
