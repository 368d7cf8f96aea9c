"""Every check that stands between a folder of graphs and a bundle."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import (
    CODEC_DECODER,
    CODEC_ENCODER,
    CONDITION_ENCODER,
    CONDITION_ENCODER_HALF,
    DECODER_STEP,
    DECODER_STEP_HALF,
    DECODER_STEP_INT8,
    DECODER_STEP_PORTABLE,
    TIMBRE_ENCODER,
)
from timbrel_export.codec_parity import (
    compare_codec_decoder,
    compare_codec_encoder,
    compare_timbre_encoder,
)
from timbrel_export.draw_parity import check_draw
from timbrel_export.graph_decoder import GraphDecoder
from timbrel_export.interface import (
    FLOAT,
    HALF,
    INT8,
    check_interface,
    codec_decoder_interface,
    codec_encoder_interface,
    condition_interface,
    decoder_interface,
    timbre_encoder_interface,
)
from timbrel_export.parity import DecoderParity, compare_decoder
from timbrel_export.precision_parity import PrecisionParity
from timbrel_export.sample_note import SampleNote
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec
from timbrel_training.model import NoteTransformer


def check_bundle(
    bundle: Bundle,
    model: NoteTransformer,
    codec: Codec,
    timbre_encoder: nn.Module,
    notes: Sequence[SampleNote],
) -> pb.ParityReport:
    """Compares every graph of a bundle with the module it was made from.

    Args:
        bundle: as written, but for its parity section.
        model: in evaluation mode, its weights rounded to fp16; so `codec` and `timbre_encoder`.
        codec: the codec.
        timbre_encoder: stage 1.
        notes: real notes.

    Returns:
        What was found.

    Raises:
        InterfaceError: a graph's inputs or outputs differ from the bundle format's.
        ParityError: a graph computes something else than its module.
        BundleError: a graph or its weights cannot be loaded.
    """
    report = check_decoders(bundle, model, notes)
    report.max_audio_difference = _check_codec(bundle, codec, timbre_encoder, notes)
    return report


def check_decoders(bundle: Bundle, model: NoteTransformer, notes: Sequence[SampleNote]) -> pb.ParityReport:
    """Compares every decode graph that the bundle has with the model it was made from.

    Returns:
        The worst of the two graphs in fp32, and how far those of lower precision stray.

    Raises:
        As `check_decoder`.
    """
    found = [check_decoder(bundle, graph, model, notes) for graph in (DECODER_STEP, DECODER_STEP_PORTABLE)]
    report = pb.ParityReport(
        max_logit_difference=max(each.max_logit_difference for each in found),
        n_tokens=sum(each.n_tokens for each in found),
        n_flips_outside_margin=sum(each.n_flips_outside_margin for each in found),
        n_flips_within_margin=sum(each.n_flips_within_margin for each in found),
    )
    if DECODER_STEP_INT8 in bundle:
        report.int8_mean_kl = _check_precision(
            bundle, DECODER_STEP_INT8, CONDITION_ENCODER, (FLOAT, INT8), model, notes
        )
    if DECODER_STEP_HALF in bundle:
        report.fp16_mean_kl = _check_precision(
            bundle, DECODER_STEP_HALF, CONDITION_ENCODER_HALF, (HALF, HALF), model, notes
        )
    return report


def check_decoder(
    bundle: Bundle, graph: str, model: NoteTransformer, notes: Sequence[SampleNote]
) -> DecoderParity:
    """Compares one of a bundle's fp32 decode graphs with the model it was made from.

    Raises:
        InterfaceError: the graph's inputs or outputs differ from the bundle format's.
        ParityError: it computes something else than the model.
        BundleError: the graph or its weights cannot be loaded.
    """
    decoder = _open_decoder(bundle, graph, CONDITION_ENCODER, (FLOAT, FLOAT), model)
    parity = compare_decoder(model, decoder, notes, DecoderParity())
    parity.check(graph)
    check_draw(decoder, notes, graph)
    return parity


def _check_precision(
    bundle: Bundle,
    graph: str,
    condition_graph: str,
    types: tuple[str, str],
    model: NoteTransformer,
    notes: Sequence[SampleNote],
) -> float:
    """Mean KL per token, in nats, of a graph of lower precision; `types` of its memories and its cache."""
    decoder = _open_decoder(bundle, graph, condition_graph, types, model)
    parity = compare_decoder(model, decoder, notes, PrecisionParity())
    parity.check(graph)
    check_draw(decoder, notes, graph)
    return parity.mean_kl


def _open_decoder(
    bundle: Bundle, graph: str, condition_graph: str, types: tuple[str, str], model: NoteTransformer
) -> GraphDecoder:
    condition, decoder = bundle.session(condition_graph), bundle.session(graph)
    check_interface(condition_graph, condition, condition_interface(model.config, types[0]))
    check_interface(graph, decoder, decoder_interface(model.config, *types))
    return GraphDecoder(condition, decoder, model.config)


def _check_codec(
    bundle: Bundle, codec: Codec, timbre_encoder: nn.Module, notes: Sequence[SampleNote]
) -> float:
    spec = bundle.manifest.codec
    codes = [note.codes for note in notes]
    check_interface(CODEC_DECODER, bundle.session(CODEC_DECODER), codec_decoder_interface(spec))
    difference = compare_codec_decoder(codec, bundle, codes)
    encoder = bundle.session(CODEC_ENCODER)
    check_interface(CODEC_ENCODER, encoder, codec_encoder_interface(spec))
    compare_codec_encoder(codec, encoder, codes)
    timbre = bundle.session(TIMBRE_ENCODER)
    check_interface(TIMBRE_ENCODER, timbre, timbre_encoder_interface(spec))
    compare_timbre_encoder(codec, timbre_encoder, timbre, codes)
    return difference
