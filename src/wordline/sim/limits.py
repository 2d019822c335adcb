"""Physical limits of banks that compute: the denominators of every "percent of limit".

========  ==========================================================================================================
L0        every multiply-accumulate slot of every bank is used
L1        L0, and each row turn that cannot be avoided: a row is opened once per step and serves every vector that
          needs it (the batch for weights, the grouped query heads for keys and values)
L2        L1, and all-bank refresh, charged pro rata
L2B       L2 of a batch on a device whose buffer and accumulators bound how many vectors can share an open row
L3        one GEMV: L2, and start and end, and rounding to whole columns and rows in every bank
========  ==========================================================================================================

All times are nanoseconds of device time; every constant comes from the machine. The limits count banks only: when the
vector unit or the links leave banks idle, refresh there is free, and they can be the bound themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.generation import generation_unit
from wordline.sim.shapes import ModelShape


@dataclass(frozen=True)
class Limits:
    """Lower bounds of the time of one piece of work, in ns, each including the one before it."""

    l0: float
    l1: float
    l2: float

    def __add__(self, other: Limits) -> Limits:
        return Limits(self.l0 + other.l0, self.l1 + other.l1, self.l2 + other.l2)


@dataclass(frozen=True)
class GemvLimits(Limits):
    """Limits of one matrix-vector product, in ns."""

    l3: float


@dataclass(frozen=True)
class DecodeLimits(Limits):
    """Limits of one decode step, in ns; ``attention`` is the part of keys and values; sizes in bytes."""

    l2b: float
    attention: Limits
    weight_bytes: int
    kv_bytes: int


@dataclass(frozen=True)
class BankRates:
    """What the limits need of a machine; times in ns."""

    outputs_in_lanes: bool  # whether the lanes of a column may belong to several outputs
    units: int  # of a channel: banks, or groups of banks, that read and multiply at the same time
    lanes: int  # elements of a column
    columns: int  # of a row
    mac: float  # between MACs
    turn: float  # between the last MAC slot of a row and the first MAC of the next
    activate: float  # opening a row to its first MAC
    mode: float  # register-mode switch, either way
    register: float  # between register commands: a buffer column written, an accumulator read
    read_latency: float  # accumulator read to its data
    available: float  # fraction of the time that refresh leaves
    buffer_columns: int
    accumulators: int

    @classmethod
    def of(cls, machine: Machine) -> BankRates:
        own = generation_unit(machine)
        if own is not None:
            rates: BankRates = own.limits.bank_rates(machine)
            return rates
        if machine.rules.row_buffers != 1:
            raise WordlineError(
                "limits-undefined",
                f"the limits are defined for banks with one row buffer, not {machine.rules.row_buffers}",
                where=f"machine {machine.name}, rules.row_buffers",
                remedy="set rules.row_buffers=1",
            )
        timing, tck = machine.timing, machine.clock.tck_ns
        mac = timing.nCCDL * tck
        return cls(
            outputs_in_lanes=False,
            units=machine.organisation.banks,
            lanes=machine.bank_unit.lanes,
            columns=machine.organisation.columns,
            mac=mac,
            turn=(timing.nRTP + timing.nRP + timing.nRCDRDMAC) * tck - mac,
            activate=timing.nRCDRDMAC * tck,
            mode=timing.nMODCH * tck,
            register=timing.nCCDS * tck,
            read_latency=timing.nRDMAC_latency * tck,
            available=1 - timing.nRFC / timing.nREFI if machine.refresh.enabled else 1.0,
            buffer_columns=machine.buffer.columns,
            accumulators=machine.bank_unit.accumulators,
        )

    def stream(self, rows: float, vectors: float) -> Limits:
        """One bank reads ``rows`` full rows, each against ``vectors`` vectors."""
        l0 = rows * self.columns * vectors * self.mac
        l1 = l0 + rows * self.turn
        return Limits(l0, l1, l1 / self.available)

    def whole_columns(self, columns: int) -> float:
        """A bank's share of a GEMV, which is a whole number of columns."""
        return columns * self.mac + (ceil(columns / self.columns) - 1) * self.turn

    def batch_l2(self, rows: float, vectors: int, k_columns: int) -> float:
        """L2B of a matrix of ``rows`` rows a bank, whose input has ``k_columns`` columns, against ``vectors`` vectors.

        v vectors share an open row only while v x columns fit the buffer and v x outputs the accumulators. The buffer
        is then refilled once per v x outputs of its columns, which is free when the whole input of all v fits at once.
        """

        def per_mac(shared: int) -> float:
            turn = self.turn / (self.columns * self.mac * shared)
            if shared == 1 or shared * k_columns <= self.buffer_columns:
                return 1 + turn
            return 1 + turn + shared * self.register / (self.accumulators * self.mac)

        macs = rows * self.columns * vectors
        return macs * self.mac * min(map(per_mac, range(1, min(vectors, self.accumulators) + 1))) / self.available


def gemv_limits(machine: Machine, m: int, k: int, channels: int | None = None) -> GemvLimits:
    """Limits of y[m] = W[m, k] x[k], the matrix spread evenly over the banks.

    L3 is at the best split of k over banks, a power of two up to 64: the first MAC waits for a mode switch each way and
    one buffer column (or for its row, if that is longer), and after the last one come a mode switch and a read-out.

    Args:
        machine: whose banks.
        m: rows of the matrix (outputs).
        k: columns of the matrix (inputs).
        channels: channels used; all of the machine's by default.

    Raises:
        WordlineError: "bad-shape" for a size below 1, "limits-undefined" for a machine that the formulas do not cover.
    """
    _positive(m=m, k=k, channels=channels)
    bank = BankRates.of(machine)
    units = _units(machine, bank, channels)
    ideal = bank.stream(m * k / (units * bank.lanes * bank.columns), 1)

    def body(split: int) -> float:
        if bank.outputs_in_lanes:
            return bank.whole_columns(ceil(m * k / (units * bank.lanes)))
        return bank.whole_columns(ceil(m * split / units) * ceil(ceil(k / split) / bank.lanes))

    splits = (split for split in (1, 2, 4, 8, 16, 32, 64) if split <= max(1, k // bank.lanes))
    start = max(bank.activate, 2 * bank.mode + bank.register)
    end = bank.mode + bank.register + bank.read_latency
    l3 = (start + min(map(body, splits)) + end) / bank.available
    return GemvLimits(ideal.l0, ideal.l1, ideal.l2, l3)


def peak_share(machine: Machine, vectors: float) -> float:
    """The roof of the MAC rate as a share of the peak, L0 / L2, when every opened row serves ``vectors`` vectors.

    Raises:
        WordlineError: "bad-shape", "limits-undefined".
    """
    if vectors <= 0:
        raise WordlineError("bad-shape", f"vectors is {vectors}; it must be positive", remedy="give a positive number")
    limits = BankRates.of(machine).stream(1, vectors)
    return limits.l0 / limits.l2


def decode_limits(
    machine: Machine, shape: ModelShape, batch: int, context: int, channels: int | None = None
) -> DecodeLimits:
    """Limits of one decode step of ``batch`` sequences that each attend over ``context`` tokens, logits included.

    Weights, keys and values are spread evenly over all banks, whether or not they fit the device.

    Args:
        machine: whose banks.
        shape: the model.
        batch: sequences decoded together.
        context: tokens in the KV cache of each.
        channels: channels used; all of the machine's by default.

    Raises:
        WordlineError: as :func:`gemv_limits`.
    """
    _positive(batch=batch, context=context, channels=channels)
    bank = BankRates.of(machine)
    units = _units(machine, bank, channels)
    row_elements = bank.lanes * bank.columns
    element_bytes = machine.organisation.column_bytes // bank.lanes
    weight_rows = shape.matrix_elements / (units * row_elements)
    weights = bank.stream(weight_rows, batch)
    kv_elements = shape.kv_elements(context) * batch
    attention = bank.stream(kv_elements / (units * row_elements), shape.heads / shape.kv_heads)
    batched = bank.batch_l2(weight_rows, batch, ceil(shape.hidden / bank.lanes))
    total = weights + attention
    return DecodeLimits(
        total.l0,
        total.l1,
        total.l2,
        l2b=batched + attention.l2,
        attention=attention,
        weight_bytes=shape.matrix_elements * element_bytes,
        kv_bytes=kv_elements * element_bytes,
    )


def _units(machine: Machine, bank: BankRates, channels: int | None) -> int:
    return (machine.organisation.channels if channels is None else channels) * bank.units


def _positive(**sizes: int | None) -> None:
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise WordlineError("bad-shape", f"{name} is {value}; it must be at least 1", remedy="give a positive size")
