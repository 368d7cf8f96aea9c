"""Whether a library is whole, in tune and playable, found out from its files alone."""

from timbrel.library.verify.check import verify_library
from timbrel.library.verify.report import Fault, VerifyReport

__all__ = ["Fault", "VerifyReport", "verify_library"]
