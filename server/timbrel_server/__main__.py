"""`python -m timbrel_server [options]`: `timbrel serve` where the client is not installed."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import NoReturn

from timbrel_bundle.standard_streams import fill_closed
from timbrel_server.cli import command


class _Parser(argparse.ArgumentParser):
    """argparse's parser, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        _, unknown, flag = message.partition("unrecognized arguments: ")
        name = flag.partition("=")[0].partition(" ")[0]
        near = difflib.get_close_matches(name, self._option_string_actions, 1) if unknown else ()
        meant = f": did you mean {near[0]}?" if near else ""
        self.exit(2, f"timbrel: {message}{meant} (see {self.prog} --help)\n")


def main() -> int:
    """Returns the exit status: 2 for an error of the user's, told in one line."""
    fill_closed()
    parser = _Parser(
        prog="python -m timbrel_server",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    try:
        return command.run(parser.parse_args())
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        print(f"timbrel: {_one_line(error)}", file=sys.stderr)
        return 2


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
