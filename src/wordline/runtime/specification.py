"""Device strings: ``DRIVER:MACHINE[?set=path=value&set=...]``, for example ``sim:gddr6-aim-chip?set=timing.nRP=24``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine


@dataclass(frozen=True)
class DeviceSpec:
    """A parsed device string: the driver's name and the machine, overrides applied."""

    driver: str
    machine: Machine

    def __str__(self) -> str:
        return f"{self.driver}:{self.machine.name}"


def parse_device(text: str) -> DeviceSpec:
    """Parse a device string. The part before the colon may be left out: ``sim`` is meant.

    Raises:
        WordlineError: "bad-device-string", or what :func:`wordline.machines.load_machine` raises.
    """
    driver, colon, rest = text.partition(":")
    if not colon:
        driver, rest = "sim", text
    name, _, query = rest.partition("?")
    if not name or not driver:
        raise _bad(text, "it names no machine" if driver else "it names no driver")
    return DeviceSpec(driver, load_machine(name, _overrides(text, query)))


def _overrides(text: str, query: str) -> Mapping[str, str]:
    overrides = {}
    for part in query.split("&") if query else ():
        key, _, setting = part.partition("=")
        path, equals, value = setting.partition("=")
        if key != "set" or not path or not equals:
            raise _bad(text, f"{part!r} is not set=path=value")
        overrides[path] = value
    return overrides


def _bad(text: str, problem: str) -> WordlineError:
    return WordlineError(
        "bad-device-string",
        f"{text!r} is not a device string: {problem}",
        remedy="write DRIVER:MACHINE[?set=path=value&...], for example sim:gddr6-aim-chip",
    )
