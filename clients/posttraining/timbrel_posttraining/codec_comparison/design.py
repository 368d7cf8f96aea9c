"""The designs: each a codec and how it is trained, with a name and a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timbrel_posttraining.codec_comparison.seanet import SeanetCodec, SeanetConfig
from timbrel_training.codec.discriminator import DiscriminatorConfig
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.errors import ConfigError


@dataclass(frozen=True)
class Design:
    """One row of the comparison."""

    name: str
    """As the command line names it."""
    about: str
    """What it is, and what there is to learn from it."""
    codec: TimbrelNotesConfig | SeanetConfig
    """Which codec, and its sizes."""
    added_steadiness: float = 0.0
    """Weight of the mean absolute change of latents from frame to frame, on top of the codec's own."""
    dropout_share: float = 0.25
    """Share of steps that use only the first few residual codebooks (quantizer dropout)."""
    discriminator: DiscriminatorConfig | None = None
    """Trained beside the codec, where there is one."""

    def make_codec(self) -> Codec:
        """The codec, untrained."""
        if isinstance(self.codec, SeanetConfig):
            return SeanetCodec(self.codec)
        return TimbrelNotes(self.codec)


DESIGNS = (
    Design(
        "timbrel-notes-75",
        "75 frames per second: finer in time, half as many tokens again",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=640, n_subframes=4),
    ),
    Design(
        "timbrel-notes-50",
        "50 frames per second, as shipped: what the variants below are beside",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
    ),
    Design(
        "timbrel-notes-37.5",
        "37.5 frames per second, control points 5 ms apart as at 50: a quarter fewer tokens",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=1280, n_subframes=5),
    ),
    Design(
        "timbrel-notes-50-steady",
        "latents held ten times as hard from frame to frame: do codes stand still, and at what cost?",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
        added_steadiness=0.18,
    ),
    Design(
        "timbrel-notes-50-discriminator",
        "a multi-scale STFT discriminator beside the spectral loss: sharper, or only slower?",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
        discriminator=DiscriminatorConfig(),
    ),
    Design(
        "timbrel-notes-50-no-dropout",
        "every step with all codebooks: what quantizer dropout costs or brings",
        TimbrelNotesConfig(sample_rate=48_000, hop_length=960, n_subframes=4),
        dropout_share=0.0,
    ),
    Design(
        "seanet-75",
        "EnCodec's convolutions on the waveform, 24 kHz, 75 frames per second: phase is in the codes",
        SeanetConfig(ratios=(8, 5, 4, 2)),
    ),
    Design(
        "seanet-50",
        "the same at 50 frames per second",
        SeanetConfig(ratios=(8, 5, 4, 3)),
    ),
)
"""In the order of the report."""


def designs_named(names: Sequence[str]) -> list[Design]:
    """The designs of these names, all of them where there are none.

    Raises:
        ConfigError: no such design.
    """
    known = {design.name: design for design in DESIGNS}
    for name in names:
        if name not in known:
            raise ConfigError(f"{name}: no such codec design; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(DESIGNS)
