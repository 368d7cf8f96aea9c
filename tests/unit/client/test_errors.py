from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

import timbrel
from timbrel import errors
from timbrel_bundle.errors import BundleError, RuntimeMissingError

HAS_GPU_RUNTIME = errors._has_gpu_runtime
"""As it is outside of tests; see conftest.py."""


def test_every_error_has_the_one_base_and_stands_in_the_tree() -> None:
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == errors.__name__
    ]
    assert len(kinds) == 11
    for kind in kinds:
        assert issubclass(kind, errors.TimbrelError)
        assert kind.__name__ in (errors.__doc__ or "")
        assert getattr(timbrel, kind.__name__) is kind


def test_what_timbrel_exports_is_what_it_names() -> None:
    public = {
        name
        for name, value in vars(timbrel).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(timbrel.__all__)


def test_a_missing_extra_says_what_to_install() -> None:
    error = errors.MissingExtraError("decoding", "cpu")
    assert 'pip install "timbrel[cpu]"' in str(error)  # cmd.exe knows no other quotes


def test_who_has_the_runtime_for_a_gpu_is_told_to_install_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one's files would overwrite the other's, without a word."""
    monkeypatch.setattr(errors, "_has_gpu_runtime", HAS_GPU_RUNTIME)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "onnxruntime_gpu-1.31.1.dist-info").mkdir()
    (tmp_path / "onnxruntime_gpu-1.31.1.dist-info" / "METADATA").write_text("Name: onnxruntime-gpu\n")
    assert errors.MissingExtraError("a private server", "cpu,server").extra == "gpu,server"


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequestError.of([errors.FieldViolation("pitch", "must be 36..96, got 12")]),
        errors.OverloadedError("the queue is full", retry_after_seconds=1.5),
        errors.ServerError("internal error", error_id="1f2e3d4c5b6a"),
        errors.MissingExtraError("decoding", "cpu"),
        BundleError("manifest.json", "is missing"),
        RuntimeMissingError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_leaves_a_worker_process_as_it_was(error: Exception) -> None:
    """multiprocessing pickles it; a pool waits for ever where it cannot be unpickled."""
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error) and str(arrived) == str(error) and vars(arrived) == vars(error)


def test_the_time_allowed_is_told_in_plain_numbers() -> None:
    told = [errors.within_allowed(seconds).split()[-3] for seconds in (0.25, 2.5, 119.98, 1800.0, 86_400.0)]
    assert told == ["0.25", "2.5", "120", "1800", "86400"] and errors.within_allowed(None) == ""
