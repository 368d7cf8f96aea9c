"""A library whose making is killed again and again, beside one that was left in peace."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from note_proxy import AskedNote, NoteProxy
from server_process import server_environment
from waiting import wait_for

from timbrel.library.finish.manifest import read_rows
from timbrel_bundle.files import sha256_file

TIMBREL = Path(sys.executable).with_name("timbrel")
ENDINGS = (".wav", ".flac", ".sfz", ".dspreset", ".jsonl")


@dataclass
class KilledJob:
    """One job, in two folders."""

    folder: Path
    proxy: NoteProxy
    arguments: Sequence[str]
    """Of `timbrel library`, without --out."""

    def finish(self, name: str) -> dict[str, Any]:
        """Runs the job to its end; its summary."""
        done = subprocess.run(
            self._command(name), check=True, env=self._environment(), stdout=subprocess.PIPE
        )
        return dict(json.loads(done.stdout))

    def kill(self, name: str, chance: random.Random, n_notes: int) -> set[str]:
        """Starts the job and kills it at some moment; the keys that were there before.

        Moments are told by what has been written, so that a busy machine does not decide which they are.
        """
        before = self.kept(name)
        pattern, least = chance.choice(
            [
                ("*.npz", len(before) + chance.randint(1, max(1, (n_notes - len(before)) // 2))),
                ("*.npz", len(before) + 1),
                ("*.json", chance.randint(1, n_notes)),
                ("*.wav", chance.randint(1, n_notes // 2)),
            ]
        )
        process = subprocess.Popen(self._command(name), env=self._environment(), stdout=subprocess.DEVNULL)
        wait_for(
            lambda: process.poll() is not None or len(list((self.folder / name).rglob(pattern))) >= least,
            f"{least} files {pattern}",
            seconds=600,  # so many notes take a busy machine minutes
        )
        time.sleep(chance.random() * 0.05)  # so that it is not always the moment after a file was written
        process.send_signal(signal.SIGKILL)
        process.wait()
        return before

    def kept(self, name: str) -> set[str]:
        """Keys of the raw notes that are there, whole."""
        return {path.stem for path in (self.folder / name).rglob("*.npz") if not path.name.startswith(".")}

    def sounds(self, name: str) -> dict[str, str]:
        """Hash of every file that a sampler needs, and of the manifest."""
        folder = self.folder / name
        return {
            path.relative_to(folder).as_posix(): sha256_file(path)
            for path in folder.rglob("*")
            if path.suffix in ENDINGS
        }

    def notes_by_key(self, name: str) -> dict[str, AskedNote]:
        """What each key of a finished library stands for."""
        return {
            row.key: AskedNote((row.x, row.y), row.pitch, row.velocity, row.seed)
            for row in read_rows(self.folder / name / "manifest.jsonl")
        }

    def _command(self, name: str) -> list[str]:
        return [str(TIMBREL), "library", *self.arguments, "--json", "--out", str(self.folder / name)]

    def _environment(self) -> dict[str, str]:
        return server_environment(TIMBREL_SERVER=self.proxy.address, TIMBREL_CACHE=str(self.folder / "cache"))


def check_kills(job: KilledJob, n_notes: int, n_kills: int, seed: int) -> None:
    """The killed library ends as the undisturbed one, and no note that was kept is ever asked for again."""
    undisturbed = job.finish("undisturbed")
    assert undisturbed["n_notes"] == undisturbed["n_rendered"] == len(job.proxy.asked) == n_notes
    meaning = job.notes_by_key("undisturbed")
    chance = random.Random(seed)
    for _ in range(n_kills):
        job.proxy.forget()
        kept = job.kill("killed", chance, n_notes)
        again = {meaning[key] for key in kept} & set(job.proxy.asked)
        assert not again, f"asked for again: {sorted(again)[:3]}"
    kept = job.kept("killed")
    job.proxy.forget()
    summary = job.finish("killed")
    assert summary["n_rendered"] == len(job.proxy.asked) == n_notes - len(kept)
    assert not {meaning[key] for key in kept} & set(job.proxy.asked)
    assert job.kept("killed") == job.kept("undisturbed")
    assert job.sounds("killed") == job.sounds("undisturbed")
    assert not list((job.folder / "killed").rglob("*.tmp")), "what a kill left unfinished is swept up"
