"""What an engine's graph gave for notes it has written, against plain PyTorch without a cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from ragged_notes import Player
from recording_runner import RecordedNote

from timbrel_bundle.randomness import uniforms_batch
from timbrel_bundle.request_fields import HEADER_TEMPERATURE
from timbrel_export.parity import PrecisionParity
from timbrel_server.engine.request import Finish, NoteRequest
from timbrel_training.model import NoteTransformer
from timbrel_training.model.sampling import sample
from timbrel_training.tokens.delay import apply_delay, gate_steps, remove_delay


@dataclass
class OracleComparison:
    """A bundle's model, fed the codes of finished notes, and how far the recorded logits are from its own."""

    model: NoteTransformer = field(repr=False)

    max_chosen_difference: float = 0.0
    """Of the logit of a token that was drawn and stands for a frame, or for the note's end."""
    max_difference: float = 0.0
    """Of any logit, also of those that nobody drew."""
    n_notes: int = 0
    n_chosen: int = 0
    n_other_draws: int = 0
    """Where the oracle's logits and the request's own seed and settings would have given another token."""
    precision: PrecisionParity = field(default_factory=PrecisionParity)

    def add(self, player: Player, recorded: RecordedNote) -> None:
        """Compares one finished note; first of all, the record must be that of the codes delivered."""
        assert player.handle is not None and player.last is not None
        layout, request = self.model.config.layout, player.request
        n_frames, drawn = len(player.frames), recorded.drawn
        cut = player.last.finish is Finish.CAP
        n_behind = layout.last_delay or int(not cut)  # without a delay the note's end has a step of its own
        assert len(drawn) == (n_frames + n_behind if n_frames else 1)
        assert cut == (n_frames == self.model.config.max_frames)
        tokens = remove_delay(drawn, n_frames, layout)
        codes = layout.to_codes(tokens, request.pitch).tolist()
        assert codes == [list(frame) for frame in player.frames]
        inputs, targets = apply_delay(tokens.astype(np.int64), layout, cut=cut)
        oracle = self._logits(request, player.handle.held_frames, inputs[: len(drawn)])
        self._compare(recorded.logits, oracle, drawn, meant=targets[: len(drawn)] >= 0)
        self._draw_again(request, player.handle.held_frames, oracle, drawn, meant=targets[: len(drawn)] >= 0)

    @torch.no_grad()
    def _logits(
        self, request: NoteRequest, held_frames: int, inputs: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """[S, K, V] of what each step reads, [S, K]: all steps at once, without a cache."""
        logits = self.model(
            torch.tensor([request.timbre], dtype=torch.float32),
            torch.tensor([request.pitch]),
            torch.tensor([float(request.velocity)]),
            torch.from_numpy(inputs)[None],
            self._gate(held_frames, len(inputs))[None],
        )
        found: NDArray[np.float32] = logits[0].numpy()
        return found

    def _gate(self, held_frames: int, n_steps: int) -> torch.Tensor:
        return torch.from_numpy(gate_steps(held_frames, n_steps, self.model.config.release_frames))

    def _compare(
        self,
        recorded: NDArray[np.float32],
        oracle: NDArray[np.float32],
        drawn: NDArray[np.int64],
        meant: NDArray[np.bool_],
    ) -> None:
        difference = np.abs(recorded - oracle)
        assert np.isfinite(difference).all()
        chosen = np.take_along_axis(difference, drawn[:, :, None], axis=2)[:, :, 0][meant]
        self.max_chosen_difference = max(self.max_chosen_difference, float(chosen.max()))
        self.max_difference = max(self.max_difference, float(difference.max()))
        self.n_notes += 1
        self.n_chosen += chosen.size
        self.precision.add("ragged note", recorded, drawn, oracle)

    def _draw_again(
        self,
        request: NoteRequest,
        held_frames: int,
        oracle: NDArray[np.float32],
        drawn: NDArray[np.int64],
        meant: NDArray[np.bool_],
    ) -> None:
        """The oracle's logits through the reference's draw, every step a row of one batch."""
        steps = range(len(drawn))
        sampling, n_codebooks = request.sampling, drawn.shape[1]
        again = sample(
            torch.from_numpy(oracle),
            torch.from_numpy(uniforms_batch([request.seed] * len(drawn), steps, n_codebooks)),
            self.model.decoder.rarely_ends(self._gate(held_frames, len(drawn))),
            torch.where(torch.arange(len(drawn)) < self.model.config.lead_frames, HEADER_TEMPERATURE, 1.0)
            * sampling.temperature,
            torch.full((len(drawn),), sampling.top_k),
            torch.full((len(drawn),), sampling.top_p),
        ).numpy()
        self.n_other_draws += int((again != drawn)[meant].sum())

    def __str__(self) -> str:
        return (
            f"{self.n_notes} notes, {self.n_chosen} tokens drawn: their logits within "
            f"{self.max_chosen_difference:.2g} of the oracle's, all logits within {self.max_difference:.2g}, "
            f"{self.precision.mean_kl:.2g} nats per token, {self.n_other_draws} other draws"
        )
