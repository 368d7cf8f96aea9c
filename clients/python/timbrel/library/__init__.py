"""Sound libraries: whole instruments, rendered for samplers, and checked.

job = LibraryJob(...)                       # what to render
build_library(client, job, "lib")           # again after any interruption: only what is missing
verify_library("lib").faults                # [] where all is well
"""

from timbrel.library.build import BuildOptions, DiskFullError, build_library
from timbrel.library.folder import OtherJobError
from timbrel.library.job import LibraryJob, SamplingChoice, Writer
from timbrel.library.lock import LockedError
from timbrel.library.summary import LibrarySummary
from timbrel.library.verify import Fault, VerifyReport, verify_library
from timbrel.library.voice import Voice

__all__ = [
    "BuildOptions",
    "DiskFullError",
    "Fault",
    "LibraryJob",
    "LibrarySummary",
    "LockedError",
    "OtherJobError",
    "SamplingChoice",
    "VerifyReport",
    "Voice",
    "Writer",
    "build_library",
    "verify_library",
]
