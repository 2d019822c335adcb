"""The command line: ``wordline SUBCOMMAND``; one file a subcommand."""

from wordline.cli.app import COMMANDS, main

__all__ = ["COMMANDS", "main"]
