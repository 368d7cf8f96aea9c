"""Makes tests/data/tiny_bundle: a bundle small enough to commit, whose notes behave.

    python tests/data/make_tiny_bundle.py [OUT_DIR]

The codec's weights are random, but its codebook 0 is the fundamental, so that notes are in tune. The model is
trained for a minute on made-up codes: it plays the pitch asked, ends some frames after the key is released,
reaches the cap of 120 frames (2.4 s) when held as long, and its last codebook is noise, so that seeds differ.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from timbrel_export.exporter import export_bundle
from timbrel_export.sample_note import SampleNote
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.note_training.loss import token_loss
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig
from timbrel_training.tokens.delay import collate

CODEC = TimbrelNotesConfig(
    sample_rate=16_000,
    hop_length=320,
    n_subframes=4,
    n_codebooks=4,
    codebook_size=64,
    fundamental_min=36.0,
    fundamental_steps_per_semitone=1,
    latent_dim=8,
    width=16,
    n_encoder_blocks=1,
    n_decoder_blocks=1,
    n_harmonics=16,
    n_free_harmonics=8,
    n_envelope_bands=12,
    n_noise_bands=8,
    table_size=256,
    noise_period=64,
)
MODEL = ModelConfig(
    codebook_size=64,
    n_codebooks=4,
    codes_per_semitone=1,
    code_offset=36 + 32,
    d_model=32,
    n_heads=4,
    n_kv_heads=2,
    d_feed_forward=64,
    n_timbre_waves=8,
    n_velocity_waves=4,
    n_encoder_layers=1,
    n_decoder_layers=2,
    max_frames=120,
)
TIMBRE = TimbreEncoderConfig(trunk="patches", n_frames=20, width=16, n_layers=1, n_heads=2)
RANGES = pb.RequestRanges(
    pitch_min=36, pitch_max=96, velocity_min=1, velocity_max=127, seconds_min=0.1, seconds_max=2.4
)
INSTRUMENTS = (
    ("Grand Piano", "Keys", -0.6, 0.3),
    ("Violin", "Strings", 0.5, 0.5),
    ("Flute", "Winds", 0.6, -0.4),
    ("Trumpet", "Brass", -0.2, -0.7),
)
N_STEPS = 1200
RELEASE_FRAMES = 6


def main(out_dir: Path) -> None:
    """Trains and exports."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = train(rng)
    notes = [sample_note(rng, held) for held in (5, 20, 60, 118)]
    training = pb.TrainingInfo(n_steps=N_STEPS, config="tests/data/make_tiny_bundle.py")
    training.sources.add(name="made-up codes", licence="Apache-2.0", n_instruments=4)
    timbre_map = pb.TimbreMap(
        points=[
            pb.TimbrePoint(instrument=name, family=family, x=x, y=y, pitch_min=36, pitch_max=96)
            for name, family, x, y in INSTRUMENTS
        ]
    )
    encoder = make_timbre_encoder()
    manifest = export_bundle(
        model, make_codec(), encoder, timbre_map, training, RANGES, out_dir, notes, name="tiny"
    )
    size = sum(file.size for file in manifest.files)
    print(f"{out_dir}: {size / 1e6:.2f} MB, {manifest.model.n_parameters} parameters\n{manifest.parity}")


def make_codec() -> TimbrelNotes:
    """A codec with random weights, loud enough to measure."""
    codec = TimbrelNotes(CODEC)
    with torch.no_grad():
        for stage, layer in enumerate(codec.quantizer.layers.layers):
            layer._codebook.embed.normal_(0.0, 0.5**stage)
            layer._codebook.inited.fill_(True)
        codec.decoder.envelope.bias.fill_(1.1)
        codec.decoder.noise_envelope.bias.fill_(-0.5)
    return codec


def make_timbre_encoder() -> TimbreEncoder:
    """A timbre encoder with random weights, whose points lie apart."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(13)
        encoder = TimbreEncoder(TIMBRE, CODEC.sample_rate)
        encoder.head.weight.mul_(5)
        encoder.mean.fill_(-50.0)
        encoder.deviation.fill_(20.0)
    return encoder.eval()


def train(rng: np.random.Generator) -> NoteTransformer:
    """A model that has learned the made-up notes."""
    model = NoteTransformer(MODEL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, N_STEPS)
    for step in range(N_STEPS):
        notes = [sample_note(rng, int(held)) for held in _holds(rng)]
        batch = collate(
            [MODEL.layout.to_tokens(note.codes, note.pitch) for note in notes],
            [note.held_frames for note in notes],
            MODEL.layout,
            max_frames=MODEL.max_frames,
        )
        loss = token_loss(
            model,
            torch.tensor([note.timbre for note in notes]),
            torch.tensor([note.pitch for note in notes]),
            torch.tensor([note.velocity for note in notes]),
            replace(batch, tokens=_spoil(batch.tokens)),
        )
        optimizer.zero_grad()
        loss.mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == N_STEPS - 1:
            by_codebook = (loss.nats / loss.n_targets).detach().numpy().round(3)
            print(f"step {step}: {loss.mean.item():.3f} nats per token, by codebook {by_codebook}")
    return model.eval()


def _holds(rng: np.random.Generator) -> NDArray[np.int64]:
    """Mostly short, since a note has only one end to learn from."""
    return np.concatenate([rng.integers(1, 25, 14), rng.integers(25, MODEL.max_frames + 1, 2)])


def _spoil(tokens: Tensor) -> Tensor:
    """Some codes exchanged for others: so the model learns to recover from its own slips."""
    spoilt = (torch.rand(tokens.shape) < 0.03) & (tokens < MODEL.codebook_size)
    return torch.where(spoilt, torch.randint(MODEL.codebook_size, tokens.shape), tokens)


def sample_note(rng: np.random.Generator, held_frames: int) -> SampleNote:
    """A made-up note, as the model learns it."""
    angle, radius = rng.uniform(0, 2 * np.pi), np.sqrt(rng.uniform())
    timbre = (float(radius * np.cos(angle)), float(radius * np.sin(angle)))
    pitch, velocity = int(rng.integers(36, 97)), float(rng.integers(1, 128))
    codes = _codes(rng, timbre, pitch, velocity, held_frames)
    return SampleNote(timbre, pitch, velocity, held_frames, codes)


def _codes(
    rng: np.random.Generator, timbre: tuple[float, float], pitch: int, velocity: float, held_frames: int
) -> NDArray[np.uint16]:
    """Pitch; then attack, sustain and release as a count; then timbre and velocity; then noise."""
    n_frames = held_frames + RELEASE_FRAMES
    frame = np.arange(n_frames)
    # Codebook 1 runs a frame behind: so it hears of the release at the step at which the gate closes.
    envelope = np.where(frame + 1 < held_frames, np.minimum(frame, 7), 9 + frame - held_frames)
    quadrant = 2 * (timbre[0] > 0) + (timbre[1] > 0)
    colour = np.full(n_frames, 16 * quadrant + int(velocity) // 8)
    noise = 8 * (pitch % 8) + rng.integers(0, 8, n_frames)
    return np.stack([np.full(n_frames, pitch - 36), envelope, colour, noise], axis=1).astype(np.uint16)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tiny_bundle")
