"""The discriminator and its losses."""

from __future__ import annotations

import pytest
import torch

from timbrel_training.codec.discriminator import Discriminator, DiscriminatorConfig

CONFIG = DiscriminatorConfig(windows=(512, 256), channels=4, piece_seconds=0.1)


@pytest.fixture
def discriminator() -> Discriminator:
    torch.manual_seed(0)
    return Discriminator(CONFIG, sample_rate=24_000)


def test_each_side_gets_the_gradients_of_its_own_losses(discriminator: Discriminator) -> None:
    output = torch.randn(2, 4800, requires_grad=True)
    losses = discriminator.losses(output, torch.randn(2, 4800))
    weights = list(discriminator.parameters())
    own = torch.autograd.grad(
        losses["discriminator"], [output, *weights], allow_unused=True, retain_graph=True
    )
    assert own[0] is None and all(gradient is not None for gradient in own[1:])
    codecs = losses["adversarial"] + losses["matching"]
    theirs = torch.autograd.grad(codecs, [output, *weights], allow_unused=True)
    assert theirs[0] is not None and float(theirs[0].abs().max()) > 0
    assert all(gradient is None for gradient in theirs[1:])


def test_nothing_to_match_where_the_output_is_the_target(discriminator: Discriminator) -> None:
    audio = torch.randn(2, 4800)
    assert float(discriminator.losses(audio, audio)["matching"].detach()) < 1e-5


def test_it_learns_to_tell_noise_from_a_tone(discriminator: Discriminator) -> None:
    optimizer = torch.optim.AdamW(discriminator.parameters(), 3e-3)
    tone = torch.sin(torch.arange(4800) * 0.1).repeat(2, 1)
    for _ in range(40):
        loss = discriminator.losses(torch.randn(2, 4800), tone)["discriminator"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.5  # 2 by guessing
    judged = [float(score.detach().mean()) for score, _ in discriminator(tone)]
    doubted = [float(score.detach().mean()) for score, _ in discriminator(torch.randn(2, 4800))]
    assert min(judged) > 0 > max(doubted)


def test_level_differences_are_compressed(discriminator: Discriminator) -> None:
    """40 dB of level are 12 dB to the first layer."""
    audio = torch.randn(1, 4800)
    scale = discriminator.scales[0]
    loud, quiet = (scale._spectrum(audio * gain).abs().mean() for gain in (1.0, 0.01))
    assert float(loud / quiet) == pytest.approx(100**0.3, rel=0.05)
