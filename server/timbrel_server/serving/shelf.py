"""The bundles that are being served, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timbrel_server.errors import BundleMismatchError, NotFoundError, shortened
from timbrel_server.serving.served_bundle import ServedBundle


class Shelf:
    """Where requests find their bundle. The first is meant where a request names none.

    What stands on it may be replaced between two look-ups: a call looks its bundle up once and keeps to it.
    For one event loop.
    """

    def __init__(self, bundles: Sequence[ServedBundle]) -> None:
        """
        Args:
            bundles: at least one, of different names.
        """
        self._by_name = {served.name: served for served in bundles}
        if not bundles or len(self._by_name) < len(bundles):
            raise ValueError("a shelf wants bundles of different names, at least one")

    def __iter__(self) -> Iterator[ServedBundle]:
        return iter(tuple(self._by_name.values()))

    def find(self, name: str = "", bundle_hash: str = "") -> ServedBundle:
        """The bundle of this name, or the first.

        Raises:
            NotFoundError: none has that name.
            BundleMismatchError: it has another hash than expected.
        """
        first = next(iter(self._by_name.values()))
        served = self._by_name.get(name) if name else first
        if served is None:
            names = ", ".join(repr(known) for known in self._by_name)
            raise NotFoundError(f"there is no bundle {shortened(name)!r}; {names} is being served")
        if bundle_hash not in ("", served.manifest.bundle_hash):
            raise BundleMismatchError(expected=bundle_hash, served=served.manifest.bundle_hash)
        return served

    def replace(self, served: ServedBundle) -> ServedBundle:
        """Puts a bundle in the place of the one of its name, which is returned: it may still be in use."""
        old = self._by_name[served.name]
        self._by_name[served.name] = served
        return old
