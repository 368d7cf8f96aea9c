"""`timbrel export`: what training left behind becomes a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path

EPILOG = """\
examples:
  timbrel export --model runs/cpu/headers/model --timbre runs/cpu/timbre --codec runs/cpu/headers/codec \\
      --tokens runs/cpu/tokens.bin --notes runs/cpu/notes --out bundles/mine
  timbrel export --bundle bundles/mine --timbre runs/cpu/hearing --out bundles/mine
  timbrel serve --bundle bundles/mine

The graphs are first compared with PyTorch on real notes. A bundle appears only where all logits agree within
1e-3 and no token differs that the model is certain of; its manifest.json has the figures, under "parity".
"""


class ExportCommand:
    """The `export` entry of `timbrel.commands`."""

    help = "turn a trained model into a bundle that servers and clients load"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments."""
        parser.epilog = EPILOG
        folders = {
            "model": "folder of `timbrel train model`, or model/ of `timbrel train headers`",
            "timbre": "folder of `timbrel train timbre` or `timbrel train hearing`",
            "codec": "folder of `timbrel train codec`, or codec/ of `timbrel train headers`",
            "tokens": "token store of `timbrel train tokens`",
            "out": "the bundle's folder; an older bundle there is replaced once the new one has passed",
        }
        for name, text in folders.items():
            required = name in ("timbre", "out")
            parser.add_argument(f"--{name}", required=required, type=Path, metavar="PATH", help=text)
        parser.add_argument(
            "--bundle",
            type=Path,
            metavar="PATH",
            help="a bundle that keeps all but its timbre encoder, in place of --model, --codec and --tokens",
        )
        parser.add_argument(
            "--notes",
            type=Path,
            metavar="PATH",
            help="dataset of `timbrel train notes`: states the data's licence",
        )
        parser.add_argument(
            "--name", default="", help="the bundle's name (default: that of its folder, or of --bundle)"
        )
        parser.add_argument(
            "--sample-notes", type=int, default=6, metavar="N", help="notes to compare on (default: 6)"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Exports, and prints what the comparison found."""
        from timbrel_export.bundle_folder import git_revision
        from timbrel_export.errors import ExportError
        from timbrel_export.exporter import export_bundle
        from timbrel_export.trained import load_trained

        named = [folder is not None for folder in (args.model, args.codec, args.tokens)]
        if any(named) if args.bundle else not all(named):
            raise ExportError("name --model, --codec and --tokens, or in their place --bundle")
        if args.bundle:
            return self._replace_encoder(args)
        n_notes = max(1, args.sample_notes)
        parts = load_trained(args.model, args.timbre, args.codec, args.tokens, args.notes, n_notes)
        name = args.name or args.out.resolve().name
        manifest = export_bundle(parts, args.out, name=name, git_revision=git_revision())
        megabytes = sum(file.size for file in manifest.files) / 1e6
        millions = manifest.model.n_parameters / 1e6
        parity = manifest.parity
        print(f"{args.out}: {manifest.name}, {millions:.2f} M parameters, {megabytes:.1f} MB")
        print(f"  logits within {parity.max_logit_difference:.2g} of PyTorch's on {parity.n_tokens} tokens")
        print(f"  tokens that differ: {parity.n_flips_within_margin}, all of them ties within 2e-3")
        print(f"  decoded audio within {parity.max_audio_difference:.2g}")
        return 0

    def _replace_encoder(self, args: argparse.Namespace) -> int:
        from timbrel_bundle.bundle import Bundle
        from timbrel_export.bundle_folder import bundle_path, git_revision
        from timbrel_export.exporter import replace_timbre_encoder
        from timbrel_export.trained import load_hearing

        bundle = Bundle.open(bundle_path(args.bundle))
        bundle.require()
        manifest = replace_timbre_encoder(
            bundle, *load_hearing(args.timbre, bundle), args.out, name=args.name, git_revision=git_revision()
        )
        print(f"{args.out}: {manifest.name}, with the timbre encoder of {args.timbre}")
        return 0


command = ExportCommand()
