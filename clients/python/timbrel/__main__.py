"""`python -m timbrel` is the command `timbrel`."""

import sys

from timbrel.cli import main

if __name__ == "__main__":
    sys.exit(main())
