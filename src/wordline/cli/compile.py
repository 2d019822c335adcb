"""``wordline compile``: a model becomes an artifact."""

from __future__ import annotations

import argparse
from pathlib import Path

from wordline.cli.options import add_json_option, add_machine_options, machine_of
from wordline.cli.output import print_json, print_tables
from wordline.cli.progress import progress
from wordline.cli.searching import add_search_option, choice_tables, search_document, tuning_of
from wordline.cli.targets import add_context_option, add_model_argument, is_artifact, model_path, model_stem
from wordline.errors import WordlineError

NAME = "compile"
HELP = "compile a model for a machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_argument(parser, "GGUF file, model folder, or a config.json alone (can then be timed, not run)")
    parser.add_argument("-o", "--output", metavar="NAME.wl", help="artifact to write (default: named after the model)")
    add_machine_options(parser)
    add_context_option(parser)
    parser.add_argument(
        "--dump-ir", metavar="FOLDER", type=Path, help="also write every level of the compilation as text"
    )
    add_search_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, write, and say what was written."""
    from wordline.artifact import check_target, open_artifact, write_artifact

    machine = machine_of(args)
    source = model_path(args.model)
    if is_artifact(source):
        raise WordlineError(
            "already-compiled",
            f"{source} is an artifact, not a model",
            remedy="give the model that it was compiled from",
        )
    target = check_target(args.output or f"{model_stem(source)}.wl")
    with progress() as report:
        report("loading the compiler")
        from wordline.compiler.pipeline import compile_model

        contents = compile_model(source, machine, args.context, report, args.dump_ir, tuning_of(args.search, report))
        report("writing the artifact")
        write_artifact(target, contents)
    artifact = open_artifact(target, machine, verify=False)
    size = sum(part.bytes for part in artifact.manifest.parts.values())
    if args.json:
        made = {"artifact": str(target), "bytes": size, "digest": artifact.digest, "machine": machine.name}
        print_json({**made, **search_document(artifact.manifest.choices, artifact.manifest.search)})
        return 0
    bound = "" if artifact.weights is not None else ", weights unbound (timing only)"
    print(f"{target}: {artifact.manifest.model.name} for {machine.name}, {size / 1e6:.1f} MB{bound}")
    if artifact.manifest.search is not None:
        print_tables("", *choice_tables(artifact.manifest.choices, artifact.manifest.search))
    return 0
