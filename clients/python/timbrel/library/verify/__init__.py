"""The check of a library: whether it is whole, in tune and playable, found out from its files alone."""

from timbrel.library.verify.check import verify_library
from timbrel.library.verify.report import LibraryFault, VerifyReport

__all__ = ["LibraryFault", "VerifyReport", "verify_library"]
