"""Sound libraries: whole instruments, rendered for samplers, and checked.

job = LibraryJob(...)                       # what to render
build_library(client, job, "lib")           # again after any interruption: only what is missing
verify_library("lib").faults                # [] where all is well
"""

from timbrel.library.finish.build import BuildOptions, build_library
from timbrel.library.finish.summary import BuildSummary
from timbrel.library.plan.folder import DiskFullError, LockedError, OtherJobError
from timbrel.library.plan.formats import SAMPLE_FORMATS
from timbrel.library.plan.job import LibraryJob, ModelIdentity
from timbrel.library.plan.voice import Voice
from timbrel.library.verify import LibraryFault, VerifyReport, verify_library
from timbrel_bundle.request_fields import SamplingSettings

__all__ = [
    "SAMPLE_FORMATS",
    "BuildOptions",
    "BuildSummary",
    "DiskFullError",
    "LibraryFault",
    "LibraryJob",
    "LockedError",
    "ModelIdentity",
    "OtherJobError",
    "SamplingSettings",
    "VerifyReport",
    "Voice",
    "build_library",
    "verify_library",
]
