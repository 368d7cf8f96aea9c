"""The bundle that fine-tuning starts from, as what training needs of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import CODEC_WEIGHTS, DECODER_STEP, MODEL_WEIGHTS, TIMBRE_MAP, WEIGHTS
from timbrel_export.bundle_parity import check_decoder
from timbrel_export.errors import ExportError
from timbrel_export.onnx_export import CONFIG_KEY
from timbrel_export.sample_note import SampleNote
from timbrel_posttraining.finetune.rehearsal import NoteRanges
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.model import ModelConfig, NoteTransformer
from timbrel_training.timbre.map import MapPoint, TimbreMap
from timbrel_training.tokens.store import TokenHeader


@dataclass(frozen=True)
class Base:
    """An open bundle whose decoder stands as a PyTorch module; codec and timbre encoder stay graphs."""

    bundle: Bundle
    model: NoteTransformer
    chart: TimbreMap

    @classmethod
    def open(cls, folder: Path) -> Base:
        """Opens a bundle to fine-tune.

        Raises:
            BundleError: it is none, or a file is missing or altered.
            ExportError: its weights do not fit any model that this timbrel can build.
        """
        bundle = Bundle.open(folder)
        bundle.require((DECODER_STEP, *WEIGHTS, TIMBRE_MAP))
        points = tuple(
            MapPoint(p.instrument, p.family, p.x, p.y, p.pitch_min, p.pitch_max)
            for p in bundle.timbre_map.points
        )
        return cls(bundle, _load_model(bundle), TimbreMap(points))

    @property
    def header(self) -> TokenHeader:
        """Of the codes that the bundle's codec makes."""
        codec = self.bundle.manifest.codec
        return TokenHeader(
            codec_id=codec.id,
            codec_hash=next(each.sha256 for each in self.bundle.manifest.files if each.name == CODEC_WEIGHTS),
            sample_rate=codec.sample_rate,
            hop_length=codec.hop_length,
            n_codebooks=codec.n_codebooks,
            codebook_size=codec.codebook_size,
            codes_per_semitone=self.model.config.codes_per_semitone,
            code_offset=self.model.config.code_offset,
        )

    @property
    def ranges(self) -> NoteRanges:
        """What the bundle may be asked for."""
        ranges, frame_rate = self.bundle.manifest.ranges, self.header.frame_rate
        return NoteRanges(
            pitch=(ranges.pitch_min, ranges.pitch_max),
            velocity=(ranges.velocity_min, ranges.velocity_max),
            held_frames=(
                max(1, round(ranges.seconds_min * frame_rate)),
                max(1, round(ranges.seconds_max * frame_rate)),
            ),
        )

    def verify(self, notes: Sequence[SampleNote]) -> None:
        """Makes sure that the PyTorch model is the bundle's, by running both on these notes.

        Raises:
            ExportError: it computes something else: the bundle is of another timbrel.
        """
        try:
            check_decoder(self.bundle, DECODER_STEP, self.model, notes)
        except ExportError as error:
            raise ExportError(
                f"{self.bundle.path}: its weights give another model here than in its graphs ({error}); "
                "fine-tune with the timbrel that exported it, or export it again"
            ) from error


def _load_model(bundle: Bundle) -> NoteTransformer:
    path = bundle.file(MODEL_WEIGHTS)
    try:
        with safe_open(path, framework="pt") as file:
            stored = (file.metadata() or {}).get(CONFIG_KEY)
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        fields = json.loads(stored) if stored else _fields_of_manifest(bundle.manifest)
        model = NoteTransformer(ModelConfig(**fields))
        model.load_state_dict(weights)
    except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).splitlines()[:2])
        raise ExportError(
            f"{path}: not the weights of a model that this timbrel knows ({reason}); "
            "fine-tune with the timbrel that exported it"
        ) from error
    return model.eval()


def _fields_of_manifest(manifest: pb.Manifest) -> Mapping[str, Any]:
    """A ModelConfig's fields as far as a manifest has them; what it lacks keeps its default."""
    spec, codec = manifest.model, manifest.codec
    return {
        "codebook_size": codec.codebook_size,
        "n_codebooks": codec.n_codebooks,
        "codes_per_semitone": spec.codes_per_semitone,
        "code_offset": spec.code_offset,
        "d_model": spec.d_model,
        "n_heads": spec.n_heads,
        "n_kv_heads": spec.n_kv_heads,
        "head_dim": spec.head_dim,
        "d_feed_forward": spec.d_feed_forward,
        "n_encoder_layers": spec.n_encoder_layers,
        "n_decoder_layers": spec.n_decoder_layers,
        "max_frames": spec.max_frames,
        "conditioning": spec.conditioning,
    }
