"""The shape of the timbrel-notes codec."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimbrelNotesConfig:
    """Sizes of every part of the codec; the defaults are those of the shipped one."""

    sample_rate: int = 48_000
    """Samples per second. A frame-rate codec costs nearly the same here as at 24 kHz."""
    hop_length: int = 1280
    """Samples per frame: 37.5 frames per second, so that a note costs few steps of the decoder."""
    n_subframes: int = 5
    """Control points per frame (5.3 ms): attacks are sharper than frames are long."""
    n_codebooks: int = 4
    """Codebook 0 is the fundamental, the others are the residual quantizer's. More of those hardly sound
    better, and their codes are almost noise: a model spends most of its nats on them."""
    codebook_size: int = 1024
    """Codes per codebook."""
    fundamental_min: float = 24.0
    """MIDI note number of fundamental code 0."""
    fundamental_steps_per_semitone: int = 12
    """Resolution of the fundamental: 1024 codes reach from MIDI 24 to 109 in steps of 8.3 cents."""
    latent_dim: int = 64
    """Width of the quantized latent."""
    width: int = 256
    """Channels of the encoder's and decoder's blocks."""
    n_encoder_blocks: int = 4
    """ConvNeXt blocks of the encoder, which sees both ways in time."""
    n_decoder_blocks: int = 4
    """ConvNeXt blocks of the decoder, which is causal."""
    encoder_kernel: int = 5
    """Frames seen by an encoder block."""
    decoder_kernel: int = 3
    """Frames seen by a decoder block, all of them present or past: the state a stream carries."""
    n_harmonics: int = 224
    """Harmonics of the oscillator; above them the noise takes over (12.3 kHz at 55 Hz)."""
    n_free_harmonics: int = 64
    """Lowest harmonics with a gain of their own on top of the spectral envelope."""
    harmonics_per_group: int = 16
    """Harmonics above those share a gain in runs of this many, odd ones apart from even ones: hollow sounds
    (squares, clarinets) are hollow all the way up."""
    n_envelope_bands: int = 96
    """Bands of the harmonics' spectral envelope, evenly spaced in mel."""
    n_noise_bands: int = 64
    """Bands of the noise's spectral envelope, evenly spaced in mel."""
    table_size: int = 2048
    """Samples of one cycle of the wavetable oscillator."""
    noise_period: int = 412
    """Subframes after which the noise source repeats: 2.2 s, too long to be heard, short enough to ship."""

    @property
    def sub_hop(self) -> int:
        """Samples between control points."""
        return self.hop_length // self.n_subframes

    @property
    def n_harmonic_gains(self) -> int:
        """Free harmonics, and two gains (odd, even) for each run of harmonics above them."""
        n_shared = max(0, self.n_harmonics - self.n_free_harmonics)
        return min(self.n_free_harmonics, self.n_harmonics) + 2 * -(-n_shared // self.harmonics_per_group)

    @property
    def n_residual_codebooks(self) -> int:
        """Codebooks of the residual vector quantizer."""
        return self.n_codebooks - 1
