"""Every check that stands between a folder of graphs and a bundle."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from timbrel_bundle import layout
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder, begin_softly
from timbrel_export import interface
from timbrel_export.errors import ParityError
from timbrel_export.interface import FLOAT, HALF, INT8, check_interface
from timbrel_export.parity import DecoderParity, F, GraphDecoder, PrecisionParity, check_draw, compare_decoder
from timbrel_export.sample_note import SampleNote, largest_number
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.interface import Codec
from timbrel_training.model import NoteTransformer
from timbrel_training.timbre.encoder import TimbreEncoder

DECODE_GRAPHS = {
    layout.DECODER_STEP: (layout.CONDITION_ENCODER, FLOAT, FLOAT),
    layout.DECODER_STEP_PORTABLE: (layout.CONDITION_ENCODER, FLOAT, FLOAT),
    layout.DECODER_STEP_INT8: (layout.CONDITION_ENCODER, FLOAT, INT8),
    layout.DECODER_STEP_HALF: (layout.CONDITION_ENCODER_HALF, HALF, HALF),
}
"""The condition encoder that belongs to each decode graph, and the types of its memories and its cache."""

MAX_AUDIO_DIFFERENCE = 1e-3
"""Largest difference of a decoded sample: -60 dB of full scale."""
MAX_BENT_DIFFERENCE = 5e-3
"""The same of notes that are bent. Bent down, partials sound that lay beyond hearing; by then their phases
have summed what runtimes round differently of a stiffness, some hundredths of a turn, which nobody hears."""
MAX_TIMBRE_DIFFERENCE = 1e-3
"""Largest difference of a point on the timbre map, and of an embedding."""
MAX_HALF_NUMBER = 65504 / 4
"""A quarter of fp16's largest number: other notes may reach further than those compared. That the half graph
does is not seen here, since a CPU computes much of it in fp32."""
MAX_BENT_CENTS = 1200.0
LEVEL_RANGE_DB = (-20.0, 0.0)
CHUNK_FRAMES = 5
"""Frames decoded at a time: the state must carry over."""


def check_bundle(
    bundle: Bundle,
    model: NoteTransformer,
    codec: Codec,
    timbre_encoder: TimbreEncoder,
    notes: Sequence[SampleNote],
) -> pb.ParityReport:
    """Compares every graph of a bundle with the module it was made from, on real notes.

    The bundle is as written, but for its parity section; the modules are in evaluation mode, their weights
    rounded to fp16. Raises InterfaceError: a graph's inputs or outputs differ from the bundle format's;
    ParityError: a graph computes something else than its module; BundleError: a graph or its weights cannot
    be loaded.
    """
    report = check_decoders(bundle, model, notes)
    decoder = bundle.session(layout.CODEC_DECODER)
    check_interface(layout.CODEC_DECODER, decoder, interface.codec_decoder_interface(bundle.manifest.codec))
    codes = [note.codes for note in notes]
    report.max_audio_difference = compare_codec_decoder(codec, bundle, codes)
    with torch.no_grad():
        audio = [codec.decode(torch.from_numpy(each.astype(np.int64))[None])[0].numpy() for each in codes]
    check_timbre_encoder(bundle, timbre_encoder, audio)
    return report


def check_decoders(bundle: Bundle, model: NoteTransformer, notes: Sequence[SampleNote]) -> pb.ParityReport:
    """Compares every decode graph that the bundle has with the model it was made from.

    Reports the worst of the two graphs in fp32, and how far those of lower precision stray; raises as
    `check_decoder`.
    """
    found = [
        check_decoder(bundle, graph, model, notes)
        for graph in (layout.DECODER_STEP, layout.DECODER_STEP_PORTABLE)
    ]
    report = pb.ParityReport(
        max_logit_difference=max(each.max_logit_difference for each in found),
        n_tokens=sum(each.n_tokens for each in found),
        n_flips_outside_margin=sum(each.n_flips_outside_margin for each in found),
        n_flips_within_margin=sum(each.n_flips_within_margin for each in found),
    )
    if (graph := layout.DECODER_STEP_INT8) in bundle:
        report.int8_mean_kl = _check(bundle, graph, model, notes, PrecisionParity()).mean_kl
    if (graph := layout.DECODER_STEP_HALF) in bundle:
        if (largest := largest_number(model, notes)) > MAX_HALF_NUMBER:
            raise ParityError(
                f"{graph}: the model's numbers reach {largest:.3g}, allowed are {MAX_HALF_NUMBER:g}: fp16 "
                "ends at 65504; train it with a lower learning rate, or more weight decay"
            )
        report.fp16_mean_kl = _check(bundle, graph, model, notes, PrecisionParity()).mean_kl
    return report


def check_decoder(
    bundle: Bundle, graph: str, model: NoteTransformer, notes: Sequence[SampleNote]
) -> DecoderParity:
    """Compares one of a bundle's fp32 decode graphs with the model it was made from. Raises InterfaceError:
    the graph's inputs or outputs differ from the bundle format's; ParityError: it computes something else
    than the model; BundleError: the graph or its weights cannot be loaded."""
    return _check(bundle, graph, model, notes, DecoderParity())


def _check(bundle: Bundle, graph: str, model: NoteTransformer, notes: Sequence[SampleNote], parity: F) -> F:
    """Checks a decode graph's interface, its logits and its draws; `parity` takes what is found."""
    condition_graph, memories, caches = DECODE_GRAPHS[graph]
    condition, decoder = bundle.session(condition_graph), bundle.session(graph)
    check_interface(condition_graph, condition, interface.condition_interface(model.config, memories))
    check_interface(graph, decoder, interface.decoder_interface(model.config, memories, caches))
    rows = GraphDecoder(condition, decoder, model.config)
    compare_decoder(model, rows, notes, parity)
    parity.check(graph)
    check_draw(rows, notes, graph)
    return parity


@torch.no_grad()
def check_timbre_encoder(
    bundle: Bundle, encoder: TimbreEncoder, sounds: Sequence[NDArray[np.float32]]
) -> None:
    """Checks the graph's interface, and what it finds in sounds, audio [S] each, in one batch, padded. Raises
    InterfaceError; ParityError: a point or an embedding differs by more than MAX_TIMBRE_DIFFERENCE."""
    session = bundle.session(layout.TIMBRE_ENCODER)
    width = encoder.config.embedding_width
    check_interface(layout.TIMBRE_ENCODER, session, interface.timbre_encoder_interface(width))
    n_samples = np.array([len(audio) for audio in sounds])
    padded = np.zeros((len(sounds), n_samples.max()), dtype=np.float32)
    for row, audio in zip(padded, sounds, strict=True):
        row[: len(audio)] = audio
    expected = encoder(torch.from_numpy(padded), torch.from_numpy(n_samples))
    found = session.run(["timbre", "embedding"], {"audio": padded, "n_samples": n_samples})
    # Not Python's max, by which NaN is no more than what was before it.
    worst = float(np.max([np.abs(a - b.numpy()).max() for a, b in zip(found, expected, strict=True)]))
    if not worst <= MAX_TIMBRE_DIFFERENCE:
        raise ParityError(
            f"{layout.TIMBRE_ENCODER}: points or embeddings differ by up to {worst:.3g}, "
            f"allowed are {MAX_TIMBRE_DIFFERENCE:g}"
        )


@torch.no_grad()
def compare_codec_decoder(codec: Codec, bundle: Bundle, notes: Sequence[NDArray[np.uint16]]) -> float:
    """Largest difference of any sample between a client's decoder, fed in chunks, and the codec.

    Notes, codes [T, K] each, are played as they were coded, and bent and swelling at random, with a seed.
    Raises ParityError: the difference exceeds MAX_AUDIO_DIFFERENCE, or MAX_BENT_DIFFERENCE of a bent note.
    """
    decoder = CodecDecoder(bundle)
    worst = {True: 0.0, False: 0.0}
    loudest = 0.0
    random = np.random.default_rng(0)
    for codes, is_plain in itertools.product(notes, (True, False)):
        bend = 0.0 if is_plain or not codec.bends else MAX_BENT_CENTS
        cents = random.uniform(-bend, bend, len(codes)).astype(np.float32)
        level = random.uniform(*((0.0, 0.0) if is_plain else LEVEL_RANGE_DB), len(codes)).astype(np.float32)
        seed = 0 if is_plain else int(random.integers(2**63))
        given = (codes.astype(np.int64)[None], np.array([seed]), cents[None], level[None])
        whole = codec.decode(*map(torch.from_numpy, given))[0].numpy()
        expected = begin_softly(whole, bundle.manifest.codec)
        stream = decoder.stream(seed)
        chunks = [
            stream.push(codes[at:end], cents[at:end], level[at:end])
            for at, end in ((at, at + CHUNK_FRAMES) for at in range(0, len(codes), CHUNK_FRAMES))
        ]
        found = np.concatenate([*chunks, stream.finish()])
        if found.shape != expected.shape:
            raise ParityError(
                f"{layout.CODEC_DECODER}: {len(found)} samples, the codec gives {len(expected)}"
            )
        # Not Python's max, by which NaN is no more than what was before it.
        worst[is_plain] = float(np.maximum(worst[is_plain], np.abs(found - expected).max()))
        loudest = max(loudest, float(np.abs(expected).max()))
    for is_plain, most in ((True, MAX_AUDIO_DIFFERENCE), (False, MAX_BENT_DIFFERENCE)):
        if not worst[is_plain] <= most:
            beyond = f" in sounds that reach {loudest:.3g} of full scale" if loudest > 1.0 else ""
            hint = "; a codec that has hardly learnt plays so: train it for longer" if beyond else ""
            what = "samples" if is_plain else "samples of bent notes"
            raise ParityError(
                f"{layout.CODEC_DECODER}: {what} differ by up to {worst[is_plain]:.3g}{beyond}, "
                f"allowed are {most:g}{hint}"
            )
    return max(worst.values())
