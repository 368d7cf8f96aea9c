"""Sound libraries: whole instruments, rendered for samplers, and checked.

>>> violin = next(each for each in client.timbre_map() if each.name == "Violin")
>>> job = LibraryJob(
...     ModelIdentity.of(client.model()),
...     voices=(Voice("Violin", "violin", violin.timbre, nearest="Violin", family=violin.family),),
...     pitches=(60, 67),
...     velocities=(100,),
...     round_robins=1,
...     seconds=0.5,
...     sampling=SamplingSettings(),  # what is not said is the server's default
... )
>>> build_library(client, job, "lib").n_notes  # again after any interruption: only what is missing
2
>>> verify_library("lib").faults
()
"""

from timbrel.library.finish.build import BuildOptions, build_library
from timbrel.library.finish.summary import BuildSummary
from timbrel.library.plan.folder import DiskFullError, LockedError, OtherJobError
from timbrel.library.plan.formats import SAMPLE_FORMATS
from timbrel.library.plan.job import LibraryJob, ModelIdentity
from timbrel.library.plan.voice import Hold, Voice
from timbrel.library.verify import LibraryFault, VerifyReport, verify_library
from timbrel_bundle.request_fields import SamplingSettings

__all__ = [
    "SAMPLE_FORMATS",
    "BuildOptions",
    "BuildSummary",
    "DiskFullError",
    "Hold",
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
