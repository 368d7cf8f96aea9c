"""The shape of the Transformer that writes notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from timbrel_training.tokens.delay import CodebookLayout

N_CONDITION_POSITIONS = 3
"""Positions of the condition: timbre, pitch, velocity."""
N_PITCHES = 128
"""MIDI note numbers."""

FORMER_FIELDS = {"conditioning": "cross", "positions": "sinusoidal", "attention_bias": False}
"""What a ModelConfig had in earlier timbrels, and the one value that there is now of each."""


class ModelConfigError(ValueError):
    """A model of this shape cannot be built; the message names the field and what it may be."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and choices of `NoteTransformer`."""

    HEAD_DIM_MULTIPLE: ClassVar[int] = 8
    """A bundle's graphs ask this of a head's width: onnxruntime's GroupQueryAttention does, PyTorch not."""

    codebook_size: int
    """Codes per codebook, as the codec has them; BOS and EOS are added to these."""
    n_codebooks: int
    """Codebooks of the codec: tokens predicted per step."""
    codes_per_semitone: int = 0
    """Codes of codebook 0 per semitone, where it codes the fundamental; see CodebookLayout."""
    code_offset: int = 0
    """Shifts codebook 0's tokens; see CodebookLayout."""
    codebook_delay: int = 1
    """Frames by which each codebook runs behind the one before it; see CodebookLayout."""
    lead_frames: int = 0
    """Frames at a note's start that hold no sound: no note ends before it has sounded."""
    held_codes: tuple[int, ...] = ()
    """By codebook, how many of its codes, from 0 on, are said while the key is held and then alone; the rest
    are said once it is up. 0, and where there are none: all are said at any time."""
    released_codes: tuple[int, ...] = ()
    """By codebook, the code behind the last that is written once the key is up: codes may tell points in a
    frame, which the gate does not say. All are learnt. 0, and where there are none: all are written, too."""
    release_frames: int = 1
    """Frames after a key goes up that the gate counts. A note that has to end long after cannot tell from
    the token of so many frames ago how long it is; 1: the gate says whether the key is down, and no more."""
    digit_base: int = 0
    """In training a code's embedding is its own and those of its digits in this base; 0: its own alone."""
    d_model: int = 256
    """Width of the residual stream."""
    n_heads: int = 4
    """Query heads of every attention."""
    n_kv_heads: int = 4
    """Key and value heads, a divisor of `n_heads`. Reading the cache is what limits large batches."""
    d_feed_forward: int = 1024
    """Width between the two layers of a feed-forward block."""
    n_encoder_layers: int = 2
    """Layers over the condition's three positions: cheap, they run once a note."""
    header_width: int = 0
    """Width of the network that says lead frames, see HeaderNetwork; 0: the decoder says them. Of a codec
    without lead frames there is none."""
    n_decoder_layers: int = 6
    """Layers over the note's tokens."""
    n_timbre_waves: int = 0
    """Fourier features of the timbre's point, beside the point itself; see FourierFeatures."""
    n_velocity_waves: int = 0
    """The same of the velocity."""
    max_frames: int = 300
    """Hard cap on a note's frames; longer notes are cut there."""
    norm: Literal["pre", "post"] = "pre"
    """LayerNorm before each block (trains without care) or after its residual (as in the 2017 paper)."""
    activation: Literal["gelu", "relu"] = "gelu"
    """The function between the two layers of a feed-forward block."""
    dropout: float = 0.0
    """Share of each block's output dropped in training; attention weights are left alone, to stay fast."""
    head_dim: int | None = None
    """Width of one head; None: d_model / n_heads. The GroupQueryAttention kernel needs a multiple of 8."""
    norm_eps: float = 1e-5
    """Added to LayerNorm's variance."""

    def __post_init__(self) -> None:
        for field in ("held_codes", "released_codes"):
            numbers = tuple(getattr(self, field))
            object.__setattr__(self, field, numbers)  # JSON gives a list
            if numbers and (
                len(numbers) != self.n_codebooks
                or not all(0 <= number < self.codebook_size for number in numbers)
            ):
                raise ModelConfigError(
                    f"{field} is {list(numbers)}; it must have {self.n_codebooks} numbers, a codebook"
                    f" each, in [0, codebook_size = {self.codebook_size})"
                )
        if any(
            end and end <= n_held for n_held, end in zip(self.held_codes, self.released_codes, strict=False)
        ):
            raise ModelConfigError(
                f"released_codes is {list(self.released_codes)}; each number that is not 0 must be above that"
                f" of held_codes, {list(self.held_codes)}"
            )
        sizes = ("codebook_size", "n_codebooks", "d_model", "n_heads", "n_kv_heads", "d_feed_forward")
        for field in (*sizes, "n_encoder_layers", "n_decoder_layers", "max_frames", "release_frames"):
            self._require(getattr(self, field) >= 1, field, "be at least 1")
        self._require(self.n_heads % self.n_kv_heads == 0, "n_kv_heads", f"divide n_heads = {self.n_heads}")
        self._require(self.head_dim is None or self.head_dim >= 1, "head_dim", "be at least 1")
        if self.head_dim is None and self.d_model % self.n_heads:
            raise ModelConfigError(
                f"d_model = {self.d_model} is no multiple of n_heads = {self.n_heads}; set head_dim"
            )
        for field, choices in (("norm", ("pre", "post")), ("activation", ("gelu", "relu"))):
            self._require(getattr(self, field) in choices, field, f"be one of {', '.join(choices)}")
        self._require(self.digit_base == 0 or self.digit_base >= 2, "digit_base", "be 0 or at least 2")
        for field in ("n_timbre_waves", "n_velocity_waves", "header_width"):
            self._require(getattr(self, field) >= 0, field, "be at least 0")
        within = f"be in [0, max_frames = {self.max_frames})"
        self._require(0 <= self.lead_frames < self.max_frames, "lead_frames", within)
        self._require(0.0 <= self.dropout < 1.0, "dropout", "be in [0, 1)")

    def _require(self, holds: bool, field: str, what: str) -> None:
        if not holds:
            raise ModelConfigError(f"{field} is {getattr(self, field)!r}; it must {what}")

    @property
    def layout(self) -> CodebookLayout:
        """The token ids, and the way from codes to tokens."""
        return CodebookLayout(
            n_codebooks=self.n_codebooks,
            codebook_size=self.codebook_size,
            codes_per_semitone=self.codes_per_semitone,
            code_offset=self.code_offset,
            codebook_delay=self.codebook_delay,
        )

    @property
    def has_header_network(self) -> bool:
        """Whether a network of its own says the lead frames."""
        return self.header_width > 0 and self.lead_frames > 0

    @property
    def width_per_head(self) -> int:
        """`head_dim`, or what d_model and n_heads make of it."""
        return self.head_dim if self.head_dim is not None else self.d_model // self.n_heads

    @property
    def max_positions(self) -> int:
        """Length of a KV cache: every step of the longest note, and one to spare."""
        return self.max_frames + self.layout.last_delay + 2


def without_former(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a ModelConfig's fields as they were stored or written by hand, without FORMER_FIELDS. Raises
    ModelConfigError: one of these is another."""
    kept = dict(fields)
    for name, only in FORMER_FIELDS.items():
        if (value := kept.pop(name, only)) != only:
            raise ModelConfigError(f"{name} is {value!r}; it must be {only}")
    return kept
