"""Makes tests/data/tiny_bundle: a bundle small enough to commit, whose notes behave.

    python tests/data/make_tiny_bundle.py [OUT_DIR]

The codec learns made-up sounds: how bright, how hollow, how noisy. The model learns made-up codes for a
minute: it plays the pitch asked, a few cents up and down by the seed, ends five frames after the key is
released, and reaches the cap of 94 frames (2.4 s and the header) when it is held as long.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from timbrel_bundle.layout import MANIFEST
from timbrel_bundle.manifest import save_manifest
from timbrel_export.exporter import Parts, export_bundle
from timbrel_export.sample_note import SampleNote
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec
from timbrel_training.codec.timbrel_notes import TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.codec import HELD, LOWEST_DB, N_FINE, N_ROWS, STEPS_PER_DB
from timbrel_training.codec.timbrel_notes.header import LEVELS, NUMBERS_PER_CODE, UNIT_DB, HeaderConfig
from timbrel_training.codec.timbrel_notes.note_parameters import (
    LEVEL_SECONDS,
    N_MOVING,
    N_VALUES,
    RELEASE_SECONDS,
    SHAPES,
    partial_groups,
)
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.note_training.loss import token_loss
from timbrel_training.timbre.encoder import TimbreEncoder, TimbreEncoderConfig
from timbrel_training.timbre.features import disturbed
from timbrel_training.tokens.delay import collate

CODEC = TimbrelNotesConfig(n_templates=2, header=HeaderConfig(n_codes=2, width=8, n_blocks=1))
MODEL = ModelConfig(
    codebook_size=1024,
    n_codebooks=3,
    codes_per_semitone=12,
    code_offset=24 * 12 + 512,
    codebook_delay=0,
    lead_frames=4,
    held_codes=(0, N_FINE, 0),
    d_model=32,
    n_heads=4,
    n_kv_heads=2,
    d_feed_forward=64,
    n_timbre_waves=8,
    n_velocity_waves=4,
    n_encoder_layers=1,
    n_decoder_layers=2,
    max_frames=94,
)
TIMBRE = TimbreEncoderConfig(n_frames=20, n_channels=4, n_layers=2, width=16)
RANGES = pb.RequestRanges(
    pitch_min=36, pitch_max=96, velocity_min=1, velocity_max=127, seconds_min=0.1, seconds_max=2.4
)
INSTRUMENTS = (
    ("Grand Piano", "Keys", -0.6, 0.3),
    ("Violin", "Strings", 0.5, 0.5),
    ("Flute", "Winds", 0.6, -0.4),
    ("Trumpet", "Brass", -0.2, -0.7),
)
SHARPNESS = 20.0
NEARNESS = 0.4
N_STEPS = 1200
N_CODEC_STEPS = 1000
N_ENCODER_STEPS, N_HEARD_NOTES, N_HISSES = 2000, 800, 40
RELEASE_FRAMES = 5
MOVING = 1
"""The template of the upper timbres."""
N_HEARD = 4
"""Digits of a header that say something."""


def main(out_dir: Path) -> None:
    """Trains and exports."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = train(rng)
    notes = [sample_note(rng, held) for held in (9, 20, 60, 92)]
    training = pb.TrainingInfo(n_steps=N_STEPS, config="tests/data/make_tiny_bundle.py")
    training.sources.add(name="made-up codes", licence="Apache-2.0", n_instruments=4)
    timbre_map = pb.TimbreMap(
        points=[
            pb.TimbrePoint(instrument=name, family=family, x=x, y=y, pitch_min=36, pitch_max=96)
            for name, family, x, y in INSTRUMENTS
        ]
    )
    encoder, codec = make_timbre_encoder(), make_codec()
    train_timbre_encoder(encoder, codec)
    references = make_references(encoder, codec)
    parts = Parts(model, codec, encoder, timbre_map, training, RANGES, notes, references)
    manifest = export_bundle(parts, out_dir, name="tiny")
    # Notes end where the model ends them: `bundle_variants.holding` makes the bundle that holds keys on.
    manifest.model.ClearField("hold_frames")
    manifest.ranges.CopyFrom(RANGES)
    save_manifest(manifest, out_dir / MANIFEST)
    size = sum(file.size for file in manifest.files)
    print(f"{out_dir}: {size / 1e6:.2f} MB, {manifest.model.n_parameters} parameters\n{manifest.parity}")


def make_codec() -> TimbrelNotes:
    """A codec that has learnt how the numbers of a header sound, and to find them in a sound."""
    codec = TimbrelNotes(CODEC)
    coder = codec.header
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        digits = torch.randint(0, LEVELS, (512, 2 * NUMBERS_PER_CODE))
        coder.mean.copy_(sounds(digits).mean(dim=0))
        optimizer = torch.optim.Adam(coder.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, N_CODEC_STEPS)
        for _ in range(N_CODEC_STEPS):
            digits = torch.randint(0, LEVELS, (64, 2 * NUMBERS_PER_CODE))
            numbers, values, midi = digits * (2 / (LEVELS - 1)) - 1, sounds(digits), torch.rand(64) * 60 + 36
            heard = coder.numbers(values, torch.ones_like(values), midi)
            loss = (coder.values(numbers, midi) - values).square().mean() / UNIT_DB**2
            loss = loss + (heard - numbers)[:, :N_HEARD].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    print(f"codec: {loss.item():.4f}")
    codec.requires_grad_(False)
    outlet = coder.decoder[-1]
    assert isinstance(outlet, nn.Linear)
    rows = torch.split(torch.arange(N_VALUES), [math.prod(shape) for shape in SHAPES.values()])
    outlet.weight[rows[list(SHAPES).index("offset")]] = 0.0  # partials lie where they belong
    outlet.bias[rows[list(SHAPES).index("offset")]] = 0.0
    wave = np.sin(2 * np.pi * np.arange(150) / 37.5)
    movement = np.zeros((150, N_MOVING, 2))
    movement[:, :, 0] = np.outer(wave, np.where(np.arange(N_MOVING) % 2, 1.0, -1.0))
    codec.templates.set(MOVING, movement.astype(np.float16))
    return codec.eval()


def sounds(digits: Tensor) -> Tensor:
    """Parameters [B, N_VALUES] of a header's digits [B, 6]: bright, hollow, hard, noisy, two unheard."""
    bright, hollow, hard, noisy = (digits.float() / (LEVELS - 1)).unbind(dim=1)[:N_HEARD]
    parts = {name: torch.zeros(len(digits), *shape) for name, shape in SHAPES.items()}
    number = torch.tensor([np.mean(group) for group in partial_groups()])
    slope = 18.0 - 6.0 * bright - 6.0 * hard
    spectrum = -slope[:, None] * torch.log2(number)
    spectrum = spectrum - 20.0 * hollow[:, None] * (torch.round(number) % 2 == 0)
    attack = torch.clamp(1500.0 * (torch.tensor(LEVEL_SECONDS) - 0.02), max=0.0)
    fall = 6.0 * torch.tensor(LEVEL_SECONDS)
    parts["level"] += torch.clamp(spectrum[:, None] + (attack - fall)[:, None], min=-95.0)
    parts["release"] -= torch.clamp(500.0 * torch.tensor(RELEASE_SECONDS), max=60.0)[:, None]
    parts["noise"] += (-100.0 + 30.0 * noisy)[:, None, None]
    parts["burst"] += (-100.0 + 30.0 * noisy)[:, None, None]
    parts["noise_release"] -= 40.0
    return torch.cat([part.flatten(1) for part in parts.values()], dim=1)


def make_timbre_encoder() -> TimbreEncoder:
    """A timbre encoder with random weights, that tells these instruments."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(13)
        encoder = TimbreEncoder(TIMBRE, CODEC.sample_rate, len(INSTRUMENTS)).eval()
        encoder.places.copy_(torch.tensor([(x, y) for _, _, x, y in INSTRUMENTS]))
        encoder.mean.fill_(-50.0)
        encoder.deviation.fill_(20.0)
    return encoder


def train_timbre_encoder(encoder: TimbreEncoder, codec: Codec) -> None:
    """Has the encoder tell made-up notes of the instruments, some as microphones colour them, and noise."""
    rng = np.random.default_rng(0)
    instrument = np.arange(N_HEARD_NOTES) % len(INSTRUMENTS)
    places = [INSTRUMENTS[number][2:] for number in instrument]
    pitches, velocities = rng.integers(36, 97, len(places)), rng.integers(1, 128, len(places))
    notes = [
        _codes(rng, place, int(pitch), float(velocity), 30)
        for place, pitch, velocity in zip(places, pitches, velocities, strict=True)
    ]
    with torch.no_grad():
        some = np.split(np.stack(notes).astype(np.int64), range(20, len(notes), 20))
        # Where a recording begins is chance: each group of notes begins elsewhere in its first frame.
        starts = rng.integers(encoder.log_mel.hop_length, size=len(some)).tolist()
        audios = [codec.decode(torch.from_numpy(codes)) for codes in some]
        audios = [audio[:, start:] for audio, start in zip(audios, starts, strict=True)]
        heard = [encoder.log_mel(audio, torch.full((len(audio),), audio.shape[1])) for audio in audios]
        clean = torch.cat(heard).numpy()
        noises = np.stack([_noise(rng, CODEC.sample_rate) for _ in range(N_HISSES)])
        hiss = encoder.log_mel(torch.from_numpy(noises), torch.full((N_HISSES,), noises.shape[1])).numpy()
    optimizer = torch.optim.Adam(encoder.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, N_ENCODER_STEPS)
    for step in range(N_ENCODER_STEPS):
        rows = rng.integers(len(clean), size=64)
        n_frames = rng.integers(4, TIMBRE.n_frames + 1, 64 + 16)
        levels = clean[rows]
        levels = np.where(rng.random((64, 1, 1)) < 0.1, disturbed(levels, n_frames[:64], rng), levels)
        noise = hiss[rng.integers(len(hiss), size=16)]
        heard = torch.from_numpy(np.concatenate([levels, noise]).astype(np.float32))
        cosines = encoder.cosines(encoder.hear(heard, torch.from_numpy(n_frames)))
        cosines = torch.cat([cosines, torch.full((len(cosines), 1), NEARNESS)], dim=1)
        named = torch.from_numpy(np.append(instrument[rows], [len(INSTRUMENTS)] * 16))
        loss = nn.functional.cross_entropy(SHARPNESS * cosines, named)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == N_ENCODER_STEPS - 1:
            print(f"timbre encoder, step {step}: {loss.item():.3f} nats")


def _noise(rng: np.random.Generator, n_samples: int) -> NDArray[np.float32]:
    """Noise of a colour by chance."""
    spectrum = np.fft.rfft(rng.standard_normal(n_samples))
    spectrum *= np.maximum(np.arange(len(spectrum)), 20.0) ** rng.uniform(-0.7, 0.2)
    noise = np.fft.irfft(spectrum, n_samples)
    return (0.1 * noise / noise.std()).astype(np.float32)


@torch.no_grad()
def make_references(encoder: TimbreEncoder, codec: Codec) -> pb.TimbreReferences:
    """By what the instruments are recognised: the mean embedding of some of their notes."""
    references = pb.TimbreReferences(sharpness=SHARPNESS, nearness=NEARNESS)
    for name, _, x, y in INSTRUMENTS:
        rng = np.random.default_rng(0)
        notes = [_codes(rng, (x, y), pitch, 90.0, 30) for pitch in range(40, 92, 4)]
        audio = codec.decode(torch.from_numpy(np.stack(notes).astype(np.int64)))
        embeddings = encoder(audio, torch.full((len(audio),), audio.shape[1]))[1]
        mean = nn.functional.normalize(embeddings.mean(dim=0), dim=0)
        references.references.add(instrument=name, embedding=mean.tolist())
    return references


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
        mean = loss.nats.sum() / loss.n_targets.sum()
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == N_STEPS - 1:
            by_codebook = (loss.nats / loss.n_targets).detach().numpy().round(3)
            print(f"step {step}: {mean.item():.3f} nats per token, by codebook {by_codebook}")
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
    """A header of timbre and velocity, and of chance how noisy; the pitch, trembling; the release."""
    n_frames = held_frames + RELEASE_FRAMES
    # After the release codebook 1 counts the frames; the codec goes by the first of them.
    phase = np.clip(np.arange(n_frames) - held_frames + 1, HELD, None)
    codes = np.full((n_frames, MODEL.n_codebooks), CODEC.codebook_size - 1)
    codes[:, 0] = 12 * (pitch - 24)
    codes[:, 1] = N_FINE * phase + rng.integers(0, N_FINE, n_frames)
    bright, hollow = (7 if place > 0 else 2 for place in timbre)
    hard = int(velocity) * LEVELS // 128
    loudness = STEPS_PER_DB * (2 * hard - 34 - int(LOWEST_DB))
    header = (bright + 10 * hollow + 100 * hard, rng.integers(0, LEVELS), loudness, MOVING * (timbre[1] > 0))
    codes[:N_ROWS, 2] = header
    return codes.astype(np.uint16)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "out_dir",
        nargs="?",
        type=Path,
        default=Path(__file__).parent / "tiny_bundle",
        metavar="OUT_DIR",
        help="the folder to write; a bundle that is there is replaced (default: %(default)s)",
    )
    main(parser.parse_args().out_dir)
