"""The decode graph of the tiny bundle, run in an arena."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.harness.agreement import write_notes as written_notes
from benchmarks.harness.our_step import step_at
from waiting import PATIENCE_SECONDS, wait_for

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.errors import ProviderError
from timbrel_bundle.layout import DECODER_STEP, DECODER_STEP_PORTABLE
from timbrel_bundle.randomness import uniforms_batch
from timbrel_bundle.request_fields import HEADER_TEMPERATURE, SamplingSettings
from timbrel_bundle.runtime import CPU, CUDA, obstacle
from timbrel_server.decoder import sessions
from timbrel_server.decoder.runner import Runner, bucket_sizes
from timbrel_server.engine.progress import NoteColumns
from timbrel_server.engine.request import Frame, NoteRequest
from timbrel_server.engine.slots import StepInput
from timbrel_server.served_bundles.served_bundle import token_layout
from timbrel_training.model.sampling import sample

LIVELY = SamplingSettings(temperature=1.0, top_k=64, top_p=1.0)
N_SLOTS = 5


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Runner:
    return open_runner(bundle)


def open_runner(bundle: Bundle, provider: str = "cpu", precision: str = "auto") -> Runner:
    opened = sessions.open_sessions(bundle, provider, n_threads=1, precision=precision)
    return Runner(opened, bundle.manifest, N_SLOTS)


class Singer:
    """One note, moved on by hand."""

    def __init__(self, bundle: Bundle, seed: int, held_frames: int) -> None:
        self.request = NoteRequest((0.3, -0.2), 40 + seed, 90, held_frames, seed, LIVELY)
        self.notes = NoteColumns(token_layout(bundle.manifest), 1)
        self.notes.begin(0, 60)
        self.frames: list[Frame] = []

    @property
    def goes_on(self) -> bool:
        return self.notes.finish(0) is None

    def take(self, drawn: np.ndarray) -> None:
        self.notes.advance(drawn[None])
        if (n_frames := self.notes.n_complete(0)) > len(self.frames):
            self.frames += self.notes.frames(0, len(self.frames), n_frames)


def step_input(singers: dict[int, Singer]) -> StepInput:
    """What a step of these rows reads."""
    n, k = max(singers) + 1, next(iter(singers.values())).notes.tokens.shape[1]
    given = StepInput(*(np.zeros(shape, np.int64) for shape in (n, n, (n, k), n)))
    for row, singer in singers.items():
        position = singer.notes.position[0]
        given.active[row], given.positions[row] = True, position
        given.tokens[row], given.gate[row] = singer.notes.tokens[0], position < singer.request.held_frames
    return given


def sing(runner: Runner, singers: dict[int, Singer], n_steps: int | None = None) -> None:
    """Runs the singers in their rows to their ends, or for so many steps."""
    while singers and n_steps != 0:
        drawn = runner.step(step_input(singers))
        for row, singer in singers.items():
            singer.take(drawn[row])
        singers = {row: singer for row, singer in singers.items() if singer.goes_on}
        n_steps = None if n_steps is None else n_steps - 1


def alone(runner: Runner, bundle: Bundle, seed: int, held_frames: int, row: int = 0) -> list[Frame]:
    singer = Singer(bundle, seed, held_frames)
    runner.admit([(row, singer.request)])
    sing(runner, {row: singer})
    return singer.frames


@pytest.mark.parametrize(
    ("n_slots", "expected"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (16, [1, 2, 4, 8, 16])]
)
def test_bucket_sizes(n_slots: int, expected: list[int]) -> None:
    assert bucket_sizes(n_slots) == expected


@pytest.mark.parametrize(
    ("n_slots", "expected"),
    [
        (1, [1]),
        (5, [1, 2, 3, 4, 5]),
        (16, [*range(1, 17)]),
        (19, [*range(1, 17), 18, 19]),
        (64, [*range(1, 16), *range(16, 32, 2), *range(32, 65, 4)]),
    ],
)
def test_fine_bucket_sizes(n_slots: int, expected: list[int]) -> None:
    assert bucket_sizes(n_slots, finely=True) == expected


def test_every_bucket_of_the_cpu_agrees(runner: Runner) -> None:
    assert list(runner.buckets) == [1, 2, 3, 4, 5]


def test_a_note_is_the_same_in_every_row(runner: Runner, bundle: Bundle) -> None:
    notes = [alone(runner, bundle, seed=3, held_frames=20, row=row) for row in range(N_SLOTS)]
    assert len(notes[0]) > 5
    assert all(note == notes[0] for note in notes)


def test_a_note_is_the_same_in_company_that_comes_and_goes(runner: Runner, bundle: Bundle) -> None:
    expected = alone(runner, bundle, seed=1, held_frames=40)
    singer = Singer(bundle, 1, 40)
    runner.admit([(2, singer.request)])
    sing(runner, {2: singer}, n_steps=7)
    company = {row: Singer(bundle, 10 + row, 12 + row) for row in (0, 1, 4)}
    for row, other in company.items():
        runner.admit([(row, other.request)])
    sing(runner, {2: singer, **company})
    assert singer.frames == expected


@pytest.mark.parametrize("rows", [(0, 1, 2, 3, 4), (0, 2, 3)], ids=["neighbours", "gaps"])
def test_notes_that_begin_together_share_runs_and_are_as_alone(
    bundle: Bundle, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = open_runner(bundle)
    expected = {row: alone(runner, bundle, 20 + row, 10) for row in rows}
    runs: list[tuple[int, int]] = []
    encode = runner._encode
    monkeypatch.setattr(runner, "_encode", lambda *run: (runs.append(run), encode(*run)))
    singers = {row: Singer(bundle, 20 + row, 10) for row in rows}
    runner.admit([(row, singer.request) for row, singer in singers.items()])
    sing(runner, singers)
    assert {row: singer.frames for row, singer in singers.items()} == expected
    assert sorted(first + n for first, size in runs for n in range(size)) == list(rows)
    assert len(runs) < len(rows)


def test_whoever_captures_has_the_devices_alone() -> None:
    gate, order = sessions.CaptureGate(), queue.SimpleQueue[str]()
    waits, used, captured = threading.Event(), threading.Event(), threading.Event()

    def use() -> None:
        with gate.in_use():
            used.set()
            assert waits.wait(PATIENCE_SECONDS)
            order.put("used")

    def capture() -> None:
        assert used.wait(PATIENCE_SECONDS)
        with gate.capturing():
            order.put("captured")
            captured.set()

    def use_later() -> None:
        wait_for(lambda: gate._n_capturing == 1, "a capture to wait for its turn")
        waits.set()
        with gate.in_use():
            order.put("used later")

    threads = [threading.Thread(target=each) for each in (use, capture, use_later)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert [order.get_nowait() for _ in threads] == ["used", "captured", "used later"]


def test_a_note_goes_on_after_it_was_moved(runner: Runner, bundle: Bundle) -> None:
    expected = alone(runner, bundle, seed=2, held_frames=30)
    singer = Singer(bundle, 2, 30)
    runner.admit([(4, singer.request)])
    sing(runner, {4: singer}, n_steps=11)
    runner.move(4, 0)
    runner.admit([(4, Singer(bundle, 9, 30).request)])
    sing(runner, {0: singer})
    assert singer.frames == expected


def test_a_step_runs_no_more_rows_than_from_the_first_that_moves_to_the_last(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that stand still below cost a new note nothing, and what they have written stays."""
    runner = open_runner(bundle)
    expected = {row: alone(runner, bundle, 30 + row, 20) for row in range(N_SLOTS)}
    runs: list[tuple[int, int]] = []
    run = runner._run
    monkeypatch.setattr(runner, "_run", lambda *window: (runs.append(window), run(*window)))
    singers = {row: Singer(bundle, 30 + row, 20) for row in range(N_SLOTS)}
    runner.admit([(row, singer.request) for row, singer in singers.items()])
    sing(runner, singers, n_steps=6)

    def move(rows: set[int], n_steps: int) -> None:
        runs.clear()
        for _ in range(n_steps):
            moving = np.array([row in rows for row in range(N_SLOTS)])
            drawn = runner.step(step_input(singers)._replace(moving=moving))
            for row in rows:
                singers[row].take(drawn[row])

    for rows, window in (({4}, (1, 4)), ({2, 3}, (2, 2)), ({1, 3}, (3, 1)), ({0, 4}, (5, 0)), ({2}, (1, 2))):
        move(rows, 2)
        assert set(runs) == {window}
    while going_on := {row for row, singer in singers.items() if singer.goes_on}:
        move({max(going_on)}, 1)
    assert {row: singer.frames for row, singer in singers.items()} == expected


def test_a_dirty_slot_does_no_harm(bundle: Bundle, runner: Runner) -> None:
    fresh = alone(open_runner(bundle), bundle, seed=5, held_frames=10)
    alone(runner, bundle, seed=6, held_frames=100)
    assert alone(runner, bundle, seed=5, held_frames=10) == fresh


def test_another_seed_gives_another_note(runner: Runner, bundle: Bundle) -> None:
    assert alone(runner, bundle, seed=1, held_frames=20) != alone(runner, bundle, seed=4, held_frames=20)


def test_a_header_is_drawn_at_a_share_of_the_temperature_asked(bundle: Bundle) -> None:
    n_steps, lead = 20, bundle.manifest.codec.lead_frames
    sampling = SamplingSettings(temperature=1.5, top_k=256, top_p=1.0)
    sessions_ = sessions.open_sessions(bundle, "cpu", n_threads=1)
    note = written_notes(bundle, sessions_, 1, n_steps, sampling).notes[0]
    uniforms = torch.from_numpy(uniforms_batch([0] * n_steps, range(n_steps), note.drawn.shape[1]))

    def drawn(temperatures: list[float]) -> list[list[int]]:
        lasts, top_k = torch.ones(n_steps, dtype=torch.bool), torch.full((n_steps,), 256)
        given = (torch.tensor(temperatures), top_k, torch.ones(n_steps))
        return sample(torch.from_numpy(note.logits), uniforms, lasts, *given).tolist()

    behind = [1.5] * (n_steps - lead)
    assert note.drawn.tolist() == drawn([1.5 * HEADER_TEMPERATURE] * lead + behind)
    assert note.drawn.tolist() != drawn([1.5] * lead + behind)


def test_a_position_beyond_the_cache_is_refused(runner: Runner, bundle: Bundle) -> None:
    beyond = bundle.manifest.model.max_positions
    with pytest.raises(ValueError, match="beyond the cache"):
        runner.step(step_at(np.zeros((1, bundle.manifest.codec.n_codebooks), np.int64), beyond))


def test_the_portable_graph_writes_the_same_notes(
    bundle: Bundle, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DECODER_GRAPHS", {CPU: {"fp32": (DECODER_STEP_PORTABLE,)}})
    portable = open_runner(bundle)
    for seed in (1, 2, 3):
        assert alone(portable, bundle, seed, 30) == alone(runner, bundle, seed, 30)


def test_a_decode_graph_that_does_not_load_falls_back(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DECODER_GRAPHS", {CPU: {"fp32": ("no_such.onnx", DECODER_STEP)}})
    assert sessions.open_sessions(bundle, "cpu", 1).decoder_graph == DECODER_STEP


def test_rows_whose_last_bits_differ_pin_the_bucket(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(n_rows: int) -> np.ndarray:
        return np.full((n_rows, 1, 1), 1.0 if n_rows >= 4 else 1.0 + 1e-7, dtype=np.float32)

    monkeypatch.setattr(runner, "_probe", probe)
    assert list(runner._find_agreeing([1, 2, 4, 5])) == [4, 5]


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_each_precision_writes_the_same_note_in_every_row_and_company(bundle: Bundle, precision: str) -> None:
    runner = open_runner(bundle, precision=precision)
    expected = alone(runner, bundle, seed=1, held_frames=20)
    assert len(expected) > 5
    singers = {row: Singer(bundle, 1, 20) for row in range(N_SLOTS)}
    for row, singer in singers.items():
        runner.admit([(row, singer.request)])
    sing(runner, singers)
    assert all(singer.frames == expected for singer in singers.values())


def test_the_precision_asked_for_is_the_one_in_use(bundle: Bundle) -> None:
    opened = sessions.open_sessions(bundle, "cpu", 1, "int8")
    assert (opened.precision, opened.decoder_graph) == ("int8", "decoder_step_int8.onnx")
    assert sessions.open_sessions(bundle, "cpu", 1).precision == "fp32"


def test_a_precision_that_is_none_is_refused_in_one_line(bundle: Bundle) -> None:
    with pytest.raises(ProviderError, match=r"'int4' cannot be had .* allowed: auto, fp32, int8, fp16"):
        sessions.open_sessions(bundle, "cpu", 1, "int4")


@pytest.mark.gpu
def test_a_note_on_cuda_is_the_same_in_every_row_and_company(bundle: Bundle) -> None:
    if fault := obstacle(CUDA):
        pytest.skip(f"needs CUDA: {fault}")
    runner = open_runner(bundle, "cuda")
    expected = alone(runner, bundle, seed=1, held_frames=20)
    singers = {row: Singer(bundle, 1, 20) for row in range(N_SLOTS)}
    for row, singer in singers.items():
        runner.admit([(row, singer.request)])
    sing(runner, singers)
    assert all(singer.frames == expected for singer in singers.values())
