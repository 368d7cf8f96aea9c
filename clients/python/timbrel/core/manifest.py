"""Whether a server's manifest is one that this client can work with."""

from __future__ import annotations

from timbrel.errors import BundleMismatchError, ServerError
from timbrel_bundle.layout import FORMAT_VERSION
from timbrel_bundle.manifest import manifest_faults
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb


def check_manifest(manifest: pb.Manifest) -> None:
    """
    Raises:
        BundleMismatchError: the bundle is of another format version than this client reads.
        ServerError: the manifest contradicts itself; its hash not being that of its files is such a case.
    """
    if manifest.format_version != FORMAT_VERSION:
        version = manifest.format_version
        raise BundleMismatchError(
            f"the server's bundle has format_version {version}, this timbrel reads {FORMAT_VERSION}"
        )
    for fault in manifest_faults(manifest):
        raise ServerError(f"the server's manifest {fault}")
