"""Both decode graphs against the oracle: PyTorch without a cache."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from oracle import OracleNote, generate
from reference_draw import reference

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.layout import MODEL_WEIGHTS
from timbrel_bundle.randomness import uniforms_batch
from timbrel_export import onnx_export
from timbrel_export.interface import cache_names
from timbrel_export.parity import DecoderParity, GraphDecoder, compare_decoder
from timbrel_training.model.sampling import Sampling
from timbrel_training.tokens.delay import CodebookLayout, gate_steps

GRAPHS = ("decoder_step.onnx", "decoder_step_portable.onnx")
ASKED = (
    ((0.2, -0.4), 60, 100.0, 20),
    ((-0.6, 0.3), 47, 20.0, 5),
    ((0.0, 0.9), 91, 127.0, 44),
    ((0.5, 0.5), 69, 64.0, 1),
)
"""Timbre, pitch, velocity and held frames of some notes."""
LIVELY = Sampling(1.0, 200, 0.97)
COLD = Sampling(0.3, 3, 0.5)
EOS_LOGIT = 1.3
"""Gives EOS a twentieth of the probability at most frames of the tiny bundle's notes."""

pytestmark = pytest.mark.parametrize("graph", GRAPHS)


def begin(decoder: GraphDecoder, asked: Any = ASKED) -> None:
    timbre, pitch, velocity, _ = zip(*asked, strict=True)
    decoder.begin(np.array(timbre, dtype=np.float32), np.array(pitch), np.array(velocity, dtype=np.float32))


def write(
    decoder: GraphDecoder,
    asked: Any,
    seeds: list[int] | None = None,
    n_steps: int = 70,
    sampling: Sampling = LIVELY,
) -> NDArray[np.int64]:
    """Tokens [B, n_steps, K] that the graph draws when it reads its own, as an engine feeds it."""
    layout = decoder.config.layout
    begin(decoder, asked)
    read = np.full((len(asked), layout.n_codebooks), layout.bos_id, dtype=np.int64)
    counted = decoder.config.release_frames
    gates = np.stack([gate_steps(held, n_steps, counted) for *_, held in asked])
    ended = np.full(len(asked), n_steps)
    delay = np.arange(layout.n_codebooks) * layout.codebook_delay
    drawn = []
    for step in range(n_steps):
        options: dict[str, Any] = {}
        if seeds is not None:
            uniforms = uniforms_batch(seeds, [step] * len(seeds), layout.n_codebooks)
            options = {"uniforms": uniforms, "sampling": sampling}
        position = np.full(len(asked), step, dtype=np.int32)
        tokens, _ = decoder.step(read, gates[:, step], position, **options)
        drawn.append(tokens)
        ended = np.where((tokens[:, 0] == layout.eos_id) & (ended == n_steps), step, ended)
        read = np.where(step - delay >= ended[:, None], layout.eos_id, tokens)
        read = np.where(step - delay < 0, layout.bos_id, read)
    return np.stack(drawn, axis=1)


@pytest.fixture(scope="module")
def rarely_ending(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny bundle, its weights changed: EOS is always possible and never likely."""
    return ending(tiny, EOS_LOGIT, tmp_path_factory.mktemp("rare") / "bundle")


@pytest.fixture(scope="module")
def eager_to_end(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny bundle, its weights changed: EOS is always by far the likeliest."""
    return ending(tiny, 60.0, tmp_path_factory.mktemp("eager") / "bundle")


def ending(tiny: Any, eos_logit: float, folder: Path) -> Any:
    """A copy of the tiny bundle whose model gives EOS this logit, whatever it reads."""
    model = copy.deepcopy(tiny.model)
    heads, eos_id = model.decoder.heads, model.config.layout.eos_id
    with torch.no_grad():
        model.decoder.tokens.weight[eos_id] = 0.0
        heads.bias[0, eos_id] = eos_logit
    onnx_export.round_to_half(model)
    shutil.copytree(tiny.bundle.path, folder)
    onnx_export.save_weights(model, folder / MODEL_WEIGHTS)
    return replace(tiny, model=model, bundle=Bundle.open(folder, verify=False))


def meant(note: OracleNote, layout: CodebookLayout) -> NDArray[np.bool_]:
    """Marks the oracle's tokens [S, K] that stand for a frame."""
    step, codebook = np.indices(note.tokens.shape)
    frame = step - codebook * layout.codebook_delay
    return (frame >= 0) & (frame < len(note.codes))


def is_tied(note: OracleNote, step: int, codebook: int) -> bool:
    """Whether COLD's candidates stand so close that either order is right."""
    best = np.sort(note.logits[step, codebook])[::-1][: COLD.top_k + 1]
    return bool((best[:-1] - best[1:]).min() < 1e-3)


def test_rows_at_different_positions_give_the_oracles_logits(tiny: Any, graph: str) -> None:
    notes = [generate(tiny.model, *asked) for asked in ASKED]
    decoder = tiny.decoder(graph)
    begin(decoder)
    rows = range(len(notes))
    for tick in range(max(5 * row + len(notes[row].inputs) for row in rows)):
        at = [min(max(tick - 5 * row, 0), len(notes[row].inputs) - 1) for row in rows]
        tokens, logits = decoder.step(
            np.stack([notes[row].inputs[at[row]] for row in rows]),
            np.array([notes[row].gate[at[row]] for row in rows]),
            np.array(at, dtype=np.int32),
        )
        for row in rows:
            np.testing.assert_allclose(logits[row], notes[row].logits[at[row]], atol=1e-4)
            certain = notes[row].margins[at[row]] > 2e-3
            assert (tokens[row] == notes[row].tokens[at[row]])[certain].all()


def test_left_to_itself_it_writes_the_oracles_notes(tiny: Any, graph: str) -> None:
    drawn = write(tiny.decoder(graph), ASKED)
    for row, asked in enumerate(ASKED):
        note = generate(tiny.model, *asked)
        assert not note.truncated
        assert (drawn[row, : len(note.tokens)] == note.tokens)[meant(note, tiny.model.config.layout)].all()


def test_sampled_notes_are_the_oracles(tiny: Any, graph: str) -> None:
    seeds, layout = [1, 2, 3, 2**64 - 1], tiny.model.config.layout
    drawn = write(tiny.decoder(graph), ASKED, seeds)
    for row, asked in enumerate(ASKED):
        drawn_with = [uniforms_batch([seeds[row]], [step], layout.n_codebooks) for step in range(140)]
        uniforms = np.concatenate(drawn_with)
        note = generate(tiny.model, *asked, uniforms=uniforms, sampling=LIVELY)
        n_steps = min(len(note.tokens), 70)
        assert (drawn[row, :n_steps] == note.tokens[:n_steps])[meant(note, layout)[:n_steps]].all()


def test_a_rare_end_is_drawn_where_the_oracle_draws_it(rarely_ending: Any, graph: str) -> None:
    """None of the settings would leave EOS to be drawn with the codes."""
    layout, cap = rarely_ending.model.config.layout, rarely_ending.model.config.max_frames
    seeds, asked = list(range(12)), [*ASKED] * 3
    drawn = write(rarely_ending.decoder(graph), asked, seeds, cap, COLD)
    hazards, n_ended = [], 0
    for row, seed in enumerate(seeds):
        uniforms = uniforms_batch([seed] * cap, range(cap), layout.n_codebooks)
        note = generate(rarely_ending.model, *asked[row], uniforms=uniforms, sampling=COLD)
        other = np.argwhere(drawn[row, : len(note.tokens)] != note.tokens)
        assert not len(other) or is_tied(note, *other[0])
        n_ended += not note.truncated
        logits = torch.from_numpy(note.logits[:, 0])
        hazards.append(torch.softmax(logits, dim=1)[:, layout.eos_id])
    assert torch.cat(hazards).max() < 0.1
    assert n_ended >= 10


def test_alone_or_in_company_a_note_is_the_same(tiny: Any, graph: str) -> None:
    seeds = [5, 6, 7, 8]
    together = write(tiny.decoder(graph), ASKED, seeds, n_steps=40)
    for row in range(len(ASKED)):
        alone = write(tiny.decoder(graph), ASKED[row : row + 1], seeds[row : row + 1], n_steps=40)
        assert (alone[0] == together[row]).all()


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_the_draw_in_the_graph_is_the_references(tiny: Any, graph: str, temperature: float) -> None:
    rng = np.random.default_rng(0)
    decoder = tiny.decoder(graph)
    layout = decoder.config.layout
    begin(decoder)
    n_compared = 0
    for step in range(40):
        read = rng.integers(0, layout.codebook_size, (len(ASKED), layout.n_codebooks))
        uniforms = rng.random(read.shape, dtype=np.float32)
        tokens, logits = decoder.step(
            read,
            np.ones(len(ASKED), dtype=np.int64),
            np.full(len(ASKED), step, dtype=np.int32),
            uniforms=uniforms,
            sampling=Sampling(temperature, 12, 0.9),
        )
        for row, q in np.ndindex(*tokens.shape):
            expected, margin = reference(logits[row, q], uniforms[row, q], temperature, 12, 0.9)
            if margin > 1e-5:
                assert tokens[row, q] == expected
                n_compared += 1
    assert n_compared > 0.9 * 40 * len(ASKED) * layout.n_codebooks


def test_the_cache_may_be_written_in_place_and_by_a_part_of_the_rows(tiny: Any, graph: str) -> None:
    """Bound to the same buffers in and out, and to the first rows of a larger arena."""
    config = tiny.model.config
    notes = [generate(tiny.model, *asked) for asked in ASKED[:2]]
    arena = {
        name: np.full(
            (5, config.n_kv_heads, config.max_positions, config.width_per_head), 3.0, dtype=np.float32
        )
        for name in cache_names(config.n_decoder_layers)
    }
    decoder = tiny.decoder(graph)
    begin(decoder, ASKED[:2])
    for step in range(min(len(note.inputs) for note in notes)):
        given = {
            "tokens": np.stack([note.inputs[step] for note in notes]),
            "gate": np.array([note.gate[step] for note in notes]),
            "seqlens_k": np.full(2, step, dtype=np.int32),
            "uniforms": np.full((2, config.n_codebooks), 0.5, dtype=np.float32),
            "temperature": np.zeros(2, dtype=np.float32),
            "top_k": np.full(2, 1),
            "top_p": np.ones(2, dtype=np.float32),
            **decoder.memories,
        }
        logits = run_in_place(decoder.decoder, given, arena, 2, config.layout.vocabulary_size)
        for row, note in enumerate(notes):
            np.testing.assert_allclose(logits[row], note.logits[step], atol=1e-4)
    assert all((buffer[2:] == 3.0).all() for buffer in arena.values())


def run_in_place(
    session: Any, given: dict[str, Any], arena: dict[str, Any], rows: int, vocabulary_size: int
) -> NDArray[np.float32]:
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    for name, buffer in arena.items():
        place = ("cpu", 0, np.float32, (rows, *buffer.shape[1:]), buffer.ctypes.data)
        binding.bind_input(name, *place)
        binding.bind_output(f"{name}_out", *place)
    logits = np.empty((*given["tokens"].shape, vocabulary_size), dtype=np.float32)
    binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
    binding.bind_output("next_tokens", "cpu")
    session.run_with_iobinding(binding)
    return logits


def test_no_note_ends_in_its_header(eager_to_end: Any, graph: str) -> None:
    layout, lead = eager_to_end.model.config.layout, eager_to_end.model.config.lead_frames
    drawn = write(eager_to_end.decoder(graph), ASKED, [1, 2, 3, 4], lead + 3)
    ends = (drawn[:, :, 0] == layout.eos_id).argmax(axis=1)
    assert lead > 0
    assert ends.tolist() == [lead + 1] * len(ASKED)
    note = generate(
        eager_to_end.model, *ASKED[0], sampling=LIVELY, uniforms=np.zeros((lead + 3, 3), np.float32)
    )
    assert len(note.codes) == lead + 1


def test_what_the_export_compares_of_its_own_output_is_what_the_graph_writes(tiny: Any, graph: str) -> None:
    """An engine feeds back every codebook at once where the codec has no delay, its header among them."""
    compared: list[NDArray[np.int64]] = []

    class Kept(DecoderParity):
        def add(self, where: str, logits: Any, tokens: NDArray[np.int64], oracle: Any) -> None:
            if where.startswith("own output"):
                compared.append(tokens)

    decoder = tiny.decoder(graph)
    compare_decoder(tiny.model, decoder, tiny.notes, Kept())
    asked = [(note.timbre, note.pitch, note.velocity, note.held_frames) for note in tiny.notes]
    written = write(decoder, asked, n_steps=tiny.model.config.max_frames)
    for tokens, expected in zip(compared, written, strict=True):
        n_frames = min(len(tokens), len(expected)) - 1
        assert (tokens[:n_frames] == expected[:n_frames]).all()
