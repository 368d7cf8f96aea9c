"""The whole command on the tiny bundle: a real server, real sessions, real measurements."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from timbrel import progress
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import save_manifest
from timbrel_posttraining.evaluate import command, estimates
from timbrel_posttraining.evaluate.measure import two_sample
from timbrel_posttraining.evaluate.report import BARS
from timbrel_posttraining.finetune.run import longer_config
from timbrel_posttraining.model_card import command as card_command
from timbrel_posttraining.model_card.card import model_card, table
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_training.codec.timbrel_notes.codec import TimbrelNotes
from timbrel_training.errors import TrainingError
from timbrel_training.notes.dataset import NoteDataset

COUNT = 12


def evaluate(bundle: Path, notes: Path, out: Path, *options: str) -> dict[str, Any]:
    """Runs the command; returns report.json."""
    parser = argparse.ArgumentParser()
    command.configure(parser)
    given = [
        "--bundle",
        str(bundle),
        "--notes",
        str(notes),
        "--out",
        str(out),
        "--count",
        str(COUNT),
        "--jobs",
        "1",
    ]
    assert command.run(parser.parse_args([*given, *options])) == 0
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.fixture(scope="module", autouse=True)
def in_haste() -> Iterator[None]:
    """The width of an interval is test_estimates.py's business, how well the two-sample test tells is
    test_two_sample.py's, and how true codes are is test_bundles.py's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimates, "N_RESAMPLES", 100)
        patch.setattr(two_sample, "N_REPEATS", 1)
        patch.setattr(TimbrelNotes, "search_steps", 2)
        yield


@pytest.fixture(scope="module")
def judged(tiny_bundle: Path, library_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished evaluation."""
    out = tmp_path_factory.mktemp("judged")
    evaluate(tiny_bundle, library_dir, out)
    return out


@pytest.mark.slow
def test_the_report_holds_every_figure_that_has_a_bar(judged: Path, tiny_bundle: Path) -> None:
    report = json.loads((judged / "report.json").read_text())
    manifest = json.loads((tiny_bundle / "manifest.json").read_text())
    assert report["bundle_hash"] == manifest["bundle_hash"]
    assert report["settings"]["count"] == COUNT
    assert set(BARS) <= set(report["figures"])
    for name in BARS:
        figure = report["figures"][name]
        assert figure["met"] in (True, False), name
        assert figure["n"] > 0, name
        if figure["low"] is not None:  # a share of shares has no interval where both may be 0
            assert figure["low"] <= figure["value"] <= figure["high"], name


@pytest.mark.slow
def test_a_card_tells_what_was_measured(judged: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    assert write_card(bundle, judged) == 0
    card = (bundle / "MODEL_CARD.md").read_text()
    report = json.loads((judged / "report.json").read_text())
    for figure in report["figures"].values():
        assert figure["label"] in card
    missed = [figure for figure in report["figures"].values() if figure["met"] is False]
    assert missed and card.count("**missed**") == len(missed)
    assert ElementTree.parse(bundle / "timbre_map.svg").getroot().tag.endswith("svg")
    # The card is no part of the bundle's name, and the bundle still opens.
    assert Bundle.open(bundle).manifest.bundle_hash == report["bundle_hash"]


@pytest.mark.slow
def test_a_card_says_how_to_come_to_such_a_bundle(judged: Path, tiny_bundle: Path) -> None:
    bundle, report = Bundle.open(tiny_bundle), json.loads((judged / "report.json").read_text())
    manifest = pb.Manifest()
    manifest.CopyFrom(bundle.manifest)
    manifest.training.config = "cpu"
    assert "make pretrain CONFIG=cpu\n" in model_card(manifest, bundle.timbre_map, report)
    manifest.training.config = "cpu, fine-tuned from timbrel-band 0123456789ab on mine"
    card = model_card(manifest, bundle.timbre_map, report)
    assert "CONFIG=" not in card and "timbrel train unpack --bundle BUNDLE" in card


@pytest.mark.slow
def test_a_card_says_why_its_sources_have_more_instruments_than_its_map(
    judged: Path, tiny_bundle: Path
) -> None:
    bundle, report = Bundle.open(tiny_bundle), json.loads((judged / "report.json").read_text())
    manifest = pb.Manifest()
    manifest.CopyFrom(bundle.manifest)
    n_named, words = len(bundle.timbre_map.points), "instruments, of which the map names"
    manifest.training.sources[0].n_instruments = n_named
    assert words not in model_card(manifest, bundle.timbre_map, report)
    manifest.training.sources.add(name="folder others", n_instruments=5)
    card = model_card(manifest, bundle.timbre_map, report)
    assert f"That is {n_named + 5} {words} {n_named}: " in card


def test_a_name_with_a_bar_is_one_cell_of_a_cards_table() -> None:
    lines = list(table(("source", "notes"), [("folder bass|pick", 6)]))
    assert lines == ["| source | notes |", "|---|---|", "| folder bass&#124;pick | 6 |"]


@pytest.mark.slow
def test_a_card_says_no_more_than_the_manifest_does(judged: Path, tiny_bundle: Path) -> None:
    bundle, report = Bundle.open(tiny_bundle), json.loads((judged / "report.json").read_text())
    manifest = pb.Manifest()
    manifest.CopyFrom(bundle.manifest)

    def card() -> str:
        return model_card(manifest, bundle.timbre_map, report)

    manifest.git_revision = f"{'0123456789' * 4}-dirty"
    assert "It was exported from revision `012345678901-dirty`." in card()
    manifest.git_revision = ""
    assert "revision" not in card().partition("## Make it again")[2] and "  " not in card().splitlines()[-1]
    manifest.ranges.pitch_min, manifest.ranges.pitch_max, manifest.ranges.seconds_max = 48, 60, 3.0
    manifest.model.hold_frames = 0
    assert "| pitches | 25 | 13 |" in card() and "| held for up to 3 s, then a release" in card()
    manifest.model.hold_frames, manifest.ranges.seconds_max = 60, 600.0
    assert "| held for as long as asked, then a release" in card()


@pytest.mark.slow
def test_a_card_of_a_fine_tuned_bundle_names_fine_tuning(judged: Path, tiny_bundle: Path) -> None:
    bundle, report = Bundle.open(tiny_bundle), json.loads((judged / "report.json").read_text())
    manifest = pb.Manifest()
    manifest.CopyFrom(bundle.manifest)
    once = longer_config("cpu", "fine-tuned from timbrel 0123456789ab by config cpu")
    for config, base in (
        (once, "timbrel 0123456789ab"),
        (longer_config(once, "fine-tuned from mine 1123456789ab by config cpu"), "mine 1123456789ab"),
    ):
        manifest.training.config = config
        card = model_card(manifest, bundle.timbre_map, report).partition("## Make it again")[2]
        assert "timbrel train finetune --from-bundle BASE --source folder:SAMPLES --config cpu --out" in card
        assert f"BASE, which is {base}, samples" in card and config in card


@pytest.mark.slow
def test_a_card_counts_the_bars_that_were_not_measured(judged: Path, tiny_bundle: Path) -> None:
    bundle, report = Bundle.open(tiny_bundle), json.loads((judged / "report.json").read_text())
    barred = [figure for figure in report["figures"].values() if figure["bar"] is not None]
    assert len(barred) > 2
    for figure in barred:
        figure["met"] = True
    barred[0].update(value=None, low=None, high=None, met=None)
    card = model_card(bundle.manifest, bundle.timbre_map, report)
    assert f"{len(barred) - 1} of {len(barred)} bars are met." in card and "Missed:" not in card
    assert f", {barred[0]['label']}: not measured; the bar is" in card.partition("Not measured:")[2]


@pytest.mark.slow
def test_a_card_is_refused_for_another_bundle(judged: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    report = tmp_path / "judged"
    report.mkdir()
    (report / "map.svg").write_text("<svg/>")
    (report / "report.json").write_text(json.dumps({"bundle_hash": "0" * 64}))
    with pytest.raises(
        TrainingError, match=f"judged bundle 000000000000, this one is {manifest['bundle_hash'][:12]}"
    ):
        write_card(bundle, report)
    with pytest.raises(TrainingError, match="holds no finished evaluation"):
        write_card(bundle, tmp_path)
    assert not (bundle / "MODEL_CARD.md").exists()


def write_card(bundle: Path, evaluation: Path) -> int:
    """Runs `timbrel train card`."""
    parser = argparse.ArgumentParser()
    card_command.configure(parser)
    return card_command.run(parser.parse_args(["--bundle", str(bundle), "--evaluation", str(evaluation)]))


@pytest.mark.slow
def test_the_figures_of_the_same_notes_fit_together(judged: Path) -> None:
    """The tiny bundle's codec has learnt nothing of these notes: what it plays is unlike them."""
    figures = json.loads((judged / "report.json").read_text())["figures"]
    value = {name: figure["value"] for name, figure in figures.items()}
    assert value["trained.in_tune.source"] >= 0.75
    assert value["trained.in_tune.lost"] == pytest.approx(
        value["trained.in_tune.source"] - value["trained.in_tune.generated"]
    )
    assert {figures[f"between.{name}"]["n"] for name in ("in_tune", "octave_error", "truncated")} == {COUNT}
    assert figures["truth.log_mel.reconstruction"]["met"] is False
    assert figures["bundle.megabytes"]["met"] is True


@pytest.mark.slow
def test_the_page_needs_no_other_file(judged: Path) -> None:
    page = (judged / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert (
        page.count("data:image/png;base64,") >= 3 * 4
    )  # of each family source, reconstruction and generated
    assert "<svg" in page and ">missed<" in page and ">met<" in page
    for instrument in ("Grand Piano", "Violin", "Flute", "Trumpet"):
        assert instrument in page


@pytest.mark.slow
def test_a_page_plays_a_few_notes_in_all_their_forms(judged: Path) -> None:
    page = (judged / "listening.html").read_text()
    notes = json.loads(re.findall(r'type="application/json">(.*)</script>', page)[0])["notes"]
    assert notes and all(set(note["audio"]) == {"source", "sampler", "codec", "written"} for note in notes)
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)


@pytest.mark.slow
def test_a_second_run_makes_only_what_is_missing(judged: Path, tiny_bundle: Path, library_dir: Path) -> None:
    """Two notes are lost, with all that was measured of them; two processes make them anew."""
    before = json.loads((judged / "report.json").read_text())
    kept = times_of(judged)
    lost = [path.name.split(".")[0] for path in kept if path.name.endswith(".codes.npz")][:2]
    gone = {path for path in kept if path.name.split(".")[0] in lost}
    for path in gone:
        path.unlink()
    assert (
        evaluate(tiny_bundle, library_dir, judged, "--jobs", "2") == before
    )  # the same seeds, the same notes
    again = times_of(judged)
    assert again.keys() == kept.keys()
    assert {path for path in kept if again[path] != kept[path]} == gone


def times_of(judged: Path) -> dict[Path, int]:
    """When each file in the cache was written."""
    return {path: path.stat().st_mtime_ns for path in sorted((judged / "cache").rglob("*")) if path.is_file()}


def test_a_count_of_nothing_is_refused(tiny_bundle: Path, library_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--count must be at least 1"):
        evaluate(tiny_bundle, library_dir, tmp_path, "--count", "0")


def test_notes_that_a_bundle_did_not_learn_from_are_told_of(
    tiny_bundle: Path, library_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(bundle: Path) -> str:
        with pytest.raises(TrainingError, match="--section none"):
            evaluate(bundle, library_dir, tmp_path / "judged", "--section", "none")
        return capsys.readouterr().err

    [source] = NoteDataset(library_dir).sources
    assert f"the bundle did not learn from {source}, by its manifest" in said(tiny_bundle)
    own = shutil.copytree(tiny_bundle, tmp_path / "own")
    manifest = Bundle.open(own).manifest
    manifest.training.sources.add(name=source)
    save_manifest(manifest, own / "manifest.json")
    assert said(own) == ""


def test_a_log_is_told_how_far_it_is(
    tiny_bundle: Path,
    library_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    parser = argparse.ArgumentParser()
    command.configure(parser)
    given = ["--bundle", tiny_bundle, "--notes", library_dir, "--out", tmp_path, "--section", "bundle"]
    assert command.run(parser.parse_args(list(map(str, given)))) == 0
    assert "judging: 1/1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_section_alone_prints_its_figures_and_writes_no_report(
    judged: Path,
    tiny_bundle: Path,
    library_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--bundle", tiny_bundle, "--notes", library_dir, "--count", COUNT, "--jobs", 1]
    parser = argparse.ArgumentParser()
    command.configure(parser)
    chosen = [*given, "--out", tmp_path, "--section", "locate"]
    assert command.run(parser.parse_args(list(map(str, chosen)))) == 0
    printed = capsys.readouterr().out
    figures = json.loads((judged / "report.json").read_text())["figures"]
    whole = {name: figure for name, figure in figures.items() if name.startswith("locate.")}
    found = {line.split()[0]: line.split()[1] for line in printed.splitlines() if line.startswith("locate.")}
    assert found.keys() == whole.keys()
    for name, figure in whole.items():
        scale, digits = (100, 1) if figure["unit"] == "%" else (1, 3)
        assert float(found[name]) == pytest.approx(scale * figure["value"], abs=0.6 * 10**-digits), name
    assert "Overlaps" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    with pytest.raises(
        TrainingError, match="--section loudness: there is none of that name; choose of two_sample,"
    ):
        command.run(parser.parse_args(list(map(str, [*chosen, "--section", "loudness"]))))
