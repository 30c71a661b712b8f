"""Options that print the JSON schema of what a command prints, and end it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from offload_tool.cli.printing.lines import print_text


class SchemaAction(argparse.Action):
    """Prints the schema in the file beside this one that ``const`` names, and nothing else."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it, and exit with status 0."""
        text = (Path(__file__).parents[1] / str(self.const)).read_text(encoding="utf-8")
        print_text(text, sys.stdout)
        parser.exit()
