"""The codec of note parameters: headers, fundamentals, releases, seeds, bends, streams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.signal import fftconvolve
from torch import Tensor

from timbrel_training.codec.interface import Expression
from timbrel_training.codec.timbrel_notes.analysed_notes import NoteAnalysis
from timbrel_training.codec.timbrel_notes.analysis import FundamentalTracker, midi_to_hertz
from timbrel_training.codec.timbrel_notes.codec import N_FINE, N_ROWS, TimbrelNotes, TimbrelNotesConfig
from timbrel_training.codec.timbrel_notes.header import (
    LEVELS,
    HeaderCoder,
    HeaderConfig,
    header_error,
    mean_level_error,
)
from timbrel_training.codec.timbrel_notes.note_parameters import (
    N_VALUES,
    SHAPES,
    SIZES,
    NoteParameters,
    stiffness_steps,
)
from timbrel_training.codec.timbrel_notes.phase_alignment import (
    ALIGNED,
    LEAST_COHERENCE,
    measure_coherence,
)
from timbrel_training.codec.timbrel_notes.recorded_note import NoNoteError
from timbrel_training.codec.timbrel_notes.stiffness import stretched
from timbrel_training.codec.timbrel_notes.templates import Templates

RATE, HOP = 48_000, 1280
CONFIG = TimbrelNotesConfig(n_templates=4, header=HeaderConfig(n_codes=6, width=16, n_blocks=1))
Floats = npt.NDArray[np.float64]


@pytest.fixture(autouse=True)
def seeded_without_gradients() -> object:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def plain_parameters(tone: float = -10.0, noise: float = -120.0) -> Tensor:
    """A note of ten partials, 6 dB an octave, that does not change and ends at once: dB [N_VALUES]."""
    parts = {name: np.zeros(shape, dtype=np.float32) for name, shape in SHAPES.items()}
    parts["level"][:] = -95.0
    parts["level"][:, :10] = tone - 20 * np.log10(np.arange(1, 11))
    parts["release"][:] = np.linspace(-20, -90, 12)[:, None]
    parts["noise_release"][:] = -40.0
    parts["noise"][:], parts["burst"][:] = noise, noise
    return torch.from_numpy(np.concatenate([part.ravel() for part in parts.values()]))


class FixedHeader(HeaderCoder):
    """Every code stands for the same parameters."""

    def __init__(self, values: Tensor) -> None:
        super().__init__(CONFIG.header)
        self.fixed = values

    def decode(self, codes: Tensor, midi: Tensor) -> Tensor:
        return self.fixed.expand(*midi.shape, -1)


def codec_of(values: Tensor) -> TimbrelNotes:
    codec = TimbrelNotes(CONFIG).eval()
    codec.header = FixedHeader(values)
    return codec


def note(n_frames: int = 40, midi: float = 57.0, held: float = 0.6, coherence: float = 0.0) -> NoteAnalysis:
    values = plain_parameters().numpy()
    track = np.full(n_frames, midi, dtype=np.float32)
    still = np.full(20, np.nan, np.float32)
    return NoteAnalysis(values, np.ones_like(values), 0.0, track, still, held, coherence)


def play(codec: TimbrelNotes, analysis: NoteAnalysis, seed: int = 1, **expression: Tensor) -> Floats:
    codes = torch.from_numpy(codec.encode_analysis(analysis))[None]
    return codec.decode(codes, torch.tensor([seed]), **expression)[0].double().numpy()


def peak_hertz(audio: Floats) -> float:
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 1 << 19))
    return float(np.argmax(spectrum) * RATE / (1 << 19))


def cents(hertz: float, reference: float) -> float:
    return float(1200 * np.log2(hertz / reference))


def test_the_header_comes_first_and_its_rows_hold_no_sound() -> None:
    codec = TimbrelNotes(CONFIG).eval()
    codes = codec.encode_analysis(note())
    assert codes.shape == (N_ROWS + 40, 2 + CONFIG.n_header_books) == (44, codec.n_codebooks)
    assert (codes[:N_ROWS, 2:] < codec.hold).all() and (codes[N_ROWS:, 2:] == codec.hold).all()
    assert codes.min() >= 0 and codes.max() < codec.codebook_size
    audio = codec.decode(torch.from_numpy(codes)[None])
    assert audio.shape == (1, 40 * HOP) and codec.lead_frames == N_ROWS


def test_a_search_finds_codes_of_less_error_for_each_note_of_a_batch() -> None:
    header = HeaderCoder(CONFIG.header).eval()
    values = torch.stack([plain_parameters(), plain_parameters(tone=-30.0, noise=-60.0)])
    weights, midi = torch.ones_like(values), torch.tensor([57.0, 70.0])
    errors = []
    for steps in (0, 1, 50):
        decoded = header.values(header.dequantized(header.encode(values, weights, midi, steps)), midi)
        errors.append([float(header_error(*note)) for note in zip(decoded, values, weights, strict=True)])
    none, one, many = np.array(errors)
    assert (one == none).all() and (many < none - 1.0).all()
    assert all(each.grad is None for each in header.parameters())


def test_what_beats_at_each_moment_counts_less_than_a_spectrum_that_is_off() -> None:
    values = plain_parameters().expand(3, -1)
    moments, groups = torch.meshgrid(*map(torch.arange, SHAPES["level"]), indexing="ij")
    beating, brighter = 4.0 * (-1.0) ** (moments + groups // 2), torch.where(groups < 24, 4.0, -4.0)
    off = torch.stack([torch.zeros_like(beating), beating, brighter]).flatten(1)
    decoded = values + torch.nn.functional.pad(off, (0, N_VALUES - off.shape[1]))
    weights = torch.ones_like(values)
    same, by_chance, everywhere = mean_level_error(decoded, values, weights).tolist()
    assert same == 0.0 and 0.0 < by_chance < 0.2 * everywhere
    of_beating, of_brighter = (float(header_error(decoded[n], values[n], weights[n])) for n in (1, 2))
    assert of_beating == pytest.approx(of_brighter, rel=0.2)


def test_a_header_stays_until_a_row_changes() -> None:
    codec = TimbrelNotes(CONFIG).eval()
    n_books, hold = CONFIG.n_header_books, codec.hold
    codes = torch.full((1, 11, n_books), hold)
    codes[0, :N_ROWS] = torch.arange(N_ROWS * n_books).reshape(N_ROWS, n_books)
    codes[0, 6, 1] = 77  # row 2
    codes[0, 9, 0] = 88  # row 1
    wanted = torch.zeros(11, N_ROWS * n_books, dtype=torch.int64)
    for frame in range(11):
        wanted[frame] = wanted[frame - 1] if frame else 0
        given = codes[0, frame] != hold
        wanted[frame, frame % N_ROWS * n_books :][:n_books][given] = codes[0, frame][given]
    before, found = torch.zeros(1, N_ROWS * n_books, dtype=torch.int64), []
    for first, end in ((0, 3), (3, 4), (4, 11)):
        part = codec._header(codes[:, first:end], torch.arange(first, end)[None], before)
        found.append(part[0])
        before = part[:, -1]
    assert torch.equal(torch.cat(found), wanted)


def test_codes_come_back_as_the_numbers_they_stand_for() -> None:
    coder = HeaderCoder(HeaderConfig(n_codes=7, width=16))
    values, weights = 20 * torch.randn(5, N_VALUES), torch.rand(5, N_VALUES)
    midi = torch.linspace(40, 90, 5)
    codes = coder.encode(values, weights, midi)
    assert codes.shape == (5, 7) and int(codes.min()) >= 0 and int(codes.max()) < LEVELS**3
    direct = coder.values(coder.quantized(values, weights, midi), midi)
    torch.testing.assert_close(coder.decode(codes, midi), direct)


def test_what_could_not_be_measured_does_not_matter() -> None:
    coder = HeaderCoder(HeaderConfig(n_codes=7, width=16))
    values, weights = 20 * torch.randn(2, N_VALUES), torch.rand(2, N_VALUES)
    weights[:, ::2] = 0
    other = torch.where(weights == 0, values + 30, values)
    midi = torch.tensor([60.0, 61.0])
    assert torch.equal(coder.encode(values, weights, midi), coder.encode(other, weights, midi))


@pytest.mark.parametrize("without_stiffness", [False, True])
def test_weights_of_before_the_last_parts_were_parameters_say_0_of_them(without_stiffness: bool) -> None:
    coder, older = (HeaderCoder(HeaderConfig(n_codes=7, width=16)) for _ in range(2))
    values, weights = 20 * torch.randn(2, N_VALUES), torch.rand(2, N_VALUES)
    midi = torch.tensor([60.0, 61.0])
    later = SIZES[-1] + without_stiffness
    last = f"decoder.{len(coder.decoder) - 1}"
    state = {name: each.clone() for name, each in coder.state_dict().items() if ".depth." not in name}
    state["mean"] = state["mean"][:-later]
    for name in (f"{last}.weight", f"{last}.bias"):
        state[name] = state[name][: N_VALUES - later]
    inputs = state["encoder.0.weight"]
    kept = [n for n in range(inputs.shape[1]) if n >= 2 * N_VALUES or n % N_VALUES < N_VALUES - later]
    state["encoder.0.weight"] = inputs[:, kept]
    older.load_state_dict(state)
    codes = older.encode(values, weights, midi)
    values[:, -later:] += 30
    assert torch.equal(older.encode(values, weights, midi), codes)
    found, whole = (NoteParameters.unpack(each.decode(codes, midi)) for each in (older, coder))
    assert torch.equal(found.depth, torch.zeros_like(whole.depth))
    assert torch.equal(found.stiffness, torch.zeros(2, 1) if without_stiffness else whole.stiffness)
    assert torch.equal(found.level, whole.level) and torch.equal(found.burst, whole.burst)
    for name in ("mean", "encoder.0.weight", last + ".bias"):  # damaged ones are still told as such
        with pytest.raises(RuntimeError, match="Missing key"):
            older.load_state_dict({each: value for each, value in state.items() if each != name})


@pytest.mark.parametrize("coherence", [0.0, 0.8, 0.95])
@pytest.mark.parametrize("stiffness", [0.0, 1e-4, 3e-3])
def test_the_partials_of_a_stiff_string_sound_where_they_should(stiffness: float, coherence: float) -> None:
    """Also where they are heard to begin as a pulse."""
    values = plain_parameters()
    NoteParameters.unpack(values).stiffness[0] = stiffness_steps(stiffness)
    audio = play(codec_of(values), note(coherence=coherence))[:24_000]
    hertz = 440.0 * 2 ** ((57.0 - 69.0) / 12)
    level = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 1 << 19))
    for number in (1, 2, 5, 10):
        expected = hertz * float(stretched(np.array(float(number)), stiffness))
        low, high = (int(expected * 2 ** (side / 24) * (1 << 19) / RATE) for side in (-1, 1))
        found = (low + int(level[low:high].argmax())) * RATE / (1 << 19)
        assert abs(cents(found, expected)) < 1.0, number


@pytest.mark.parametrize(("level", "heard"), [(-80.0, -80.0), (-95.0, -125.0)])
def test_partials_that_are_floored_do_not_sound(level: float, heard: float) -> None:
    """Dozens of them would be a whine behind a dull note that dies away."""
    values = plain_parameters()
    NoteParameters.unpack(values).level[:, 10:] = level
    held = play(codec_of(values), note(midi=57.0, held=1.0))[RATE // 10 : RATE // 2]
    window = np.hanning(len(held))
    for number in (15, 60):
        wave = np.exp(-2j * np.pi * 220.0 * number * np.arange(len(held)) / RATE)
        amplitude = 2 * np.abs((held * window) @ wave) / window.sum()
        assert 20 * np.log10(amplitude + 1e-9) == pytest.approx(heard, abs=2.0), number


@pytest.mark.parametrize("midi", [36.03, 57.0, 80.47])
def test_a_note_sounds_as_high_and_as_loud_as_its_codes_say(midi: float) -> None:
    audio = play(codec_of(plain_parameters()), note(midi=midi))
    held = audio[RATE // 10 : RATE // 2]
    assert abs(cents(peak_hertz(held), 440 * 2 ** ((midi - 69) / 12))) < 2.0
    amplitude = 2 * np.abs(held @ np.exp(-2j * np.pi * peak_hertz(held) * np.arange(len(held)) / RATE))
    assert 20 * np.log10(amplitude / len(held)) == pytest.approx(-10.0, abs=0.5)


def test_a_steady_fundamental_keeps_its_code_and_a_vibrato_is_followed() -> None:
    codec = TimbrelNotes(CONFIG).eval()
    rng = np.random.default_rng(0)
    track = 57.3 + 0.008 * rng.uniform(-1, 1, 200).astype(np.float32)
    assert len(set(codec._fundamental_steps(track).tolist())) == 1
    vibrato = (57.3 + 0.3 * np.sin(np.arange(200) * 0.9)).astype(np.float32)
    found = CONFIG.fundamental_min + codec._fundamental_steps(vibrato) / 12 / N_FINE
    assert np.abs(found - vibrato).max() < 0.02


@pytest.mark.parametrize("midi", [36.13, 47.8, 60.0, 71.37, 84.2, 95.9])
def test_the_fundamental_is_measured_within_two_cents(midi: float) -> None:
    turns = 2 * torch.pi * torch.arange(RATE) * float(midi_to_hertz(torch.tensor(midi).double())) / RATE
    audio = sum(0.2 / number * torch.sin(number * turns) for number in range(1, 6))
    measured = FundamentalTracker(RATE, HOP)(audio[None].float(), torch.tensor([float(round(midi))]))
    assert (measured[0, 4:34] - midi).abs().max() < 0.02


@pytest.mark.parametrize("held", [0.2, 0.3141, 0.6])
def test_the_release_begins_when_the_key_is_let_go(held: float) -> None:
    audio = play(codec_of(plain_parameters()), note(held=held))
    level = 10 * np.log10(fftconvolve(audio**2, np.ones(512) / 512, "same") + 1e-12)
    before = level[round((held - 0.05) * RATE)]
    fallen = np.flatnonzero(level < before - 6) / RATE
    assert held - 0.006 < fallen[fallen > 0.05][0] < held + 0.02
    assert level[round((held + 0.1) * RATE)] < before - 40


@pytest.mark.parametrize("held", [0.03, 0.21, 0.5, 0.52, 0.599, 1.0])
def test_codes_say_that_the_key_is_held_while_the_gate_does(held: float) -> None:
    codec = TimbrelNotes(TimbrelNotesConfig())
    codes, n_held = codec.encode_analysis(note(held=held)), codec.held_frames(held)
    said_held = codes[:, 1] < codec.held_codes[1]
    assert said_held[:n_held].all() and not said_held[n_held:].any()
    assert 0 <= held - (n_held - codec.lead_frames) / codec.frame_rate < 1 / codec.frame_rate + 0.003


def test_headers_are_decoded_where_one_of_a_batch_changes_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec, n_decoded = TimbrelNotes(CONFIG).eval(), list[int]()
    decode = codec.header.decode

    def counted(codes: Tensor, midi: Tensor) -> Tensor:
        n_decoded.append(codes.shape[1])
        return decode(codes, midi)

    monkeypatch.setattr(codec.header, "decode", counted)
    codes = torch.from_numpy(np.stack([codec.encode_analysis(note(midi=m)) for m in (50.2, 62.0)]))
    codes[1, 20, 2] = 7  # this note's moves
    still = Expression.of(codes, torch.tensor([1, 2]))
    whole, _ = codec.decode_chunk(codes, still, codec.initial_state(2))
    assert n_decoded == [N_ROWS + 1 + 1]  # the last one twice: a row alone would be rounded otherwise
    n_decoded.clear()
    state, pieces = codec.initial_state(2), []
    for frame in range(codes.shape[1]):
        part = slice(frame, frame + 1)
        played = Expression(still.seed, still.cents[:, part], still.level_db[:, part])
        audio, state = codec.decode_chunk(codes[:, part], played, state)
        pieces.append(audio)
    assert n_decoded == [2 if frame < N_ROWS or frame == 20 else 0 for frame in range(codes.shape[1])]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=3e-4 * float(whole.abs().max()), rtol=0)


def test_a_stream_of_any_chunks_is_the_whole_note() -> None:
    codec = TimbrelNotes(CONFIG).eval()
    codec.templates.set(1, np.random.default_rng(0).normal(size=(100, 64, 2)).astype(np.float16) / 4)
    codes = torch.from_numpy(np.stack([codec.encode_analysis(note(midi=m, held=0.3)) for m in (50.2, 62.0)]))
    codes[:, 3, -1] = torch.tensor([1, 4 * ALIGNED + 1])  # the template
    bend, level = 100 * torch.randn(codes.shape[:2]), torch.randn(codes.shape[:2])
    seed = torch.tensor([5, -6])
    whole, _ = codec.decode_chunk(codes, Expression(seed, bend, level), codec.initial_state(2))
    for lengths in ([1] * 44, [7, 1, 20, 16]):
        state, start, pieces = codec.initial_state(2), 0, []
        for length in lengths:
            part = slice(start, start + length)
            played = Expression(seed, bend[:, part], level[:, part])
            audio, state = codec.decode_chunk(codes[:, part], played, state)
            pieces.append(audio)
            start += length
        # Random headers put partials octaves beside their place: phases sum what products round.
        torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=3e-4 * float(whole.abs().max()), rtol=0)


def test_a_header_that_changes_is_reached_within_a_frame_without_a_click() -> None:
    """Of a steady note, whose loudness alone changes: by 20 dB, within 27 ms of the frame that says so."""
    codec = codec_of(plain_parameters())
    codes = torch.from_numpy(codec.encode_analysis(note(midi=60.0, held=1.0)))[None]
    row, book = divmod(CONFIG.header.n_codes, CONFIG.n_header_books)
    quiet, changed = codes.clone(), 20 + row
    quiet[0, changed, 2 + book] = codes[0, row, 2 + book] - 40
    before, after = (codec.decode(each, torch.tensor([1]))[0].numpy() for each in (codes, quiet))
    begin = (changed - N_ROWS) * codec.hop_length - codec.delay_samples
    assert np.array_equal(before[:begin], after[:begin])
    behind = slice(begin + 2 * codec.hop_length, begin + 8 * codec.hop_length)
    assert 20 * np.log10(np.std(after[behind]) / np.std(before[behind])) == pytest.approx(-20, abs=0.5)
    assert np.abs(np.diff(after, n=2)).max() <= 1.05 * np.abs(np.diff(before, n=2)).max()


def test_a_header_says_how_deep_a_note_moves() -> None:
    """All its partials swell and fade by 6 dB, six times a second, in the template that it is most like."""
    movement = np.zeros((375, 64, 2), dtype=np.float16)
    movement[:, :, 0] = 6 * np.sin(2 * np.pi * 6 * np.arange(375) / 187.5)[:, None]

    def wavering(deeper: float) -> float:
        values = plain_parameters()
        NoteParameters.unpack(values).depth[:] = templates.depth[1] + deeper
        codec = codec_of(values)
        codec.templates = templates
        moving = note(60, midi=60.0, held=1.5)._replace(features=templates.features[1].numpy())
        blocks = play(codec, moving)[RATE // 4 : RATE * 5 // 4].reshape(50, -1)
        return float(np.std(10 * np.log10(np.square(blocks).mean(axis=1))))

    templates = Templates(CONFIG.n_templates)
    templates.set(1, movement)
    assert wavering(0.0) > 3.0
    assert wavering(-11.0) == pytest.approx(wavering(0.0), rel=1e-3)
    assert wavering(-26.0) < 0.4


def test_noise_and_phases_follow_the_seed() -> None:
    codec = codec_of(plain_parameters(tone=-95.0, noise=-40.0))
    one, again, other = (play(codec, note(), seed)[: RATE // 2] for seed in (1, 1, 2))
    assert one.tobytes() == again.tobytes()
    lags = fftconvolve(one, other[::-1]) / np.sqrt((one**2).sum() * (other**2).sum())
    assert np.abs(lags).max() < 0.1
    tones = codec_of(plain_parameters())
    one, other = (play(tones, note(), seed)[: RATE // 2] for seed in (1, 2))
    assert np.sqrt((one**2).mean()) == pytest.approx(np.sqrt((other**2).mean()), rel=0.05)
    assert not np.allclose(one, other, atol=0.1)


def played_coherence(audio: Floats, midi: float) -> float:
    hertz = np.full(len(audio), 440 * 2 ** ((midi - 69) / 12))
    return measure_coherence(audio.astype(np.float32), hertz, RATE, 2.4)


@pytest.mark.parametrize("coherence", [0.99, 0.8, 0.5])
def test_partials_in_the_phases_of_a_pulse_are_played_so(coherence: float) -> None:
    """With a header that says where partials lie beside their multiples, and a template that turns them."""
    values = NoteParameters.unpack(plain_parameters())
    values.offset[:] = 5 * torch.randn(values.offset.shape)
    codec = codec_of(torch.cat([part.flatten() for part in vars(values).values()]))
    codec.templates.set(1, np.random.default_rng(0).normal(size=(100, 64, 2)).astype(np.float16) / 8)
    still = note(n_frames=100, midi=45.0, held=2.5, coherence=coherence)
    analysis = still._replace(features=codec.templates.features[1].numpy())
    played = [play(codec, analysis, seed) for seed in range(5)]
    found = [played_coherence(audio, 45.0) for audio in played]
    if coherence == 0.5:
        assert max(found) < LEAST_COHERENCE[0]
    else:
        assert min(found) >= LEAST_COHERENCE[coherence == 0.99]
        assert max(found) <= 1.0 if coherence == 0.99 else 0.95
    assert not np.allclose(played[0], played[1], atol=0.1)


def test_a_timbre_that_moves_from_phases_by_chance_to_a_pulse_does_not_click() -> None:
    codec = codec_of(plain_parameters())
    one = torch.from_numpy(codec.encode_analysis(note(n_frames=100, held=2.5)))
    codes = torch.stack([one, one, one])
    codes[1, 43, -1] = codes[2, 3, -1] = CONFIG.n_templates * ALIGNED
    before, after, pulse = codec.decode(codes, torch.tensor([1, 1, 1])).numpy()
    begin = (43 - N_ROWS) * HOP - codec.delay_samples
    assert np.array_equal(before[:begin], after[:begin])
    assert played_coherence(before, 57.0) < LEAST_COHERENCE[0]
    assert played_coherence(after[begin + 2 * HOP :], 57.0) > LEAST_COHERENCE[1]
    assert np.abs(np.diff(after, n=2)).max() <= 1.05 * np.abs(np.diff(pulse, n=2)).max()


@pytest.mark.parametrize("bend", [-1200.0, -50.0, 50.0, 200.0, 1200.0])
def test_bent_notes_sound_as_high_as_asked(bend: float) -> None:
    codec = codec_of(plain_parameters())
    frames = torch.full((1, N_ROWS + 40), bend)
    audio = play(codec, note(), cents=frames)
    hertz = 440 * 2 ** ((57.0 - 69) / 12 + bend / 1200)
    assert abs(cents(peak_hertz(audio[RATE // 10 : RATE // 2]), hertz)) < 2.0


def test_noise_is_as_strong_as_measured_and_gone_after_the_release() -> None:
    codec = codec_of(plain_parameters(tone=-95.0, noise=-30.0))
    audio = play(codec, note())
    held, after = audio[RATE // 10 : RATE // 2], audio[round(0.7 * RATE) : RATE]
    assert 10 * np.log10((held**2).mean()) == pytest.approx(-30.0, abs=0.5)
    assert (after**2).mean() < 1e-3 * (held**2).mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_is_no_sound_is_refused_in_one_line(value: float) -> None:
    codec = TimbrelNotes(CONFIG).eval()
    audio = torch.zeros(1, RATE // 4)
    audio[0, 100] = value
    known = torch.tensor([60.0]), torch.tensor([0.1])
    with pytest.raises(NoNoteError, match=r"no sound: samples are needed, all of them finite"):
        codec.encode(audio, *known)
    with pytest.raises(NoNoteError, match="no sound"):
        codec.encode(audio[:, :0], *known)
    with pytest.raises(NoNoteError, match=r"pitch -1, held 0\.1 s: above 0 to 127"):
        codec.encode(0 * audio[:, :9], torch.tensor([-1.0]), known[1])


@pytest.mark.parametrize("seed", range(4))
def test_no_codes_are_louder_than_ears_can_bear(seed: int) -> None:
    """Codes come from a model or over a network: at worst all partials are as loud as one may be."""
    generator = torch.Generator().manual_seed(seed)
    codec = TimbrelNotes(CONFIG).eval()
    codec.header.decoder[-1].bias.fill_(1000.0)  # type: ignore[union-attr, operator]
    codes = torch.randint(0, 1024, (2, 12, codec.n_codebooks), generator=generator)
    audio = codec.decode(codes)
    assert audio.isfinite().all() and audio.abs().max() < 224 * 10 ** (24 / 20)


def test_other_sizes_work() -> None:
    config = replace(CONFIG, header=HeaderConfig(n_codes=11, width=8), n_templates=2)
    codec = TimbrelNotes(config).eval()
    assert codec.n_codebooks == 2 + 4  # 13 codes in 4 rows
    assert codec.decode(torch.from_numpy(codec.encode_analysis(note()))[None]).isfinite().all()
