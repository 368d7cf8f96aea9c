"""A bundle's folder: its manifest, its timbre map, and sessions over its graphs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timbrel_bundle.errors import BundleError
from timbrel_bundle.files import sha256_file
from timbrel_bundle.graph_header import ExternalWeight, GraphHeader, parse_graph_header
from timbrel_bundle.layout import MANIFEST, TIMBRE_MAP, TIMBRE_REFERENCES
from timbrel_bundle.manifest import load_manifest
from timbrel_bundle.runtime import CPU, Provider, load_runtime, session_options
from timbrel_bundle.timbre_map import load_timbre_map
from timbrel_bundle.timbre_references import load_timbre_references
from timbrel_bundle.weights import load_weights, to_ort_values
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

if TYPE_CHECKING:
    import onnxruntime as ort

_WEIGHTS_IN_USE: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
"""The OrtValues that each session was given: they must live as long as the session does."""


class Bundle:
    """An open bundle. Opening reads the manifest only; graphs and weights are read when a session is made.

    A client's cache folder, which holds only the files it fetched, opens too: what is missing is an error
    once asked for. `require` asks for it at once.
    """

    def __init__(self, path: Path, manifest: pb.Manifest, verify: bool) -> None:
        """Use `Bundle.open`."""
        self.path = path
        self.manifest = manifest
        self._verify = verify
        self._files = {file.name: file for file in manifest.files}
        self._checked: set[str] = set()

    @classmethod
    def open(cls, path: Path | str, verify: bool = True) -> Bundle:
        """Opens a bundle's folder.

        `verify` compares every file present with the manifest's size and SHA-256, and files that come later
        when they are first asked for. Raises BundleError: no folder, no manifest, a manifest of another
        version, or a file that was altered.
        """
        path = Path(path)
        if not path.is_dir():
            fault = "is not a folder" if path.exists() else "there is no such folder"
            raise BundleError(path, fault, "name the folder that holds manifest.json")
        if not (path / MANIFEST).is_file():
            raise BundleError(path, f"holds no {MANIFEST}, so it is not a bundle", "name a bundle's folder")
        bundle = cls(path, load_manifest(path / MANIFEST), verify)
        for name in bundle._files:
            if (path / name).exists():
                bundle.file(name)
        return bundle

    def __contains__(self, name: str) -> bool:
        """Tells whether the manifest lists a file of this name."""
        return name in self._files

    def require(self, names: Iterable[str] | None = None) -> None:
        """Raises BundleError unless these files, by default all that the manifest lists, are there."""
        for name in self._files if names is None else names:
            self.file(name)

    def file(self, name: str) -> Path:
        """Path of a file that the manifest lists, checked against it. Raises BundleError: the manifest does
        not list it, or it is missing or altered."""
        path = self.path / name
        if name not in self._files:
            raise BundleError(path, f"the bundle {self.manifest.name!r} has no such file")
        if not path.is_file():
            raise BundleError(path, "the file is missing")
        if self._verify and name not in self._checked:
            _check_content(path, self._files[name])
            self._checked.add(name)
        return path

    @functools.cached_property
    def timbre_map(self) -> pb.TimbreMap:
        """The named points. Raises BundleError where timbre_map.json is missing or unreadable."""
        return load_timbre_map(self.file(TIMBRE_MAP))

    @functools.cached_property
    def timbre_references(self) -> pb.TimbreReferences | None:
        """By what instruments are recognised; None in an older bundle. Raises BundleError as `file` does."""
        if TIMBRE_REFERENCES not in self:
            return None
        instruments = [point.instrument for point in self.timbre_map.points]
        return load_timbre_references(self.file(TIMBRE_REFERENCES), instruments)

    def session(
        self,
        graph: str,
        providers: Sequence[Provider] = (CPU,),
        options: ort.SessionOptions | None = None,
        *,
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
    ) -> ort.InferenceSession:
        """A session over one of the bundle's graphs, its weights cast to what the graph computes in.

        Whether the session runs on the provider asked for is `runtime.provider_in_use`'s to tell.

        Args:
            graph: file name, of `layout`.
            providers: onnxruntime's names, as `runtime.resolve_provider` gives them, or with options.
            options: used for this one session: the weights are handed over in it.
            inputs, outputs: names that the graph must have.

        Raises:
            BundleError: the graph or its weights are missing or damaged, or the graph lacks one of the names.
            RuntimeMissingError: onnxruntime is not installed.
        """
        path = self.file(graph)
        data = path.read_bytes()
        try:
            header = parse_graph_header(data)
        except ValueError as error:
            raise BundleError(path, str(error)) from None
        _check_names(path, header, inputs, outputs)
        options = session_options() if options is None else options
        values = self._hand_over_weights(path, header.external_weights, options)
        try:
            # Otherwise some errors of a provider are printed, and the CPU silently takes its place.
            session = load_runtime().InferenceSession(
                data, options, providers=list(providers), enable_fallback=0
            )
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise BundleError(path, f"onnxruntime cannot load it ({error})") from None
        _WEIGHTS_IN_USE[session] = values
        return session

    def _hand_over_weights(
        self, graph: Path, weights: Sequence[ExternalWeight], options: ort.SessionOptions
    ) -> list[Any]:
        """Adds the graph's weights to `options`; returns what must be kept alive with the session."""
        kept: list[Any] = []
        for location in sorted({weight.location for weight in weights}):
            if location not in self._files:
                raise BundleError(graph, f"takes weights from {location!r}, which the manifest does not list")
            wanted = [weight for weight in weights if weight.location == location]
            values = to_ort_values(load_weights(self.file(location), wanted))
            try:
                options.add_external_initializers([weight.name for weight in wanted], values)
            except Exception as error:  # as above: of a name that comes twice, say
                raise BundleError(graph, f"onnxruntime does not take its weights ({error})") from None
            kept.extend(values)
        return kept


def _check_content(path: Path, listed: pb.BundleFile) -> None:
    try:
        size = path.stat().st_size
        digest = sha256_file(path) if size == listed.size else ""
    except OSError as error:
        raise BundleError(path, f"cannot be read ({error.strerror})", "check its permissions") from None
    if size < listed.size:
        raise BundleError(path, f"is cut short: {size} bytes of {listed.size}")
    if size > listed.size:
        raise BundleError(path, f"is too long: {size} bytes, the manifest says {listed.size}")
    if digest != listed.sha256:
        raise BundleError(
            path, f"was altered: SHA-256 {digest[:12]}..., the manifest says {listed.sha256[:12]}..."
        )


def _check_names(path: Path, header: GraphHeader, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    for kind, wanted, present in (("input", inputs, header.inputs), ("output", outputs, header.outputs)):
        if missing := [name for name in wanted if name not in present]:
            raise BundleError(path, f"the graph has no {kind} {', '.join(map(repr, missing))}")
