"""Notes recorded one a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile

from timbrel_training.notes.folder import FolderSource
from timbrel_training.notes.note import Note, SourceError
from timbrel_training.notes.recording import read_recording
from timbrel_training.notes.render import render_dataset

RATE = 22_050


def record(path: Path, seconds: float = 0.5, lead: float = 0.0, channels: int = 1) -> None:
    time = np.arange(int(seconds * RATE)) / RATE
    tone = np.concatenate([np.zeros(int(lead * RATE)), 0.4 * np.cos(2 * np.pi * 330 * time)])
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = "AIFF" if path.suffix == ".aif" else None
    soundfile.write(path, np.stack([tone] * channels, axis=1), RATE, format=kind)


def described(notes: FolderSource) -> list[tuple[str, int, int]]:
    return [(note.instrument, note.pitch, note.velocity) for note in notes]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("060.wav", ("Box", 60, 100)),
        ("piano_060.wav", ("piano", 60, 100)),
        ("piano_060_v045.flac", ("piano", 60, 45)),
        ("Grand Piano 7-V1.WAV", ("Grand Piano", 7, 1)),
        ("060_v127.wav", ("Box", 60, 127)),
        ("take 2_061.wav", ("take 2", 61, 100)),
        ("2024_061.wav", ("2024", 61, 100)),
        ("bell099.wav", ("bell", 99, 100)),
        ("C4.wav", ("Box", 60, 100)),
        ("Violin_G#3_mf.wav", ("Violin", 56, 80)),
        ("Alto Sax Bb2 ff.aiff", ("Alto Sax", 46, 112)),
        ("LLVln_ArcoVib_A3_p.wav", ("LLVln_ArcoVib", 57, 49)),
        ("Cello_ff_D2.flac", ("Cello", 38, 112)),
        ("Flute.vib.pp.Db5.stereo.aif", ("Flute.vib", 73, 33)),
        ("violin_As3_05_forte_arco-normal.ogg", ("violin", 58, 96)),
        ("violin_A3_1_piano_arco-normal.wav", ("violin", 57, 49)),
        ("marimba-036-c1.wav", ("marimba", 36, 100)),
        ("Pad 2 C3 127.wav", ("Pad 2", 48, 127)),
        ("Harp_Cis4-v90-rr2.wav", ("Harp", 61, 90)),
        ("Horn Es3.wav", ("Horn", 51, 100)),
        ("Zither_H4_mf.wav", ("Zither", 71, 80)),
        ("Zither (C4).wav", ("Zither", 60, 100)),
        ("piano_060_mf_rr1.wav", ("piano", 60, 80)),
        ("Violin_060_v110_r2.wav", ("Violin", 60, 110)),  # as `timbrel library` names its takes
        ("Pluck-060-127-rr2.wav", ("Pluck", 60, 127)),
        ("bass_electronic_018-022-100.wav", ("bass_electronic_018", 22, 100)),
        ("trumpet_As3_05_mezzo-forte_normal.wav", ("trumpet", 58, 80)),
        ("Horn C3 mezzo piano.wav", ("Horn", 48, 64)),
        ("Cello_C#4_-35.wav", ("Cello", 61, 100)),
        ("PianoC4.wav", ("Piano", 60, 100)),
        ("Upright PianoBb2v90.wav", ("Upright Piano", 46, 90)),
        ("Flute C 4.wav", ("Flute", 60, 100)),
        ("Flute_F#_5_mf.wav", ("Flute", 78, 80)),
        ("Oboe-G-4.wav", ("Oboe", 67, 100)),
        ("Pad A 2 060.wav", ("Pad A 2", 60, 100)),
        ("VcSus_G4_vl64_rr1.wav", ("VcSus", 67, 64)),
        ("60_piano.wav", ("piano", 60, 100)),
        ("Piano_060_100.wav", ("Piano", 60, 100)),
        ("060_045.wav", ("Box", 60, 45)),
        ("Juno 106_060.wav", ("Juno 106", 60, 100)),
        ("Strings_001_060.wav", ("Strings_001", 60, 100)),
        ("Horn in F_C4_mf.wav", ("Horn in F", 60, 80)),
        ("Horn in F_C4.wav", ("Horn in F", 60, 100)),
        ("P Bass_E1.wav", ("P Bass", 28, 100)),
        ("Fender P Bass E1 ff.wav", ("Fender P Bass", 28, 112)),
        ("VIOLIN_F_G3.wav", ("VIOLIN", 55, 96)),
        ("p_C4.wav", ("Box", 60, 49)),
        ("Rhodes_C3_vel_100.wav", ("Rhodes", 48, 100)),
        ("Rhodes 044 Velocity 64.wav", ("Rhodes", 44, 64)),
        ("trumpet-csharp4.wav", ("trumpet", 61, 100)),
        ("Sax Bflat3 ff.wav", ("Sax", 58, 112)),
    ],
)
def test_names_say_pitch_velocity_and_instrument(
    tmp_path: Path, name: str, expected: tuple[str, int, int]
) -> None:
    record(tmp_path / "Box" / name)
    assert described(FolderSource(tmp_path / "Box")) == [expected]


def test_numbered_layers_are_velocities_the_softest_first(tmp_path: Path) -> None:
    for layer in (1, 2, 4):
        record(tmp_path / "Grand" / f"A0v{layer}.wav")
    assert described(FolderSource(tmp_path)) == [("Grand", 21, 32), ("Grand", 21, 64), ("Grand", 21, 127)]


def test_numbers_are_pitch_and_velocity_where_they_are_in_their_folder(tmp_path: Path) -> None:
    for name in ("Harp_096_100", "Harp_108_064"):
        record(tmp_path / "harps" / f"{name}.wav")
    assert described(FolderSource(tmp_path / "harps")) == [("Harp", 96, 100), ("Harp", 108, 64)]
    for take, pitch in ((1, 60), (21, 61)):
        record(tmp_path / "takes" / f"Harp_{take:03d}_{pitch:03d}.wav")
    assert [pitch for _, pitch, _ in described(FolderSource(tmp_path / "takes"))] == [60, 61]


def test_two_numbers_without_zeros_are_pitch_and_velocity_where_they_must_be(tmp_path: Path) -> None:
    for pitch in (48, 60, 108):
        for velocity in (40, 100):
            record(tmp_path / "grid" / f"Piano_{pitch}_{velocity}.wav")
        for take in (1, 2):
            record(tmp_path / "takes" / f"Harp-{pitch}-{take}.wav")
        for model in ("Juno 106", "CS 80"):
            record(tmp_path / "models" / f"{model}_{pitch}.wav")
    grid = [("Piano", pitch, velocity) for pitch in (108, 48, 60) for velocity in (100, 40)]
    assert described(FolderSource(tmp_path / "grid")) == grid
    takes = [("Harp", pitch, 100) for pitch in (108, 48, 60) for _ in range(2)]
    assert described(FolderSource(tmp_path / "takes")) == takes
    assert sorted(FolderSource(tmp_path / "models").groups()) == ["CS 80", "Juno 106"]


def test_a_note_that_every_name_has_is_part_of_the_instruments(tmp_path: Path) -> None:
    for name in ("Hammond B3", "Zoom H4"):
        for pitch in (48, 60):
            record(tmp_path / name / f"{name} {pitch:03d}.wav")
        assert described(FolderSource(tmp_path / name)) == [(name, 48, 100), (name, 60, 100)]


def test_numbers_that_count_the_files_are_no_instruments(tmp_path: Path) -> None:
    for name in ("01_C4", "02_D4", "03_E4 ff"):  # and 2 is no D, octaves away
        record(tmp_path / "Oud" / f"{name}.wav")
        record(tmp_path / "Ney" / f"{name}.wav")
    for name in ("01 Glass Harp C4", "02 Glass Harp D4", "04 Glass Harp E4 ff"):  # as a tape's tracks
        record(tmp_path / "tracks" / f"{name}.wav")
    for name in ("12 String C4", "12 String D4"):
        record(tmp_path / "strings" / f"{name}.wav")
    for name in ("808_C2", "909_C2"):
        record(tmp_path / "machines" / f"{name}.wav")
    read = {(note.instrument, note.pitch) for note in FolderSource(tmp_path / "Oud")}
    assert read == {("Oud", 60), ("Oud", 62), ("Oud", 64)}
    assert sorted(FolderSource(tmp_path).groups()) == ["12 String", "808", "909", "Glass Harp", "Ney", "Oud"]


@pytest.mark.parametrize("ending", ["mp3", "ogg", "aiff", "aif", "flac", "wav"])
def test_formats(tmp_path: Path, ending: str) -> None:
    record(tmp_path / f"E4.{ending}")
    [note] = FolderSource(tmp_path)
    assert (note.pitch, note.sample_rate) == (64, RATE)
    spectrum = np.abs(np.fft.rfft(note.audio[2_205:8_820]))
    assert abs(int(spectrum.argmax()) * RATE / 6_615 - 330) < 4


def test_subfolders_are_instruments(tmp_path: Path) -> None:
    for instrument in ("Kora", "Oud"):
        for pitch in (60, 61):
            record(tmp_path / instrument / f"{pitch:03d}.wav")
    (tmp_path / "notes.txt").write_text("not a sound")
    source = FolderSource(tmp_path)
    assert source.groups() == ["Kora", "Oud"] and len(source.entries) == 4
    assert described(source) == [("Kora", 60, 100), ("Kora", 61, 100), ("Oud", 60, 100), ("Oud", 61, 100)]


def test_without_a_stated_hold_leading_silence_goes_and_the_rest_is_held(tmp_path: Path) -> None:
    record(tmp_path / "060.wav", seconds=0.5, lead=0.3)
    [note] = FolderSource(tmp_path)
    assert note.seconds == pytest.approx(0.5, abs=0.02) and note.held_seconds == pytest.approx(note.seconds)
    assert note.sample_rate == RATE


def test_a_note_that_is_held_to_the_end_of_its_file_and_still_sounds_there_is_cut(tmp_path: Path) -> None:
    """Nothing in the file says how it ends, whoever said for how long it was held."""
    record(tmp_path / "060.wav")
    time = np.arange(RATE) / RATE
    released = 0.4 * np.cos(2 * np.pi * 330 * time) * np.exp(-40.0 * np.maximum(time - 0.5, 0.0))
    soundfile.write(tmp_path / "061.wav", released, RATE)
    for stated, cut in (
        (("", ""), [True, False]),
        (("0.5", "0.5"), [True, False]),
        (("0.2", "2"), [False, False]),
    ):
        rows = [f"{name}.wav,{held}" for name, held in zip(("060", "061"), stated, strict=True)]
        (tmp_path / "notes.csv").write_text("\n".join(["file,held_seconds", *rows]))
        assert [note.cut for note in FolderSource(tmp_path)] == cut, stated


def test_an_offset_is_no_sound(tmp_path: Path) -> None:
    tone = 0.4 * np.cos(np.arange(RATE // 2) * 0.1) * np.exp(np.arange(RATE // 2) / -2000)
    click = np.where(np.arange(RATE) == RATE // 2, 0.5, 0.0)
    for pitch, audio in (
        (60, np.pad(tone, (RATE // 4, RATE // 2)) + 0.2),
        (61, np.full(RATE, 0.2)),
        (62, click),
    ):
        soundfile.write(tmp_path / f"{pitch:03d}.wav", audio, RATE, subtype="FLOAT")
    note, silence, dry = FolderSource(tmp_path)
    assert abs(note.audio.mean()) < 1e-3 and note.seconds == pytest.approx(0.5, abs=0.05) and not note.cut
    assert np.abs(silence.audio).max(initial=0.0) < 1e-5
    assert np.count_nonzero(dry.audio) == 1


def test_what_is_normalised_is_kept_and_what_is_clipped_is_dropped(tmp_path: Path) -> None:
    tone = np.cos(np.arange(RATE // 2) * 0.1)
    for pitch, audio in ((60, tone), (61, np.clip(1.2 * tone, -1.0, 1.0))):
        soundfile.write(tmp_path / f"{pitch:03d}.wav", audio, RATE)
    summary = render_dataset(FolderSource(tmp_path), tmp_path / "notes", 1)
    assert (summary.n_notes, summary.dropped) == (1, {"clipped": 1})


def test_a_csv_says_more(tmp_path: Path) -> None:
    record(tmp_path / "a.wav", seconds=0.5, lead=0.3)
    record(tmp_path / "deep" / "harp_070.wav", channels=2)
    record(tmp_path / "unlisted_010.wav")
    (tmp_path / "notes.csv").write_text(
        "file,pitch,velocity,instrument,family,held_seconds\n"
        "a.wav,F4,33,Kalimba,Ethnic,0.25\n"
        "deep/harp_070.wav,,mf,,Strings,\n"
    )
    kalimba, harp = FolderSource(tmp_path)
    assert (kalimba.instrument, kalimba.family, kalimba.pitch, kalimba.velocity) == (
        "Kalimba",
        "Ethnic",
        65,
        33,
    )
    assert kalimba.held_seconds == 0.25 and kalimba.seconds == pytest.approx(0.8, abs=0.02)
    assert (harp.instrument, harp.family, harp.pitch, harp.velocity) == ("harp", "Strings", 70, 80)
    assert isinstance(harp, Note) and harp.audio.ndim == 1


def test_a_csv_that_says_the_pitch_leaves_the_rest_to_the_names(tmp_path: Path) -> None:
    names = ("Oud_C3_mf", "Oud_C3_v200", "Oud_200_v45", "untitled")
    for name in names:
        record(tmp_path / "Box" / f"{name}.wav")
    velocities = ("", "20", "", "")
    rows = [f"{name}.wav,C4,{each}" for name, each in zip(names, velocities, strict=True)]
    (tmp_path / "Box" / "notes.csv").write_text("\n".join(["file,pitch,velocity", *rows]))
    expected = [("Oud", 60, 45), ("Oud", 60, 80), ("Oud", 60, 20), ("Box", 60, 100)]
    assert described(FolderSource(tmp_path / "Box")) == expected


def test_numbers_of_a_csv_may_end_as_fractions_do(tmp_path: Path) -> None:
    record(tmp_path / "Box" / "take.wav")  # pandas writes them so where a cell of the column is empty
    (tmp_path / "Box" / "notes.csv").write_text("file,pitch,velocity\ntake.wav,60.0,45.0\n")
    assert described(FolderSource(tmp_path / "Box")) == [("Box", 60, 45)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("pitch\n60\n", "has no column `file`; known columns are file, .* held_seconds, with commas between"),
        ("file,pich\na_060.wav,60\n", "unknown column 'pich'"),
        ("file,pitch\nb.wav,60\n", r"notes\.csv line 2: b\.wav does not exist"),
        ("file,pitch\n\n,60\n", "line 3: names no file"),
        ("file,pitch\na_060.wav,60.5\n", r"line 2: pitch must be 0 to 127, got '60\.5'"),
        ("file,pitch\na_060.wav,-5\n", "line 2: pitch must be 0 to 127, got '-5'"),
        ("file,pitch\na_060.wav,128\n", "line 2: pitch must be 0 to 127, got '128'"),
        (f"file,pitch\na_060.wav,{'9' * 5000}\n", "line 2: pitch must be 0 to 127, got '9"),
        ("file,velocity\na_060.wav,0\n", "line 2: velocity must be 1 to 127, got '0'"),
        ("file,held_seconds\na_060.wav,nan\n", "held_seconds must be above 0 and at most 3600, got 'nan'"),
        ("file,held_seconds\na_060.wav,1e9\n", "held_seconds must be above 0 and at most 3600, got '1e9'"),
        ("file\n", "no notes"),
    ],
)
def test_a_bad_csv_is_one_clear_line(tmp_path: Path, rows: str, message: str) -> None:
    record(tmp_path / "a_060.wav")
    (tmp_path / "notes.csv").write_text(rows)
    with pytest.raises(SourceError, match=message):
        FolderSource(tmp_path)


def test_what_is_no_folder_of_notes_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such folder"):
        FolderSource(tmp_path / "missing")
    with pytest.raises(SourceError, match=r"no notes; expected \.wav, \.flac.* files named by MIDI number"):
        FolderSource(tmp_path)
    record(tmp_path / "violin.wav")
    record(tmp_path / "piano.wav")
    with pytest.raises(SourceError, match=r"piano\.wav \(and 1 more\): no note in its name"):
        FolderSource(tmp_path)
    (tmp_path / "violin.wav").unlink()
    (tmp_path / "piano.wav").rename(tmp_path / "piano_200.wav")
    with pytest.raises(SourceError, match="MIDI number must be 0 to 127, got '200'"):
        FolderSource(tmp_path)


@pytest.mark.parametrize("content", [b"", b"RIFF", b"RIFF\x24\0\0\0WAVEfmt ", b"not audio at all" * 10])
def test_a_corrupt_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "060.wav").write_bytes(content)
    with pytest.raises(SourceError, match=r"060\.wav: (not a readable sound file|holds no audio)") as error:
        list(FolderSource(tmp_path))
    assert "\n" not in str(error.value)


def test_all_corrupt_files_are_named_at_once(tmp_path: Path) -> None:
    record(tmp_path / "060.wav")
    for name in ("061.wav", "deep/062.wav", "063.flac"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"RIFF")
    others = r"; nor can these be read: 063\.flac, deep.062\.wav$"
    with pytest.raises(SourceError, match=r"061\.wav: not a readable sound file \(.*\)" + others):
        FolderSource(tmp_path).check()


def test_a_small_file_that_unpacks_to_an_hour_is_refused(tmp_path: Path) -> None:
    with soundfile.SoundFile(tmp_path / "060.flac", "w", RATE, 2) as file:
        for _ in range(3600):
            file.write(np.zeros((RATE, 2), np.int16))
    assert (tmp_path / "060.flac").stat().st_size < 1e6
    tracemalloc.start()
    with pytest.raises(SourceError, match=r"060\.flac: lasts longer than \d+ s; a recording of one note"):
        list(FolderSource(tmp_path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


def test_a_surround_recording_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "060.wav", channels=4)
    with pytest.raises(SourceError, match="has 4 channels"):
        list(FolderSource(tmp_path))


@pytest.mark.parametrize("letter", ["\u200b", "\n", "\udcf6", "\u202e"])
def test_a_name_that_no_bundle_may_have_is_refused_with_its_file(tmp_path: Path, letter: str) -> None:
    record(tmp_path / "a_060.wav")
    (tmp_path / "a_060.wav").rename(tmp_path / f"Fl{letter}te_060.wav")
    with pytest.raises(SourceError, match=r"te_060\.wav': the name 'Fl.*te' has characters that cannot be"):
        FolderSource(tmp_path)
    record(tmp_path / "Kalimba" / "a_060.wav")
    (tmp_path / "notes.csv").write_text(f"file,family\nKalimba/a_060.wav,Eth{letter}nic\n", errors="replace")
    if letter in "\u200b\u202e":
        with pytest.raises(SourceError, match=r"a_060\.wav': the name 'Eth.*nic' has characters"):
            FolderSource(tmp_path)


def test_a_path_that_is_not_utf8_is_one_clear_line(tmp_path: Path) -> None:
    record(tmp_path / "Oud" / "060.wav")
    (tmp_path / "Oud" / "060.wav").rename(tmp_path / "Oud" / "b\udcf6.wav")
    with pytest.raises(
        SourceError, match=r"b\\udcf6\.wav': not a name in UTF-8; rename the file or its folder"
    ):
        read_recording(tmp_path / "Oud" / "b\udcf6.wav")


def test_an_instrument_has_one_name_and_one_family_however_they_are_written(tmp_path: Path) -> None:
    for name in ("Reed  Organ_060.wav", "reed organ_061.wav", "Reed Organ_062.wav"):
        record(tmp_path / name)
    assert FolderSource(tmp_path).groups() == ["Reed  Organ"]
    (tmp_path / "notes.csv").write_text(
        "file,instrument,family\nReed  Organ_060.wav,Reed,\nreed organ_061.wav,reed,Winds\n"
        "Reed Organ_062.wav,REED,winds\n"
    )
    source = FolderSource(tmp_path)
    assert source.groups() == ["Reed"] and {note.family for note in source} == {"winds"}
    assert [note.instrument for note in source] == ["Reed"] * 3


def test_an_accent_is_one_however_a_system_writes_it(tmp_path: Path) -> None:
    """A Mac's file names have it as a character of its own; who types the instrument's name does not."""
    for name in ("Flu\u0302te_060.wav", "Fl\u00fbte_061.wav"):
        record(tmp_path / name)
    assert FolderSource(tmp_path).groups() == ["Fl\u00fbte"]


def test_an_instrument_of_two_families_is_one_clear_line(tmp_path: Path) -> None:
    record(tmp_path / "a_060.wav")
    record(tmp_path / "A_061.wav")
    (tmp_path / "notes.csv").write_text("file,family\nA_061.wav,Winds\na_060.wav,Keys\n")
    with pytest.raises(SourceError, match=r"a_060\.wav: 'A' is of the family 'Keys', of 'Winds' elsewhere"):
        FolderSource(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_no_numbers_are_one_clear_line(tmp_path: Path, value: float) -> None:
    audio = np.full((RATE, 2), 0.1, np.float32)
    audio[100, 1] = value
    soundfile.write(tmp_path / "060.wav", audio, RATE, subtype="FLOAT")
    with pytest.raises(SourceError, match=r"060\.wav: has samples that are NaN or infinite; save it again"):
        list(FolderSource(tmp_path))


def test_what_is_hidden_is_no_sample(tmp_path: Path) -> None:
    folder = tmp_path / ".kept" / "Oud"
    record(folder / "060.wav")
    for name in ("._060.wav", ".Trash/061.wav", "__MACOSX/._060.wav", "__MACOSX/062.wav"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"no sound")
    (folder / "._notes.csv").write_bytes(b"no table")
    assert described(FolderSource(folder)) == [("Oud", 60, 100)]
