"""The device's side of the device interface in Python: for devices that compute nothing, and for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.machines import Machine
from wordline.runtime.device_interface import (
    COMPLETION,
    DESCRIPTOR,
    DEVICE_ID,
    INTERFACE_VERSION,
    PROGRAM_SLOTS,
    Capability,
    ErrorCode,
    Opcode,
    Register,
    Status,
)

Bytes = npt.NDArray[np.uint8]


class DeviceError(Exception):
    """Ends a descriptor with an error code, a text for people, and the place of a fault."""

    def __init__(self, code: ErrorCode, text: str, detail: int = 0) -> None:
        self.code = code
        self.text = text
        self.detail = detail
        super().__init__(text)


class SoftwareDevice:
    """Registers, rings, windows, controller memory and the checks of every descriptor.

    A subclass gives meaning to DRAM and programs through the ``on_...`` methods.
    """

    capabilities = Capability(0)

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        words = [int(machine.hash[8 * i : 8 * i + 8], 16) for i in range(8)]
        self.cmem = np.zeros(machine.command_processor.controller_memory_bytes // 4, np.int32)
        self._registers: dict[int, int] = {
            Register.ID: DEVICE_ID,
            Register.INTERFACE_VERSION: INTERFACE_VERSION,
            Register.CAPS: self.capabilities,
            Register.CHANNELS: machine.organisation.channels,
            Register.ROWS: machine.organisation.rows,
            Register.CMEM_WORDS: self.cmem.size,
            **{Register.MACHINE_HASH + 4 * i: word for i, word in enumerate(words)},
        }
        self._windows: dict[int, Bytes] = {}
        self._next_window = 1 << 32
        self._text = ""
        self._reset()

    # What a driver calls.

    def mmio_read(self, offset: int) -> int:
        """Read a 32-bit register; registers that do not exist read 0."""
        return self._registers.get(offset, 0)

    def mmio_write(self, offset: int, value: int) -> None:
        """Write a 32-bit register; read-only registers keep their value."""
        if offset == Register.RESET:
            self._reset()
        elif offset in (
            Register.RING_BASE_LO,
            Register.RING_BASE_HI,
            Register.COMPLETION_BASE_LO,
            Register.COMPLETION_BASE_HI,
            Register.RING_ENTRIES,
            Register.RING_TAIL,
        ):
            self._registers[offset] = value & 0xFFFF_FFFF

    def map_host(self, buffer: Bytes) -> int:
        """Open a window."""
        address = self._next_window
        self._next_window += (buffer.size + (2 << 12)) >> 12 << 12  # a gap, so that overruns are seen
        self._windows[address] = buffer
        return address

    def unmap_host(self, address: int) -> None:
        """Close a window."""
        del self._windows[address]

    def advance(self) -> bool:
        """Process all descriptors up to the doorbell."""
        head, tail = self._registers[Register.RING_HEAD], self._registers[Register.RING_TAIL]
        if head == tail:
            return False
        while head != tail:
            self._answer(head)
            head = (head + 1) & 0xFFFF_FFFF
            self._registers[Register.RING_HEAD] = head
        return True

    def fault_text(self) -> str:
        """The text of the last error."""
        return self._text

    def last_profile(self) -> Any:
        """Where the cycles of the last EXECUTE went."""
        return None

    # What a subclass provides. Arguments are checked already.

    def on_reset(self) -> None:
        """Forget everything."""

    def on_bank_write(self, first_row: int, rows: int, data: Bytes) -> None:
        """``data``: [row, channel, bank, column, lane] of bf16."""

    def on_bank_read(self, first_row: int, rows: int, data: Bytes) -> None:
        """Fill ``data``."""
        raise DeviceError(ErrorCode.UNSUPPORTED, "this device keeps no data")

    def on_bank_fill(self, first_row: int, rows: int, channel_mask: int) -> None:
        """Zero rows."""

    def on_load(self, slot: int, image: bytes) -> None:
        """Take a program."""

    def on_unload(self, slot: int) -> None:
        """Drop a program."""

    def on_execute(self, slot: int, argument_base: int, flags: int) -> int:
        """Run a program; returns its cycles."""
        raise DeviceError(ErrorCode.UNSUPPORTED, "this device runs no programs")

    def host(self, address: int, size: int, write: bool = False) -> Bytes:
        """Host memory at a device address, if one window holds all of it."""
        for base, window in self._windows.items():
            if base <= address and address + size <= base + window.size and (window.flags.writeable or not write):
                return window[address - base : address - base + size]
        raise DeviceError(ErrorCode.BAD_WINDOW, f"host bytes {address:#x}+{size:#x} are in no open window")

    def _reset(self) -> None:
        self.cmem[:] = 0
        self._loaded: set[int] = set()
        self._cycles = 0
        for register in (Register.RING_HEAD, Register.RING_TAIL, Register.COMPLETION_TAIL, Register.ERROR):
            self._registers[register] = 0
        self._registers[Register.STATUS] = Status.READY
        self._count_cycles(0)
        self.on_reset()

    def _count_cycles(self, cycles: int) -> None:
        self._cycles += cycles
        self._registers[Register.CYCLES_LO] = self._cycles & 0xFFFF_FFFF
        self._registers[Register.CYCLES_HI] = self._cycles >> 32

    def _base(self, low: Register) -> int:
        return self._registers.get(low, 0) | self._registers.get(low + 4, 0) << 32

    def _answer(self, index: int) -> None:
        entries = self._registers.get(Register.RING_ENTRIES, 0)
        at = index % entries
        descriptor = self.host(self._base(Register.RING_BASE_LO) + at * DESCRIPTOR.size, DESCRIPTOR.size)
        opcode, flags, tag, *operands = DESCRIPTOR.unpack(descriptor.tobytes())
        start, status, detail = self._cycles, ErrorCode.OK, 0
        try:
            if self._registers[Register.STATUS] == Status.FAULT:
                raise DeviceError(ErrorCode.ABORTED, self._text)
            self._dispatch(opcode, flags, operands)
        except DeviceError as error:
            status, detail, self._text = error.code, error.detail, error.text
            self._registers[Register.ERROR] = status
            if status in (ErrorCode.FAULT, ErrorCode.ABORTED):
                self._registers[Register.STATUS] = Status.FAULT
        target = self.host(self._base(Register.COMPLETION_BASE_LO) + at * COMPLETION.size, COMPLETION.size, write=True)
        COMPLETION.pack_into(target.data, 0, tag, status, start, self._cycles, detail)
        self._registers[Register.COMPLETION_TAIL] = (index + 1) & 0xFFFF_FFFF

    def _dispatch(self, opcode: int, flags: int, operands: list[int]) -> None:
        a, b, c = operands[:3]
        if opcode == Opcode.FENCE:
            return
        if opcode in (Opcode.BANK_WRITE, Opcode.BANK_READ):
            self._check_range("row", b, c, self.machine.organisation.rows)
            data = self.host(a, c * self.machine.organisation.device_row_bytes, write=opcode == Opcode.BANK_READ)
            (self.on_bank_write if opcode == Opcode.BANK_WRITE else self.on_bank_read)(b, c, data)
        elif opcode == Opcode.BANK_FILL:
            self._check_range("row", a, b, self.machine.organisation.rows)
            if c >> self.machine.organisation.channels:
                raise DeviceError(ErrorCode.OUT_OF_RANGE, f"channel mask {c:#x} names channels that do not exist")
            self.on_bank_fill(a, b, c)
        elif opcode in (Opcode.CMEM_WRITE, Opcode.CMEM_READ):
            self._check_range("word", b, c, self.cmem.size)
            host = self.host(a, 4 * c, write=opcode == Opcode.CMEM_READ)
            words = self.cmem[b : b + c].view(np.uint8)
            if opcode == Opcode.CMEM_WRITE:
                words[:] = host
            else:
                host[:] = words
        elif opcode == Opcode.LOAD_PROGRAM:
            if not c < PROGRAM_SLOTS or c in self._loaded:
                raise DeviceError(ErrorCode.BAD_SLOT, f"slot {c} does not exist or is taken")
            self.on_load(c, self.host(a, b).tobytes())
            self._loaded.add(c)
        elif opcode == Opcode.UNLOAD_PROGRAM:
            self._check_slot(a)
            self.on_unload(a)
            self._loaded.remove(a)
        elif opcode == Opcode.EXECUTE:
            self._check_slot(a)
            if b >= self.cmem.size:
                raise DeviceError(ErrorCode.OUT_OF_RANGE, f"argument base {b} is outside controller memory")
            self._count_cycles(self.on_execute(a, b, flags))
        else:
            raise DeviceError(ErrorCode.BAD_DESCRIPTOR, f"there is no operation {opcode}")

    def _check_slot(self, slot: int) -> None:
        if slot not in self._loaded:
            raise DeviceError(ErrorCode.BAD_SLOT, f"slot {slot} holds no program")

    @staticmethod
    def _check_range(unit: str, first: int, count: int, size: int) -> None:
        if first + count > size:
            raise DeviceError(ErrorCode.OUT_OF_RANGE, f"{unit}s {first} to {first + count} of {size} do not exist")
