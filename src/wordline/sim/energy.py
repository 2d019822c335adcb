"""The energy ledger: what a timed submission or trace costs, by kind of command, by component and by operation.

Energies come from the counts and cycles of the cycle model and from the section ``energy`` of the machine file; the
formula and what it leaves out are in ``docs/energy.md``. Everything is in picojoules (1 mW x 1 ns = 1 pJ) unless a name
says joules. Nothing depends on tensor values, so a timing-only run costs what a functional one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from wordline.isa.declare import Engine
from wordline.machines import Machine
from wordline.machines.schema import Energy
from wordline.sim.timing import DRAM_COMMANDS, SpanTime, TimingResult
from wordline.sim.traces import TraceTime

BANKS, IO, CONTROLLER, STANDBY, VECTOR, LINK = "banks", "I/O", "controller", "standby", "vector unit", "link"
COMPONENTS: tuple[str, ...] = (BANKS, IO, CONTROLLER, STANDBY, VECTOR, LINK)
"""Who takes the energy: arrays, bank units and buffer; the pins; the memory controller; what stands by; ..."""

REFRESH = "refresh"
OPEN, CLOSED, REFRESHING, STATIC = "standby, rows open", "standby, rows closed", "standby, refreshing", "static"
KINDS: tuple[str, ...] = (*DRAM_COMMANDS, REFRESH, OPEN, CLOSED, REFRESHING, STATIC, VECTOR, LINK)
"""What energy is spent on, in the order of reports."""

NOT_MODELLED: tuple[str, ...] = (
    "instructions: their fetch, decode and address arithmetic in the command processor",
    "scratch memory outside passes of the vector unit",
    "the host and its end of the link",
    "losses of power supply and cooling",
)
"""What no constant of a machine file stands for."""

_ACCESS = (("command", "once"), ("access", "once"))
_ROW = (("command", "once"),)
_TERMS: Mapping[str, Sequence[tuple[str, str]]] = {
    "ACT": (("activate", "once"), *_ROW),
    "ACT16": (("activate", "banks"), *_ROW),
    "PRE": _ROW,
    "PREA": _ROW,
    "REFab": _ROW,
    "TMOD": _ROW,
    "MAC16": (("mac_column", "banks"), ("buffer_read", "once"), *_ACCESS),
    "MAC": (("mac_column", "once"), ("buffer_read", "once"), *_ACCESS),
    "RD": (("column_read", "once"), ("io_bit", "column bits"), *_ACCESS),
    "WR": (("column_write", "once"), ("io_bit", "column bits"), *_ACCESS),
    "RDCP": (("column_read", "once"), ("buffer_write", "once"), *_ACCESS),
    "WRCP": (("column_write", "once"), ("buffer_read", "once"), *_ACCESS),
    "WRGB": (("buffer_write", "once"), ("io_bit", "column bits"), *_ACCESS),
    "WRMAC16": (("register_write", "once"), ("io_bit", "register bits"), *_ACCESS),
    "RDMAC16": (("register_read", "once"), ("io_bit", "register bits"), *_ACCESS),
    "AF16": (("af_column", "banks"), *_ACCESS),
    "EWMUL16": (("ewmul_column", "bank groups"), *_ACCESS),
    "RDAF16": (("register_read", "once"), ("io_bit", "register bits"), *_ACCESS),
    "WRA16": (("column_write", "banks"), ("io_bit", "column bits"), *_ACCESS),
}
"""What each command is charged: a constant of section ``energy``, and how often. ``activate`` includes precharging."""
_COMPONENT = {"io_bit": IO, "command": CONTROLLER, "access": CONTROLLER}
_OTHER_USES = {
    "command": "every command",
    "access": "every column and register command",
    "refresh_rows": "refresh: so many x activate x banks each REFab",
    "standby_open": "each channel while a row of it is open",
    "standby_closed": "each channel while all its rows are closed, refreshing included",
    "buffer_static": "each channel, always",
    "device_static": "the device, always",
    "vector_cycle": "each busy cycle of the vector unit",
    "link_bit": "each bit over the link",
}


@dataclass(frozen=True)
class Activity:
    """What costs energy, of a submission or of a part of it: all channels together; parts may be fractions.

    ``open_cycles``, ``closed_cycles`` and ``refresh_cycles`` are the background: cycles of channels with a row open,
    with all rows closed, and refreshing. ``cycles`` are those of the device.
    """

    commands: Mapping[str, int]
    refreshes: float
    open_cycles: float
    closed_cycles: float
    refresh_cycles: float
    cycles: float
    vector_cycles: int
    link_bytes: int

    def __sub__(self, other: Activity) -> Activity:
        return Activity(
            {name: count - other.commands.get(name, 0) for name, count in self.commands.items()},
            self.refreshes - other.refreshes,
            self.open_cycles - other.open_cycles,
            self.closed_cycles - other.closed_cycles,
            self.refresh_cycles - other.refresh_cycles,
            self.cycles - other.cycles,
            self.vector_cycles - other.vector_cycles,
            self.link_bytes - other.link_bytes,
        )


@dataclass(frozen=True)
class EnergyTotals:
    """A ledger for reports, in joules. ``watts`` is the mean over the time; kinds that cost nothing are left out."""

    joules: float
    watts: float
    kinds_j: dict[str, float]
    components_j: dict[str, float]
    not_accounted: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """Energy in pJ: one entry for each kind and the component that takes it. ``counts`` has the events of each kind."""

    entries: Mapping[tuple[str, str], float]
    counts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.entries.values())

    @property
    def kinds(self) -> dict[str, float]:
        """pJ by kind, in the order of :data:`KINDS`; what costs nothing is left out."""
        return self._sums(0, KINDS)

    @property
    def components(self) -> dict[str, float]:
        """pJ by component, in the order of :data:`COMPONENTS`."""
        return self._sums(1, COMPONENTS)

    def _sums(self, key: int, names: Iterable[str]) -> dict[str, float]:
        sums = {name: sum(pj for entry, pj in self.entries.items() if entry[key] == name) for name in names}
        return {name: pj for name, pj in sums.items() if pj}


class EnergyModel:
    """What one machine charges."""

    def __init__(self, machine: Machine) -> None:
        organisation = machine.organisation
        register_bits = {"bf16": 16, "fp32": 32}[machine.bank_unit.readout]
        times = {
            "once": 1,
            "banks": organisation.banks,
            "bank groups": organisation.bank_groups,
            "column bits": 8 * organisation.column_bytes,
            "register bits": register_bits * organisation.banks,
        }
        self.machine = machine
        self.commands: dict[str, dict[str, float]] = {}
        """pJ of one command by component."""
        for command, terms in _TERMS.items():
            energy = self.commands.setdefault(command, {})
            for constant, often in terms:
                component = _COMPONENT.get(constant, BANKS)
                energy[component] = energy.get(component, 0.0) + times[often] * getattr(machine.energy, constant)

    @property
    def not_accounted(self) -> tuple[str, ...]:
        """What the ledger leaves out: constants that are zero, with their sources, and :data:`NOT_MODELLED`."""
        zeros = [entry.name for entry in fields(Energy) if getattr(self.machine.energy, entry.name) == 0.0]
        return (
            *(f"energy.{name}: {self.machine.field(f'energy.{name}').source}" for name in zeros),
            *NOT_MODELLED,
        )

    def ledger(self, activity: Activity) -> Ledger:
        """What ``activity`` costs."""
        e, tck, channels = self.machine.energy, self.machine.clock.tck_ns, self.machine.organisation.channels
        entries: dict[tuple[str, str], float] = {}
        for command, count in activity.commands.items():
            for component, pj in self.commands[command].items():
                entries[command, component] = count * pj
        refresh = self.machine.organisation.banks * e.refresh_rows * e.activate
        entries[REFRESH, BANKS] = activity.refreshes * refresh
        entries[OPEN, STANDBY] = activity.open_cycles * tck * e.standby_open
        entries[CLOSED, STANDBY] = activity.closed_cycles * tck * e.standby_closed
        entries[REFRESHING, STANDBY] = activity.refresh_cycles * tck * e.standby_closed
        entries[STATIC, STANDBY] = activity.cycles * tck * (channels * e.buffer_static + e.device_static)
        entries[VECTOR, VECTOR] = activity.vector_cycles * e.vector_cycle
        entries[LINK, LINK] = 8 * activity.link_bytes * e.link_bit
        counts: dict[str, float] = {
            **activity.commands,
            REFRESH: activity.refreshes,
            OPEN: activity.open_cycles,
            CLOSED: activity.closed_cycles,
            REFRESHING: activity.refresh_cycles,
            STATIC: activity.cycles,
            VECTOR: activity.vector_cycles,
            LINK: 8 * activity.link_bytes,
        }
        return Ledger(entries, counts)

    def totals(self, ledger: Ledger, ns: float) -> EnergyTotals:
        """``ledger`` for a report; ``ns`` is the device time in which that was spent."""

        def joules(table: Mapping[str, float]) -> dict[str, float]:
            return {name: pj / 1e12 for name, pj in table.items()}

        return EnergyTotals(
            ledger.total / 1e12,
            ledger.total / ns / 1e3 if ns else 0.0,
            joules(ledger.kinds),
            joules(ledger.components),
            self.not_accounted,
        )


def activity_of(result: TimingResult, machine: Machine) -> Activity:
    """What a timed submission did. Channels without a stream stand by with their rows closed."""
    channels = result.channels
    opened = sum(channel.open_cycles for channel in channels)
    refreshing = sum(channel.refreshes * machine.timing.nRFC + channel.refresh_charge for channel in channels)
    return Activity(
        {name: sum(channel.commands[name] for channel in channels) for name in DRAM_COMMANDS},
        refreshing / machine.timing.nRFC,
        opened,
        len(channels) * result.cycles - opened - refreshing,
        refreshing,
        result.cycles,
        sum(int(stream.busy.sum()) for stream in result.streams if stream.engine is Engine.VECTOR),
        sum(int(stream.bytes.sum()) for stream in result.streams),
    )


def activity_of_trace(trace: TraceTime, machine: Machine) -> Activity:
    """What a trace did, and with it all channels of the machine."""
    total = machine.organisation.channels * trace.cycles
    return Activity(
        {name: trace.commands.get(name, 0) for name in DRAM_COMMANDS},
        trace.refresh_cycles / machine.timing.nRFC,
        trace.open_cycles,
        total - trace.open_cycles - trace.refresh_cycles,
        trace.refresh_cycles,
        trace.cycles,
        0,
        0,
    )


def split_activity(whole: Activity, spans: Iterable[SpanTime]) -> tuple[dict[str, Activity], Activity]:
    """What each span did, by label, and what of ``whole`` belongs to none of them; together they are ``whole``.

    Commands, refreshes, vector cycles and bytes are the span's own (the run has to count commands by instruction); the
    background is shared out by the cycles that channels spent on it.
    """
    parts: dict[str, Activity] = {}
    rest = whole
    for span in spans:
        share = span.cycles / whole.cycles if whole.cycles else 0.0
        part = Activity(
            span.commands,
            span.commands["REFab"],
            whole.open_cycles * share,
            whole.closed_cycles * share,
            whole.refresh_cycles * share,
            whole.cycles * share,
            span.vector_busy,
            span.link_bytes,
        )
        parts[span.label] = part
        rest = rest - part
    return parts, rest


def uses_of(constant: str) -> str:
    """What a constant of section ``energy`` is charged for, in words."""
    if constant in _OTHER_USES:
        return _OTHER_USES[constant]
    uses: dict[str, list[str]] = {}
    for name, terms in _TERMS.items():
        for term, often in terms:
            if term == constant:
                uses.setdefault("" if often == "once" else f" x {often}", []).append(name)
    return "; ".join(", ".join(names) + often for often, names in uses.items())
