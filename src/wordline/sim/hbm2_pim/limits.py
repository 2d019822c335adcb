"""What limits a pseudo-channel: see :mod:`wordline.sim.limits` for what the levels mean."""

from __future__ import annotations

from wordline.machines import Machine
from wordline.machines.hbm2_pim import Pim, Timing
from wordline.sim.limits import BankRates


def bank_rates(machine: Machine) -> BankRates:
    """The rates of the blocks.

    A block multiplies one column of one of its two banks every nCCDL. While it reads one bank, the other can turn its
    row, so no row turn is unavoidable: L1 is L0.
    """
    timing, pim, tck = machine.section("timing", Timing), machine.section("pim", Pim), machine.clock.tck_ns
    mac = timing.nCCDL * tck
    return BankRates(
        outputs_in_lanes=True,
        units=machine.organisation.banks // 2,
        lanes=pim.lanes,
        columns=machine.organisation.columns,
        mac=mac,
        turn=0.0,
        activate=timing.nRCDRD * tck,
        mode=0.0,
        register=mac,
        read_latency=timing.nRD_latency * tck,
        available=1 - timing.nRFC / timing.nREFI if machine.refresh.enabled else 1.0,
        buffer_columns=pim.grf_registers,
        accumulators=2 * pim.grf_registers,
    )
