"""Fixtures of every test that trains: synthetic notes, tokenised and as a dataset of audio."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from training_notes import library_dir, library_table, table

__all__ = ["library_dir", "library_table", "table"]


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """A block in which no file takes more than so many bytes, which ends as on a full disk."""

    @contextmanager
    def limited(n_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
