"""A codec of somebody else's: a package that is written on the fly, with an entry point."""

from __future__ import annotations

from pathlib import Path

ID = "level"
SOURCE = """
from dataclasses import asdict, dataclass

import torch
from timbrel_training.checkpoint import save_weights
from timbrel_training.codec.interface import WEIGHTS_NAME, Codec, CodecDesign

@dataclass(frozen=True)
class LevelConfig:
    n_levels: int = 32
    device: str = "auto"

class LevelCodec(Codec):  # one codebook, a frame's loudness; it plays a tone that is so loud
    id, sample_rate, hop_length, n_codebooks, codebook_delay = "level", 24_000, 480, 1, 0

    def __init__(self, config):
        super().__init__()
        self.config, self.codebook_size = config, config.n_levels
        self.register_buffer("levels", torch.linspace(0.0, 1.0, config.n_levels))

    def encode(self, audio, pitch=None, held_seconds=None):
        padded = torch.nn.functional.pad(audio, (0, -audio.shape[1] % self.hop_length))
        peaks = padded.unflatten(1, (-1, self.hop_length)).abs().amax(dim=2, keepdim=True)
        return (peaks - self.levels).abs().argmin(dim=2, keepdim=True)

    def silence(self):
        return torch.zeros(1, dtype=torch.int64)

    def initial_state(self, n_batch):
        return {"sample": torch.zeros(n_batch, dtype=torch.int64), "level": torch.zeros(n_batch)}

    def decode_chunk(self, codes, expression, state):
        level, n_samples = expression.level_db, codes.shape[1] * self.hop_length
        first = torch.where(state["sample"] == 0, level[:, 0], state["level"])
        gain = self.gain(level, torch.cat([first[:, None], level[:, :-1]], dim=1))
        wave = torch.sin(0.1 * (state["sample"][:, None] + torch.arange(n_samples)))
        audio = gain * wave * self.levels[codes[:, :, 0]].repeat_interleave(self.hop_length, dim=1)
        return audio, {"sample": state["sample"] + n_samples, "level": level[:, -1]}

def train(config, notes, out_dir):
    codec = LevelCodec(config)
    codec.levels *= max(float(abs(notes.audio(number)).max()) for number in range(len(notes)))
    about = {"id": codec.id, "config": asdict(config), "figures": {"notes": float(len(notes))}}
    save_weights(out_dir, WEIGHTS_NAME, codec, about)
    return codec

DESIGN = CodecDesign("level", LevelConfig, train, lambda sizes: LevelCodec(LevelConfig(**sizes)))
"""


def install(folder: Path, name: str = ID, target: str = "level_codec:DESIGN") -> Path:
    """Leaves the package in a folder, which is then to be put into sys.path; returns it."""
    (folder / "level_codec.py").write_text(SOURCE)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[timbrel.codecs]\n{name} = {target}\n")
    return folder
