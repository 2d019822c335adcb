"""``wordline devices``: what can run a program, and whether it works."""

from __future__ import annotations

import argparse
from typing import Any

from wordline.cli.options import add_json_option
from wordline.cli.output import print_json, print_tables, table
from wordline.errors import WordlineError

NAME = "devices"
HELP = "list devices, or open one and check it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "device", nargs="?", metavar="DEVICE", help="device string to check: DRIVER:MACHINE[?set=PATH=VALUE&...]"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List all devices; or check one, and list the constants of its machine."""
    return _list(args.json) if args.device is None else _check(args.device, args.json)


def _list(json: bool) -> int:
    from wordline.runtime import list_devices

    devices = list_devices()
    if json:
        print_json(
            [
                {"device": d.name, "description": d.description, "machine": d.machine.name, "hash": d.machine.hash}
                for d in devices
            ]
        )
        return 0
    rows = [[d.name, d.machine.description, d.description] for d in devices]
    print_tables(table("", ["device", "machine", "driver"], rows, left=3))
    return 0


def _check(name: str, json: bool) -> int:
    from wordline.runtime import open_device

    device = open_device(name)
    machine = device.machine
    checks = _exercise(device)
    constants = {p: {"value": f.value, "unit": f.unit, "source": f.source} for p, f in machine.fields_by_path.items()}
    if json:
        print_json({"device": str(device), "hash": machine.hash, "checks": checks, "constants": constants})
        return 0
    rows = [[path, str(c["value"]), str(c["unit"]), str(c["source"])] for path, c in constants.items()]
    lines = [f"{device}: {machine.description} ({machine.hash[:12]})", *(f"  {check}" for check in checks)]
    print_tables(*lines, "", table("constants", ["field", "value", "unit", "source"], rows, left=4))
    return 0


def _exercise(device: Any) -> list[str]:
    """Drive the device interface end to end: registers, rings, controller memory and DRAM."""
    import numpy as np

    done = [f"interface: {device.rows} rows, {device.words.size} words of controller memory"]
    pattern = np.arange(4096, dtype=np.uint32)
    out, back = device.host_buffer(pattern.nbytes), device.host_buffer(pattern.nbytes)
    out.data[:] = pattern.view(np.uint8)
    words = min(pattern.size, device.words.size)
    device.queue.write_words(out.address, 0, words)
    device.queue.read_words(back.address, 0, words).wait()
    _equal(back.data[: 4 * words], out.data[: 4 * words], "controller memory")
    done.append("controller memory: written and read back")
    if device.functional:
        row = device.host_buffer(device.machine.organisation.device_row_bytes)
        copy = device.host_buffer(row.data.size)
        row.data[:] = np.resize(pattern.view(np.uint8), row.data.size)
        device.queue.write_rows(row.address, device.rows - 1, 1)
        device.queue.read_rows(copy.address, device.rows - 1, 1).wait()
        _equal(copy.data, row.data, "DRAM")
        done.append("DRAM: written and read back")
    else:
        done.append("DRAM: keeps no data (timing only)")
    return done


def _equal(found: Any, wanted: Any, what: str) -> None:
    if (found != wanted).any():
        raise WordlineError(
            "device-broken", f"{what} does not read back what was written", remedy="reset or replace the device"
        )
