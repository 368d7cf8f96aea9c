"""Residual vector quantization: the `encodec` package's, behind three verbs."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from timbrel_training.codec.encodec import import_encodec

import_encodec()  # before the next line: what is imported by name may lack torchaudio

from encodec.quantization import core_vq  # noqa: E402

KMEANS_ITERATIONS = 5
"""The package's default of 50 takes over a minute on two cores; 5 are enough to start from."""
DEAD_BELOW = 0.15
"""A code is revived once its moving average falls below this many latents per batch. The package's default
of 2 suits large batches: with as many latents as codes it would restart half a healthy codebook each step."""


class Codebook(core_vq.EuclideanCodebook):
    """The package's codebook, keeping `embed_avg == embed * cluster_size` where it sets entries outright.

    The package's EMA step recomputes every entry as embed_avg / cluster_size. Left as they are, its k-means
    start is divided by the cluster sizes one step later (by almost 0 for an empty cluster), and an entry that
    was just revived is overwritten in the same step.
    """

    cluster_size: Tensor  # [size], moving average of how many latents of a batch choose each entry
    embed: Tensor  # [size, D], the entries
    embed_avg: Tensor  # [size, D], moving average of the sum of those latents

    def init_embed_(self, data: Tensor) -> None:
        """Starts the entries by k-means on the first batch."""
        if not self.inited:
            super().init_embed_(data)
            self.embed_avg.copy_(self.embed * self.cluster_size[:, None])

    def replace_(self, samples: Tensor, mask: Tensor) -> None:
        """Puts samples where the mask says, as if each had been chosen just often enough to live."""
        super().replace_(samples, mask)
        self.cluster_size[mask] = self.threshold_ema_dead_code
        self.embed_avg[mask] = self.threshold_ema_dead_code * self.embed[mask]


class ResidualQuantizer(nn.Module):
    """Each codebook codes what the ones before it left over (SoundStream, Zeghidour et al., 2021).

    Codebooks follow an exponential moving average and are started by k-means on the first batch; codes that
    fall out of use are replaced by latents of the current batch.
    """

    def __init__(self, dimension: int, n_codebooks: int, codebook_size: int) -> None:
        super().__init__()
        import_encodec()

        settings: dict[str, Any] = {
            "dim": dimension,
            "codebook_size": codebook_size,
            "decay": 0.99,
            "kmeans_init": True,
            "kmeans_iters": KMEANS_ITERATIONS,
            "threshold_ema_dead_code": DEAD_BELOW,
        }
        self.layers = core_vq.ResidualVectorQuantization(num_quantizers=n_codebooks, **settings)
        for layer in self.layers.layers:
            layer._codebook = Codebook(**settings)
        self.n_codebooks = n_codebooks

    def forward(self, latents: Tensor, n_codebooks: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns quantized latents [B, T, D] (straight-through), codes [B, T, K] and the commitment loss."""
        quantized, codes, losses = self.layers(latents.transpose(1, 2), n_q=n_codebooks or self.n_codebooks)
        return quantized.transpose(1, 2), codes.permute(1, 2, 0), losses.mean()

    def codebooks(self) -> Tensor:
        """Returns the entries of all codebooks: [K, codebook_size, D]."""
        return torch.stack([cast(Tensor, layer.codebook) for layer in self.layers.layers])

    def encode(self, latents: Tensor) -> Tensor:
        """Returns codes int64 [B, T, K] of latents [B, T, D]: each codebook's entry nearest to the rest."""
        residual, chosen = latents, []
        for codebook in self.codebooks():
            distance = codebook.pow(2).sum(dim=1) - 2 * residual @ codebook.T  # [B, T, size]
            code = distance.argmin(dim=2)
            chosen.append(code)
            residual = residual - codebook[code]
        return torch.stack(chosen, dim=2)

    def decode(self, codes: Tensor) -> Tensor:
        """Returns latents [B, T, D] of codes [B, T, K]."""
        books = self.codebooks()
        return torch.stack([books[q][codes[:, :, q]] for q in range(codes.shape[2])]).sum(dim=0)
