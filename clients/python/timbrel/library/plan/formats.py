"""The formats of sample files, in one table.

Whatever offers or lists formats reads SAMPLE_FORMATS: who adds a row adds a format. (Only the page's builder
of instruments has a list of its own, in `clients/web/index.html`.)
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import soundfile


@dataclass(frozen=True)
class SampleFormat:
    """One format of sample files. Its name is what people ask for, and the ending of the files."""

    name: str
    bits: int
    """Size of each sample."""

    libsndfile: str | None = None
    """Its name for libsndfile, which then writes the files. Without one, our own writer does: 24-bit WAV with
    the chunks that samplers read (key, zones, loop), which libsndfile cannot write."""

    compressed: bool = False
    """Whether packing a file once more saves nothing."""

    @property
    def has_sampler_chunks(self) -> bool:
        """Whether a file says itself how it loops; otherwise the instrument files alone do."""
        return self.libsndfile is None

    def holds(self, sample_rate: int) -> bool:
        """Whether files can have so many samples a second (Hz): FLAC knows no odd rates above 65,535."""
        if self.libsndfile is None:
            return True
        try:
            soundfile.write(io.BytesIO(), np.zeros(1), sample_rate, self.subtype, format=self.libsndfile)
        except soundfile.SoundFileError:
            return False
        return True

    @property
    def subtype(self) -> str:
        """libsndfile's name of its samples."""
        return f"PCM_{self.bits}"


SAMPLE_FORMATS = {
    each.name: each
    for each in (
        SampleFormat("wav", bits=24),
        SampleFormat("flac", bits=24, libsndfile="FLAC", compressed=True),
    )
}
"""Name -> format; the first is the default."""

DEFAULT_FORMAT = next(iter(SAMPLE_FORMATS))


def format_of(file: str | PurePath) -> SampleFormat:
    """The format of a file by its ending; one that nothing is known of where the table has none."""
    ending = PurePath(file).suffix.removeprefix(".")
    return SAMPLE_FORMATS.get(ending) or SampleFormat(ending, bits=24, libsndfile=ending)
