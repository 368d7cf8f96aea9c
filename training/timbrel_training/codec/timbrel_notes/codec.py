"""The timbrel-notes codec: a header of steady codes, the fundamental, and when the key is let go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from timbrel_training.codec.interface import MAX_CODEBOOK_SIZE, Codec, Expression, KnownNote
from timbrel_training.codec.timbrel_notes.analysed_notes import (
    ANALYSIS_FOLDER,
    HELD_OUT_FOLDER,
    HOP_LENGTH,
    AnalysedNotes,
    NoteAnalysis,
    analyse_note,
    kept_analysis,
)
from timbrel_training.codec.timbrel_notes.analysis import midi_to_hertz
from timbrel_training.codec.timbrel_notes.header import (
    LEVELS,
    NUMBERS_PER_CODE,
    SEARCH_STEPS,
    HeaderCoder,
    HeaderConfig,
)
from timbrel_training.codec.timbrel_notes.note_parameters import (
    N_NOISE_BANDS,
    N_PARTIALS,
    N_VALUES,
    NoteParameters,
)
from timbrel_training.codec.timbrel_notes.phase_alignment import (
    FREE,
    N_ALIGNMENTS,
    alignment_of,
    phases_beside,
)
from timbrel_training.codec.timbrel_notes.player import DECIBEL, NotePlayer, NoteTime
from timbrel_training.codec.timbrel_notes.recorded_note import estimate_held_seconds, estimate_pitch
from timbrel_training.codec.timbrel_notes.sound_source import N_SUBFRAMES, SoundSource, SourceControls
from timbrel_training.codec.timbrel_notes.templates import Templates
from timbrel_training.errors import ConfigError
from timbrel_training.notes.dataset import NoteDataset
from timbrel_training.settings import check_at_least

N_ROWS = 4
"""The header takes so many frames, a row each: as many frames of a note are without sound. Row 0 may change
again at frame 4, 8 and so on, row 1 at the frames behind these."""
HELD, END = 0, N_SUBFRAMES + 1
"""Codebook 1, divided by 4: the key is held; or it was let go at one of the frame's points, 1 to 5; or
nothing sounds."""
N_FINE = 4
"""Its remainder: so many steps of the fundamental lie between two codes of codebook 0."""
LOWEST_DB, LOUDEST_DB, STEPS_PER_DB = -110.0, 12.0, 2
"""Range and resolution of a note's loudness."""
HYSTERESIS = 1.0
"""Fine steps by which the fundamental has to leave its code before that changes."""
STIFF_STEPS = 10.0
"""From this stiffness on partials are never taken for multiples: the 24th lies 5 % of the first beside."""
NOTES_AT_ONCE = 256
"""Measured notes are coded so many together: a search takes 9 ms a note then, and 200 ms of one alone."""


@dataclass(frozen=True)
class TimbrelNotesConfig:
    """Sizes of the codec."""

    sample_rate: int = 48_000
    """Samples per second."""
    hop_length: int = HOP_LENGTH
    """Samples per frame; notes are measured and played in frames of this length alone."""
    codebook_size: int = 1024
    """Codes per codebook."""
    fundamental_min: float = 24.0
    """MIDI note number of fundamental code 0."""
    fundamental_steps_per_semitone: int = 12
    """Codes of codebook 0 a semitone; with what codebook 1 adds, the fundamental has four times as many."""
    n_templates: int = 256
    """Movements to choose from, the first of which is none."""
    header: HeaderConfig = field(default_factory=HeaderConfig)
    """The autoencoder's sizes."""

    def __post_init__(self) -> None:
        check_at_least(self, sample_rate=1, n_templates=1, fundamental_steps_per_semitone=1)
        # A code of the header, a movement or, last, `hold`.
        n_movements = N_ALIGNMENTS * self.n_templates
        check_at_least(self, codebook_size=max(LEVELS**NUMBERS_PER_CODE, n_movements) + 1)
        if self.codebook_size > MAX_CODEBOOK_SIZE:
            raise ConfigError(f"codebook_size: {self.codebook_size}, expected at most {MAX_CODEBOOK_SIZE}")
        if self.hop_length != HOP_LENGTH:
            raise ConfigError(f"hop_length: {self.hop_length}, expected {HOP_LENGTH}: notes are played so")

    @property
    def n_header_books(self) -> int:
        """Codebooks of the header: its codes, the loudness and the template, in `N_ROWS` rows."""
        return -(-(self.header.n_codes + 2) // N_ROWS)


class TimbrelNotes(Codec):
    """Codebook 0 is the fundamental, 1 refines it and says when the key is let go; the others: the header."""

    id = "timbrel-notes-2"
    lead_frames = N_ROWS
    codebook_delay = 0
    bends = True
    moves = True
    search_steps = SEARCH_STEPS

    hold: int

    midi_of_step: Tensor  # [N_FINE * codebook_size]
    hertz_of_step: Tensor  # [N_FINE * codebook_size]
    row: Tensor  # int64 [N_ROWS], 0, 1, 2, ...
    point: Tensor  # int64 [N_SUBFRAMES]
    share: Tensor  # [N_SUBFRAMES]

    def __init__(self, config: TimbrelNotesConfig) -> None:
        super().__init__()
        self.config = config
        self.sample_rate, self.hop_length = config.sample_rate, config.hop_length
        self.n_codebooks, self.codebook_size = 2 + config.n_header_books, config.codebook_size
        self.codes_per_semitone = config.fundamental_steps_per_semitone
        self.code_offset = round(config.fundamental_min * self.codes_per_semitone) + self.codebook_size // 2
        self.sub_hop = config.hop_length // N_SUBFRAMES
        self.header = HeaderCoder(config.header)
        self.templates = Templates(config.n_templates)
        self.player = NotePlayer(config.sample_rate)
        self.source = SoundSource(config.sample_rate, N_PARTIALS, N_NOISE_BANDS)
        steps = torch.arange(N_FINE * config.codebook_size)
        midi = config.fundamental_min + steps / (N_FINE * config.fundamental_steps_per_semitone)
        self.register_buffer("midi_of_step", midi, persistent=False)
        # A table, not a formula: runtimes round exp2 differently, and a phase that sums it would drift apart.
        self.register_buffer("hertz_of_step", midi_to_hertz(midi.double()).float(), persistent=False)
        self.register_buffer("row", torch.arange(N_ROWS), persistent=False)
        self.register_buffer("point", torch.arange(N_SUBFRAMES), persistent=False)
        self.register_buffer("share", (torch.arange(N_SUBFRAMES) + 1) / N_SUBFRAMES, persistent=False)
        self.delay_samples = self.source.delay_samples
        self.held_codes = [0, N_FINE * (HELD + 1), *[0] * config.n_header_books]
        # A gate counts whole frames: in the first of them without the key, it was let go at its beginning.
        self.released_codes = [0, N_FINE * (HELD + 2), *[0] * config.n_header_books]
        self.hold = config.codebook_size - 1
        """The code of the header's codebooks that leaves what it would change as it is."""
        own = [LEVELS] * config.header.n_codes + [config.codebook_size, 0]
        own += [0] * (N_ROWS * config.n_header_books - len(own))
        rows = [
            own[begin : begin + config.n_header_books] for begin in range(0, len(own), config.n_header_books)
        ]
        self.code_bases = [base for row in rows for base in (0, 0, *row)]

    def held_frames(self, seconds: float) -> int:
        """See `Codec.held_frames`: those before the one in which the codes let the key go."""
        return N_ROWS + max(1, self._let_go(seconds)[0])

    def _let_go(self, held_seconds: float) -> tuple[int, int]:
        """Returns the frame, since the onset, and the point in it at which a key goes up."""
        return divmod(round(held_seconds * self.sample_rate / self.sub_hop), N_SUBFRAMES)

    # Encoding

    def encode(
        self, audio: Tensor, pitch: Tensor | None = None, held_seconds: Tensor | None = None
    ) -> Tensor:
        """Returns the codes of notes: the header's first round, then a row for each frame. Raises
        NoNoteError: no pitch is given for a note, and it has none."""
        rows = []
        for number, samples in enumerate(audio.cpu().numpy()):
            midi = float(pitch[number]) if pitch is not None else estimate_pitch(samples, self.sample_rate)
            held = (
                float(held_seconds[number])
                if held_seconds is not None
                else estimate_held_seconds(samples, self.sample_rate)
            )
            analysis, _ = analyse_note(samples, self.sample_rate, midi, held)
            rows.append(torch.from_numpy(self.encode_analysis(analysis)))
        return torch.stack(rows).to(audio.device)

    def encode_alike(self, notes: Iterable[KnownNote]) -> list[Tensor]:
        """See `Codec.encode_alike`: headers are searched for together."""
        analyses, velocities = [], []
        for note in notes:
            samples = note.audio.cpu().numpy()
            midi = estimate_pitch(samples, self.sample_rate) if note.pitch is None else note.pitch
            analyses.append(analyse_note(samples, self.sample_rate, midi, note.held_seconds)[0])
            velocities.append(float(note.velocity))
        codes = self.encode_analyses(analyses, torch.tensor(velocities))
        return [torch.from_numpy(each) for each in codes]

    def known_codes(self, dataset: NoteDataset, folder: Path) -> Mapping[int, NDArray[np.int64]]:
        """See `Codec.known_codes`: those that training has measured, and kept in half precision."""
        kept = (kept_analysis(dataset, folder / each) for each in (ANALYSIS_FOLDER, HELD_OUT_FOLDER))
        return MeasuredCodes(self, [notes for notes in kept if notes is not None])

    def encode_analysis(self, note: NoteAnalysis) -> NDArray[np.int64]:
        """Returns codes [N_ROWS + T, K] of a note that was measured."""
        return self.encode_analyses([note])[0]

    @torch.no_grad()
    def encode_analyses(
        self, notes: Sequence[NoteAnalysis], velocity: Tensor | None = None
    ) -> list[NDArray[np.int64]]:
        """Returns the codes [N_ROWS + T, K] of each of some notes that were measured; with velocities [N]
        they are of one instrument, and to be alike."""
        if not notes:
            return []
        tracks = [self._fundamental_steps(note.track) for note in notes]
        nominal = torch.tensor([int(np.median(steps)) for steps in tracks])
        values, weights = (
            torch.from_numpy(np.stack(parts))
            for parts in ([note.values for note in notes], [note.weights for note in notes])
        )
        midi = self.midi_of_step[nominal]
        headers = self.header.encode(values, weights, midi, self.search_steps, velocity)
        return [
            self._codes(note, steps, own)
            for note, steps, own in zip(notes, tracks, headers.tolist(), strict=True)
        ]

    def _codes(self, note: NoteAnalysis, steps: NDArray[np.int64], own: list[int]) -> NDArray[np.int64]:
        """Returns the codes [N_ROWS + T, K] of a note, whose fundamental has these fine steps [T] and whose
        header these own codes."""
        loudness = np.clip(round((note.loudest_db - LOWEST_DB) * STEPS_PER_DB), 0, self.hold - 1)
        header = np.zeros(N_ROWS * self.config.n_header_books, dtype=np.int64)
        alignment = alignment_of(note.coherence) * self.config.n_templates
        header[: len(own) + 2] = [*own, loudness, alignment + self.templates.nearest(note.features)]
        nominal = int(np.median(steps))
        steps = np.concatenate([np.full(N_ROWS, nominal), steps])
        frame, point = self._let_go(note.held_seconds)
        phase = np.where(np.arange(len(steps)) < N_ROWS + frame, HELD, point + 1)
        codes = np.zeros((len(steps), self.n_codebooks), dtype=np.int64)
        codes[:, 0], codes[:, 1] = steps // N_FINE, phase * N_FINE + steps % N_FINE
        codes[:, 2:] = self.hold
        codes[:N_ROWS, 2:] = header.reshape(N_ROWS, -1)
        return codes

    def _fundamental_steps(self, midi: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns the fine steps [T] of MIDI note numbers, which stay where the sound nearly does."""
        exact = (midi - self.config.fundamental_min) * self.config.fundamental_steps_per_semitone * N_FINE
        steps, present = np.zeros(len(exact), dtype=np.int64), np.round(exact[0])
        for frame, step in enumerate(exact):
            present = present if abs(step - present) <= HYSTERESIS else np.round(step)
            steps[frame] = present
        return np.clip(steps, 0, len(self.midi_of_step) - 1)

    # Decoding

    def initial_state(self, n_batch: int) -> dict[str, Tensor]:
        """Returns the zeros for a batch of notes that begin, by name."""
        device = self.share.device
        whole: dict[str, Any] = {"dtype": torch.int64, "device": device}
        return {
            "header": torch.zeros(n_batch, N_ROWS * self.config.n_header_books, **whole),
            "values": torch.zeros(n_batch, N_VALUES, device=device),
            "nominal": torch.zeros(n_batch, **whole),
            "last_step": torch.zeros(n_batch, **whole),
            "released": torch.zeros(n_batch, **whole),
            **self.source.initial_state(n_batch),
        }

    def decode_chunk(
        self, codes: Tensor, expression: Expression, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Decodes the next frames of a stream; see `Codec.decode_chunk`."""
        seed = expression.seed
        position, begins = state["position"], state["position"] == 0
        n_frames = codes.shape[1]
        frame = position[:, None] + torch.arange(n_frames, device=codes.device)  # [B, T]
        phase = codes[:, :, 1] // N_FINE
        step = codes[:, :, 0] * N_FINE + torch.remainder(codes[:, :, 1], N_FINE)
        nominal = torch.where(begins, step[:, 0], state["nominal"])
        header = self._header(codes[:, :, 2:], frame, state["header"])
        n_codes = self.config.header.n_codes
        # What a frame's header says is reached at the frame's end, from what the one before it said.
        headers = torch.cat([state["header"][:, None], header], dim=1)
        changes = ((header != headers[:, :-1]).any(dim=2) | (frame == 0)).any(dim=0)
        values = self._values(header[:, :, :n_codes], changes, self.midi_of_step[nominal], state["values"])
        parameters = NoteParameters.unpack(values)
        loudness = torch.clamp(headers[:, :, n_codes].float() / STEPS_PER_DB + LOWEST_DB, max=LOUDEST_DB)
        loud = DECIBEL * self._glide(loudness)[..., None]
        share = self.share[:, None]
        point = (frame[:, :, None] - N_ROWS) * N_SUBFRAMES + self.point  # [B, T, points], since the onset
        time, released = self._time(phase, frame, point, state["released"])
        sounds = (point >= 0) & (phase != END)[:, :, None]
        hertz = self._fundamental(step, frame, state["last_step"])
        movement = headers[:, :, n_codes + 1]
        alignment = self.templates.alignment(movement)
        # A stiff string's partials may begin as a pulse, but they are no multiples, and move by themselves.
        stiff = parameters.stiffness[:, :, 0] >= STIFF_STEPS
        movement = torch.where(stiff, torch.remainder(movement, self.config.n_templates), movement)
        moved, turned = self.templates(movement, parameters.depth, seed, torch.clamp(point, min=0), share)
        beside = phases_beside(alignment, self.source.drawn_phases(seed))
        levels = self.player.amplitudes(parameters, time, share)
        amplitude = torch.exp2(levels + moved + loud) * sounds[..., None]
        gains = torch.exp2(self.player.noise_gains(parameters, time, share) + loud) * sounds[..., None]
        present = parameters.behind_first()
        # Before the onset, too: partials that are to be aligned there are then.
        harmonic = ((alignment != FREE) & ~stiff)[:, 1:] | (frame < N_ROWS)
        nominal_hertz = self.hertz_of_step[nominal][:, None].expand(-1, n_frames)
        controls = SourceControls(
            frequency=self.player.frequencies(present, hertz, harmonic).flatten(1, 2),
            amplitude=amplitude.flatten(1, 2),
            offset=(turned + self._turned(beside)).flatten(1, 2),
            noise_bins=torch.exp2(self.player.noise_spectrum(present, nominal_hertz)),
            noise_gains=gains.flatten(1, 2),
            cents=expression.cents,
            level_db=expression.level_db,
        )
        audio, after = self.source(seed, controls, state)
        own = {
            "header": header[:, -1],
            "values": values[:, -1],
            "nominal": nominal,
            "last_step": step[:, -1],
            "released": released,
        }
        return audio, {**own, **after}

    def silence(self) -> Tensor:
        """Returns the codes of one silent frame: int64 [K]."""
        silence = torch.full((self.n_codebooks,), self.hold)
        silence[0] = 0
        silence[1] = END * N_FINE
        return silence

    def _header(self, codes: Tensor, frame: Tensor, before: Tensor) -> Tensor:
        """Returns the header at each frame [B, T, slots], where it was `before` [B, slots]."""
        n_frames = codes.shape[1]
        own_row = (torch.remainder(frame, N_ROWS)[:, :, None] == self.row)[..., None]  # [B, T, N_ROWS, 1]
        changes = (own_row & (codes != self.hold)[:, :, None]).flatten(2)
        given = codes[:, :, None].expand(-1, -1, N_ROWS, -1).flatten(2)
        # The changes of each slot in a row, behind what was before; how many there were picks the latest.
        count = torch.cumsum(changes.long(), dim=1)
        place = torch.where(changes, count, n_frames + 1)
        room = torch.zeros_like(given[:, :1]).expand(-1, n_frames + 1, -1)
        latest = torch.cat([before[:, None], room], dim=1).scatter(1, place, given)
        return torch.gather(latest, 1, count)

    def _values(self, codes: Tensor, changes: Tensor, midi: Tensor, before: Tensor) -> Tensor:
        """Returns the parameters [B, 1 + T, N_VALUES] of headers [B, T, n_codes] at pitches [B], behind those
        `before` [B, N_VALUES]. Headers hardly ever change: they are decoded where one of the batch does,
        `changes` [T]."""
        first = torch.nonzero(changes)[:, 0]
        first = torch.cat([first, first[-1:]])  # a product of one row alone would be rounded otherwise
        values = self.header.decode(codes[:, first], midi[:, None].expand(-1, first.shape[0]))
        latest = torch.nn.functional.pad(torch.cumsum(changes.long(), dim=0), (1, 0))
        return torch.cat([before[:, None], values], dim=1)[:, latest]

    def _time(self, phase: Tensor, frame: Tensor, point: Tensor, released: Tensor) -> tuple[NoteTime, Tensor]:
        """Returns each point's time, and the point of the release, counted from 1; 0: none yet."""
        let_go = ((phase > HELD) & (phase < END)).long()
        first = let_go * (torch.cumsum(let_go, dim=1) == 1) * (released == 0)[:, None]
        here = torch.clamp((frame - N_ROWS) * N_SUBFRAMES + phase - 1, min=0) + 1
        since = released[:, None] + torch.cumsum(first * here, dim=1)  # [B, T]
        seconds = self.sub_hop / self.sample_rate
        onset = torch.clamp(point, min=0).float() * seconds
        after = (point - since[:, :, None] + 1).float() * seconds
        after = torch.where(since[:, :, None] > 0, after, torch.zeros_like(after))
        return NoteTime(onset, after), since[:, -1]

    def _glide(self, values: Tensor) -> Tensor:
        """Returns values at points [B, T, points], of values at the frames' ends [B, 1 + T]."""
        before = values[:, :-1, None]
        return before + (values[:, 1:, None] - before) * self.share

    def _turned(self, cycles: Tensor) -> Tensor:
        """Returns cycles at points [B, T, points, N], of those at the frames' ends [B, 1 + T, N], the shorter
        way round between them."""
        before = cycles[:, :-1, None]
        turn = cycles[:, 1:, None] - before
        return before + (turn - torch.round(turn)) * self.share[:, None]

    def _fundamental(self, step: Tensor, frame: Tensor, last: Tensor) -> Tensor:
        """Returns Hz [B, T, points]: frames glide from the last and end on their own."""
        hertz = self.hertz_of_step[step]
        both = torch.cat([self.hertz_of_step[last][:, None], hertz], dim=1)
        before = torch.where(frame <= N_ROWS, hertz, both[:, : hertz.shape[1]])
        return before[:, :, None] + (hertz - before)[:, :, None] * self.share


class MeasuredCodes(Mapping[int, NDArray[np.int64]]):
    """The codes of notes that were measured, by number in the dataset; made, many at once, when they are
    asked for."""

    def __init__(self, codec: TimbrelNotes, kept: Sequence[AnalysedNotes]) -> None:
        self._codec, self._kept = codec, kept
        self._rows = {
            int(note): (part, row) for part, notes in enumerate(kept) for row, note in enumerate(notes.notes)
        }
        self._made: list[tuple[int, list[NDArray[np.int64]]]] = [(0, [])] * len(kept)
        """Of each part, the first row of those made last, and their codes."""

    def __getitem__(self, note: int) -> NDArray[np.int64]:
        part, row = self._rows[note]
        first, made = self._made[part]
        if not first <= row < first + len(made):
            notes, first = self._kept[part], row - row % NOTES_AT_ONCE
            rows = range(first, min(first + NOTES_AT_ONCE, len(notes)))
            made = self._codec.encode_analyses([notes[each] for each in rows])
            self._made[part] = first, made
        return made[row - first]

    def __contains__(self, note: object) -> bool:  # without coding it
        return note in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
