"""The residual quantizer: what is chosen, and that no code stays dead."""

from __future__ import annotations

import torch

from timbrel_training.codec.quantizer import ResidualQuantizer


def latents(seed: int, spread: float = 1.0) -> torch.Tensor:
    return spread * torch.randn(8, 64, 8, generator=torch.Generator().manual_seed(seed))


def trained(n_steps: int) -> ResidualQuantizer:
    torch.manual_seed(0)
    quantizer = ResidualQuantizer(8, n_codebooks=3, codebook_size=64)
    for step in range(n_steps):
        quantizer(latents(step))
    return quantizer.eval()


def test_entries_stay_where_k_means_put_them() -> None:
    quantizer = trained(3)
    batch = latents(100)
    first = quantizer.codebooks()[0]
    assert torch.isfinite(first).all() and first.abs().max() < 6
    nearest = quantizer.codebooks()[0][quantizer.encode(batch)[:, :, 0]]
    assert (batch - nearest).pow(2).mean() < 0.6 * batch.pow(2).mean()


def test_every_codebook_is_in_use_after_some_steps() -> None:
    codes = trained(60).encode(latents(200))
    for q in range(3):
        assert len(codes[:, :, q].unique()) > 48


def test_a_codebook_follows_latents_that_move_away() -> None:
    quantizer = trained(5).train()
    for step in range(450):  # until the moving averages have forgotten the old place
        quantizer(latents(step) + 10.0)
    codes = quantizer.eval().encode(latents(300) + 10.0)
    assert len(codes[:, :, 0].unique()) > 32


def test_encode_takes_the_nearest_of_what_is_left_and_decode_adds_up() -> None:
    quantizer = trained(10)
    batch = latents(400)
    codes, residual = quantizer.encode(batch), batch
    for q, book in enumerate(quantizer.codebooks()):
        assert torch.equal(codes[:, :, q], torch.cdist(residual, book.expand(8, -1, -1)).argmin(dim=2))
        residual = residual - book[codes[:, :, q]]
    torch.testing.assert_close(quantizer.decode(codes), batch - residual, atol=1e-5, rtol=0)


def test_fewer_codebooks_may_be_used_in_training() -> None:
    quantized, codes, _ = trained(5).train()(latents(1), 1)
    assert codes.shape == (8, 64, 1)
    assert quantized.shape == (8, 64, 8)
