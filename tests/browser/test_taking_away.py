"""What leaves the page: files, instruments, snippets; and the recording that comes in."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from waiting import wait_for

from browser.explorer_page import ExplorerPage

_DROP = """([base64, name]) => {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type: "audio/wav" }));
  const options = { dataTransfer: data, bubbles: true, cancelable: true };
  document.getElementById("disc").dispatchEvent(new DragEvent("dragover", options));
  const hint = !document.getElementById("drop-hint").hidden;
  document.getElementById("disc").dispatchEvent(new DragEvent("drop", options));
  return hint;
}"""


def drop(page: ExplorerPage, content: bytes, name: str) -> None:
    """Drops a file on the map."""
    import base64

    assert page.evaluate(_DROP, [base64.b64encode(content).decode(), name])


def download(page: ExplorerPage, selector: str, path: Path) -> Path:
    with page.page.expect_download() as waiting:
        page.page.locator(selector).click()
    target = path / waiting.value.suggested_filename
    waiting.value.save_as(target)
    return target


def clipboard(page: ExplorerPage) -> str:
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


@pytest.mark.shared_page
def test_a_note_downloaded_and_dropped_on_the_map_lies_where_it_came_from(page: Any, tmp_path: Path) -> None:
    x, y = page.instrument("Oboe")
    page.click(x, y)
    file = download(page, "#download", tmp_path)
    assert file.suffix == ".wav"
    with soundfile.SoundFile(file) as sound:
        assert (sound.samplerate, sound.subtype) == (48_000, "PCM_24")
        assert sound.frames > 48_000
    page.click(0.5, -0.5)
    drop(page, file.read_bytes(), file.name)
    page.until("timbrel.disc.located")
    found = page.evaluate("timbrel.disc.located")
    assert np.hypot(found["x"] - x, found["y"] - y) < 0.15
    assert "Oboe" in page.page.locator("#messages").inner_text()
    assert page.state()["x"] == pytest.approx(found["x"], abs=1e-3)
    page.until("timbrel.player.current?.soundedAt")


@pytest.mark.shared_page
def test_a_file_that_is_no_recording_is_refused_in_words(page: Any) -> None:
    drop(page, b"not a sound" * 100, "notes.txt")
    message = page.page.locator(".message[data-kind=bad]")
    message.wait_for()
    assert message.inner_text().startswith("notes.txt: ")
    assert page.evaluate("timbrel.disc.located") is None
    page.faults[:] = [fault for fault in page.faults if "status of 4" not in fault]  # the refusal itself


_RECORD_AS_A_PHONE = """async () => {
  const context = new AudioContext();
  const tone = new OscillatorNode(context, { type: "sawtooth", frequency: 220 });
  const out = context.createMediaStreamDestination();
  tone.connect(out);
  tone.start();
  const recorder = new MediaRecorder(out.stream, { mimeType: "audio/webm" });
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  // So much of the sound card's time, which is longer where other work holds it up.
  for (const end = context.currentTime + 0.6; context.currentTime < end; )
    await new Promise((resolve) => setTimeout(resolve, 20));
  await new Promise((resolve) => {
    recorder.onstop = resolve;
    recorder.stop();
  });
  await context.close();
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  return btoa(Array.from(bytes, (each) => String.fromCharCode(each)).join(""));
}"""


@pytest.mark.shared_page
def test_a_recording_that_the_browser_alone_can_read_is_located(page: Any) -> None:
    import base64

    content = base64.b64decode(page.evaluate(_RECORD_AS_A_PHONE))
    with pytest.raises(soundfile.SoundFileError):
        soundfile.info(io.BytesIO(content))
    asked: list[bytes] = []
    page.page.on("request", lambda each: "locate" in each.url and asked.append(each.post_data_buffer))
    drop(page, content, "memo.webm")
    page.page.locator(".message", has_text="memo.webm: nearest are").wait_for()
    assert asked[0] == content and len(asked) == 2
    samples, rate = soundfile.read(io.BytesIO(asked[1]))
    assert rate == 48_000 and len(samples) > 0.2 * rate and np.abs(samples).max() > 0.1
    page.faults[:] = [fault for fault in page.faults if "status of 400" not in fault]  # the first try


@pytest.mark.shared_page
def test_the_recording_that_was_dropped_last_is_the_one_that_is_found(page: Any) -> None:
    held: list[Any] = []
    found = {"near": True, "nearest": [{"instrument": "Oboe", "share": 1.0}]}

    def answer(route: Any) -> None:
        held.append(route)
        if len(held) == 2:
            route.fulfill(json={"x": -0.5, "y": -0.5, **found})

    page.page.route("**/api/locate", answer)
    drop(page, b"a long one", "first.wav")
    page.page.locator(".message", has_text="Listening to first.wav").wait_for()
    drop(page, b"a short one", "second.wav")
    page.page.locator(".message", has_text="second.wav: nearest are Oboe").wait_for()
    with contextlib.suppress(Exception):  # the page may have given it up
        held[0].fulfill(json={"x": 0.5, "y": 0.5, **found})
    page.page.wait_for_timeout(200)
    assert (page.state()["x"], page.evaluate("timbrel.disc.located.x")) == (-0.5, -0.5)
    words = page.page.locator("#messages").inner_text()
    assert "first.wav" not in words and "Listening" not in words


@pytest.mark.shared_page
def test_a_recording_that_is_a_byte_too_large_is_told_how_large_one_may_be(page: Any, tmp_path: Path) -> None:
    (tmp_path / "long.wav").write_bytes(bytes(32 * 2**20 + 1))
    page.page.set_input_files("#recording", tmp_path / "long.wav")
    page.page.locator(".message", has_text="long.wav is larger than the 32 MiB").wait_for()


def drop_from_disk(page: Any, *paths: Path) -> None:
    """Drops files or folders on the map, as the system does."""
    session = page.page.context.new_cdp_session(page.page)
    left, top = page.place(0.1, 0.1)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": left, "y": top, "data": data})


@pytest.mark.shared_page
def test_of_several_recordings_the_one_that_is_located_is_named(page: Any, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.wav" for name in ("first", "second")]
    for path in paths:
        path.write_bytes(b"a sound")
    found = {"x": 0.5, "y": 0.5, "near": True, "nearest": [{"instrument": "Oboe", "share": 1.0}]}
    page.page.route("**/api/locate", lambda route: route.fulfill(json=found))
    drop_from_disk(page, *paths)
    page.page.locator(".message", has_text="first.wav: nearest are Oboe").wait_for()
    page.until_said("One recording at a time: of these, first.wav is located.")


@pytest.mark.shared_page
def test_a_folder_is_no_recording(page: Any, tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    drop_from_disk(page, tmp_path / "samples")
    page.page.locator(".message", has_text="samples cannot be read: is it a folder").wait_for()
    assert page.page.locator(".message").count() == 1


def test_an_instrument_is_built_saved_and_found_whole(page: Any, tmp_path: Path) -> None:
    from timbrel.library.verify import verify_library

    page.click(*page.instrument("Clarinet"))
    page.evaluate("timbrel.state.set({ t: 0.55 })")
    page.page.locator("#instrument-open").click()
    form = page.page.locator("#instrument-form")
    for name, value in {
        "low": "C4",
        "high": "e4",
        "step": "4",
        "velocities": "100",
        "seconds": "0.6",
        "takes": "2",
    }.items():
        form.locator(f"[name={name}]").fill(value)
    form.get_by_text("SoundFont").click()
    form.get_by_text("Loops").click()
    assert "C4 to E4: 4 notes" in page.page.locator("#instrument-count").inner_text()
    # Whatever becomes of it meanwhile, the page hears that it is being built, until it looks anew.
    told = {"state": "rendering", "n_done": 1, "n_notes": 4}
    page.page.route("**/api/instruments/*", lambda route: route.fulfill(json=told))
    form.locator("button[type=submit]").click()
    page.page.locator("#job").wait_for()
    page.page.locator("#instrument-open").click()  # another one is not begun over it
    page.until_said("Clarinet is being built")
    assert page.page.locator("#instrument").is_hidden()
    page.page.unroute_all()
    page.page.reload()  # and it goes on
    page.page.locator("#job-file").wait_for(timeout=240_000)
    assert page.page.locator("#job-words").inner_text() == "Clarinet: ready, 4 notes"
    page.page.locator("#instrument-open").click()  # another one would take its link
    page.until_said("Clarinet is ready: save it, or close it")
    assert page.page.locator("#instrument").is_hidden()
    archive = download(page, "#job-file", tmp_path)
    page.until("JSON.parse(sessionStorage['timbrel.job']).saved")
    page.page.locator("#instrument-open").click()
    assert page.page.locator("#instrument").is_visible()
    page.page.locator("#instrument-close").click()
    with zipfile.ZipFile(archive) as content:
        content.extractall(tmp_path / "instrument")
    [folder] = (tmp_path / "instrument").iterdir()
    assert {".sfz", ".sf2", ".dspreset"} <= {path.suffix for path in folder.iterdir()}
    assert len(list((folder / "samples").rglob("*.wav"))) == 4
    notes = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    assert [note["temperature"] for note in notes] == [0.55] * 4
    report = verify_library(folder, scale=False, show_progress=False)
    assert report.passed and report.n_looped == 0, report.to_text()
    job = "/api/instruments/" + page.evaluate("JSON.parse(sessionStorage['timbrel.job']).id")
    page.evaluate("async (job) => (await fetch(job, { method: 'DELETE' })).status", job)
    page.page.locator("#job-file").click()
    page.page.locator(".message", has_text="Clarinet: there is no such instrument, or no more").wait_for()
    assert page.page.locator("#job").is_hidden()
    page.faults[:] = [fault for fault in page.faults if "status of 404" not in fault]  # the answer itself


@pytest.mark.shared_page
def test_an_instrument_being_built_can_be_cancelled(page: Any) -> None:
    page.page.locator("#instrument-open").click()
    page.page.locator("#instrument-form [name=takes]").fill("9")  # 243 notes: none is ready soon
    page.page.locator("#instrument-form button[type=submit]").click()
    page.page.locator("#job-cancel").click()
    page.page.locator("#job").wait_for(state="hidden")
    page.until_said("Cancelled")
    assert page.evaluate("sessionStorage['timbrel.job']") == "null"


@pytest.mark.shared_page
def test_the_button_that_cancels_stays_where_it_is(page: Any) -> None:
    page.page.locator("#instrument-open").click()
    page.page.locator("#instrument-form [name=takes]").fill("9")
    page.page.locator("#instrument-form button[type=submit]").click()
    cancel = page.page.locator("#job-cancel")
    cancel.wait_for()
    # At one moment: neither news nor scrolling comes between.
    tops = page.evaluate("""[
      "Reed: packing",
      "Clarinet Reed and Supersaw: 3 of 243 notes, 123 s left",
    ].map((words) => {
      document.getElementById("job-words").textContent = words;
      return document.getElementById("job-cancel").getBoundingClientRect().top;
    })""")
    cancel.click()
    assert tops[0] == tops[1]  # one line of words, and two


def test_an_instrument_outlives_an_explorer_that_does_not_answer_for_a_while(page: Any) -> None:
    told = {"id": "one", "state": "rendering", "n_done": 1, "n_notes": 4}
    page.page.route("**/api/instruments", lambda route: route.fulfill(json=told))
    page.page.route("**/api/instruments/one", lambda route: route.abort())
    page.page.locator("#instrument-open").click()
    page.page.clock.install()
    page.page.locator("#instrument-form button[type=submit]").click()
    page.page.locator("#job").wait_for()
    for _ in range(30):
        with page.page.expect_event("requestfailed"):
            page.page.clock.run_for(500)
    assert "waiting for its turn" in page.page.locator("#job-words").inner_text()
    page.page.locator("#job-cancel").click()  # it is not said to be cancelled where nobody heard of it
    page.page.locator(".message", has_text="The explorer does not answer").wait_for()
    # In front of the one before: between that one's end and this one the page might ask the explorer itself.
    page.page.route("**/api/instruments/one", lambda route: route.fulfill(json={**told, "n_done": 2}))

    def words_later() -> str:
        page.page.clock.run_for(500)
        return str(page.page.locator("#job-words").inner_text())

    wait_for(lambda: "2 of 4 notes" in words_later(), "news of the instrument", seen=words_later)
    page.page.locator("#job-cancel").click()
    page.until_said("Cancelled")
    assert page.page.locator("#job").is_hidden()
    page.faults[:] = [fault for fault in page.faults if "ERR_FAILED" not in fault]  # what was not answered


@pytest.mark.shared_page
def test_an_instrument_that_failed_is_said_to_have(page: Any) -> None:
    told = {"id": "one", "state": "failed", "n_done": 1, "n_notes": 4, "error": "the disk is full"}
    page.page.route("**/api/instruments", lambda route: route.fulfill(json=told))
    page.page.route("**/api/instruments/one", lambda route: route.fulfill(json=told))
    page.page.locator("#instrument-open").click()
    page.page.locator("#instrument-form input[name=name]").fill("Reed")
    page.page.locator("#instrument-form button[type=submit]").click()
    page.page.locator(".message[data-kind=bad]", has_text="Reed: the disk is full").wait_for()


def test_an_instrument_that_the_explorer_knows_no_more_is_forgotten_when_the_page_is_loaded(
    page: Any,
) -> None:
    page.evaluate(
        "sessionStorage['timbrel.job'] = JSON.stringify({ id: 'gone', title: 'Oboe', notes: 4 }); null"
    )
    page.page.reload()
    page.until("sessionStorage['timbrel.job'] === 'null'")
    assert page.page.locator("#job").is_hidden() and page.page.locator(".message").count() == 0
    page.faults[:] = [fault for fault in page.faults if "status of 404" not in fault]  # the answer itself


def test_wrong_ranges_are_named_before_anything_is_asked(page: Any) -> None:
    page.page.locator("#instrument-open").click()
    form = page.page.locator("#instrument-form")
    form.locator("[name=low]").fill("H4")
    assert "A1 to C7" in form.locator("[name=low]").evaluate("(input) => input.validationMessage")
    form.locator("[name=low]").fill("Bb2")
    form.locator("[name=velocities]").fill("40, 200")
    form.locator("button[type=submit]").click()
    assert page.page.locator("#instrument").get_attribute("open") is not None
    assert "1 to 127" in form.locator("[name=velocities]").evaluate("(input) => input.validationMessage")
    form.locator("[name=velocities]").fill("1 2 3 4 5 6 7 8 9 10")
    form.locator("[name=step]").fill("1")
    assert page.page.locator("#instrument-count").inner_text().endswith("2 to C5: 270 notes")
    assert form.locator("[name=high]").evaluate("(input) => input.validationMessage") == (
        "270 notes; 256 at most"
    )
    for empty in ("0", ""):
        form.locator("[name=step]").fill(empty)
        assert page.page.locator("#instrument-count").inner_text() == ""
    form.locator("[name=step]").fill("12")
    page.page.route(
        "**/api/instruments",
        lambda route: route.fulfill(
            status=503, json={"error": {"code": "overloaded", "message": "8 instruments are being built"}}
        ),
    )
    form.locator("button[type=submit]").click()
    page.until("document.getElementById('instrument-count').textContent === '8 instruments are being built'")
    assert page.page.locator("#instrument").is_visible()
    page.faults[:] = [fault for fault in page.faults if "status of 503" not in fault]  # the refusal itself


@pytest.mark.parametrize(("pitch", "note"), [((24, 43), "G2"), ((80, 100), "G♯5")])
def test_a_bundle_of_low_or_of_high_notes_only_has_an_instrument_to_begin_with(
    unopened: Any, pitch: tuple[int, int], note: str
) -> None:
    page = unopened
    page.page.route(
        "**/api/model", lambda route: route.fulfill(json=route.fetch().json() | {"pitch": list(pitch)})
    )
    page.open()
    assert page.evaluate("timbrel.model.pitch") == list(pitch)
    page.page.locator("#instrument-open").click()
    assert page.evaluate("document.getElementById('instrument-form').checkValidity()")
    assert page.page.locator("#instrument-count").inner_text() == f"{note} to {note}: 3 notes"


def test_the_python_and_the_command_make_exactly_what_is_downloaded(open_page: Any, tmp_path: Path) -> None:
    page = open_page(
        "#x=-0.31&y=0.42&p=62&v=90&s=0.4&seed=5&t=0.9", permissions=["clipboard-read", "clipboard-write"]
    )
    page.unlock()
    wanted, _ = soundfile.read(io.BytesIO(download(page, "#download", tmp_path).read_bytes()))
    page.page.locator("#copy-command").click()
    page.until_said("The command is copied.")
    copied = clipboard(page)
    assert '="-0.31,0.42" ' in copied, "PowerShell takes bare words apart at their commas"
    command = shlex.split(copied)
    assert command[0] == "timbrel"
    page.page.locator("#copy-python").click()
    page.until_said("The Python is copied.")
    program = clipboard(page).replace("note.wav", "again.wav")
    started = [
        subprocess.Popen([sys.executable, *own], cwd=tmp_path) for own in (["-m", *command], ["-c", program])
    ]
    assert [each.wait() for each in started] == [0, 0]
    for name in ("note.wav", "again.wav"):
        made, _ = soundfile.read(tmp_path / name)
        np.testing.assert_allclose(made, wanted, atol=2e-4)


@pytest.mark.shared_page
def test_the_python_and_the_command_name_the_bundle_that_the_explorer_was_given(page: Any) -> None:
    def copied(server: str, bundle: str | None) -> tuple[str, str]:
        program, command = page.evaluate(
            """async (own) => {
              const { pythonOf, commandOf } = await import("/static/note_request.js");
              return [pythonOf(timbrel.player.request(), own), commandOf(timbrel.player.request(), own)];
            }""",
            {"server": server, "bundle": bundle},
        )
        return program, command

    folder = "/home/me/it's mine"
    program, command = copied("private", folder)
    assert f"timbrel.Client(bundle={json.dumps(folder)})" in program
    words = shlex.split(command)
    assert words[words.index("--bundle") + 1] == folder
    # Windows' cmd takes single quotes for a part of the name, and zsh brackets for a pattern.
    assert ' --bundle "C:\\my sounds" ' in copied("private", "C:\\my sounds")[1]
    assert ' --server "[::1]:50051" ' in copied("[::1]:50051", None)[1]
    assert " --server studio:50051 " in copied("studio:50051", None)[1]
    assert page.evaluate("timbrel.model.bundle") is None  # of a server that was there already
