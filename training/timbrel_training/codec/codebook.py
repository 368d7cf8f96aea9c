"""A codebook whose averages stay true. Importing this module imports the `encodec` package."""

from __future__ import annotations

from torch import Tensor

from timbrel_training.codec.torchaudio_stand_in import import_encodec

import_encodec()

from encodec.quantization.core_vq import EuclideanCodebook  # noqa: E402


class Codebook(EuclideanCodebook):
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
