from __future__ import annotations

import inspect

import timbrel
from timbrel import errors


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
    assert "pip install 'timbrel[cpu]'" in str(error)
