"""The timbrel-notes codec: harmonics and noise, driven by a coded fundamental and a quantized latent."""

from __future__ import annotations

import torch
from torch import Tensor

from timbrel_training.codec.interface import Codec, Expression
from timbrel_training.codec.quantizer import ResidualQuantizer
from timbrel_training.codec.timbrel_notes.analysis import Analysis, fundamental_to_code
from timbrel_training.codec.timbrel_notes.config import TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.decoder import DecoderState, HarmonicNoiseDecoder
from timbrel_training.codec.timbrel_notes.encoder import FrameEncoder


class TimbrelNotes(Codec):
    """Codebook 0 holds the fundamental, the others the residual quantizer's codes of the latent.

    Phase is not coded: it is the running integral of the fundamental. So the codes of a steady tone stand
    still, and a decoded note is as much in tune as its fundamental code.
    """

    id = "timbrel-notes"
    bends = True

    def __init__(self, config: TimbrelNotesConfig | None = None) -> None:
        super().__init__()
        self.config = config or TimbrelNotesConfig()
        self.sample_rate = self.config.sample_rate
        self.hop_length = self.config.hop_length
        self.n_codebooks = self.config.n_codebooks
        self.codebook_size = self.config.codebook_size
        self.codes_per_semitone = self.config.fundamental_steps_per_semitone
        self.code_offset = (
            round(self.config.fundamental_min * self.codes_per_semitone) + self.codebook_size // 2
        )
        self.analysis = Analysis(self.config)
        self.encoder = FrameEncoder(self.config, self.analysis.n_features)
        self.quantizer = ResidualQuantizer(
            self.config.latent_dim, self.config.n_residual_codebooks, self.config.codebook_size
        )
        self.decoder = HarmonicNoiseDecoder(self.config)
        self.delay_samples = self.decoder.delay_samples

    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        hint = torch.zeros(audio.shape[0], device=audio.device) if pitch is None else pitch
        features, fundamental = self.analysis(audio, hint)
        codes = self.quantizer.encode(self.encoder(features))
        return torch.cat([fundamental_to_code(fundamental, self.config)[:, :, None], codes], dim=2)

    def latents(self, codes: Tensor) -> Tensor:
        """Returns what the residual quantizer's codes stand for: [B, T, latent_dim] of codes [B, T, K]."""
        return self.quantizer.decode(codes[:, :, 1:])

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        return self.decoder.initial_state(n_batch).by_name()

    def decode_chunk(
        self, codes: Tensor, expression: Expression, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        before = DecoderState.from_names(state)
        audio, after = self.decoder(self.latents(codes), codes[:, :, 0], expression, before)
        return audio, after.by_name()

    @torch.no_grad()
    def silence(self) -> Tensor:
        device = self.encoder.inlet.weight.device
        audio = torch.zeros(1, self.hop_length, device=device)
        return self.encode(audio, torch.tensor([60.0], device=device))[0, 0]
