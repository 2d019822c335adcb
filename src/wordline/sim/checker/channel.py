"""One channel: what its history, its banks, its mode and its refresh debt allow, command by command."""

from __future__ import annotations

from wordline.machines import Machine
from wordline.sim.checker.bounds import NEVER, Bounds, History
from wordline.sim.checker.commands import COLUMNS, NAME_A_ROW, REGISTERS, ROWS, Burst
from wordline.sim.checker.rules import CORRECTED, STATE_RULES
from wordline.sim.checker.violation import Findings, Violation

CLOSED = -1
_NO_REFRESH = 1 << 62
_WINDOW = 4  # activations that nFAW allows: "four-activate window"

#: A run of these leaves rows, mode and debt as they are.
_REPEATABLE = frozenset((*COLUMNS, *REGISTERS)) - {"WRA16"}
#: What ordinary accesses of the public simulator need; they overtake AiM requests and refresh.
_ORDINARY = frozenset(("ACT", "PRE", "RD", "WR"))


class Channel:
    """The state of one channel, from cycle 0: normal mode, all banks closed, no refresh debt."""

    def __init__(self, machine: Machine, profile: str, bounds: Bounds, findings: Findings) -> None:
        self._machine, self._bounds, self._findings = machine, bounds, findings
        self._ours = profile == CORRECTED
        self._texts = {name: rule.text for name, rule in STATE_RULES[profile].items()}
        self._history = History(bounds)
        self._rows = [CLOSED] * machine.organisation.banks
        self._register_mode = False
        self._rows_in_any_mode = self._ours and machine.rules.row_commands_in_register_mode
        self._refreshes = 0
        self._due = self._next_due()
        self._overdue_reported = False
        self._activations = [NEVER] * _WINDOW
        self._switched = NEVER  # the cycle of TMOD, if that was the last command
        self.last = -1
        """The cycle of the last command."""

    def take(self, burst: Burst) -> None:
        """Check commands that come after all earlier ones, or in the cycle of the last one."""
        if burst.bank >= len(self._rows):
            for _ in range(burst.length):
                self._report("address", burst)
            return
        while not self._take_at_once(burst):
            self._single(burst._replace(length=1))
            if burst.length == 1:
                break
            column = burst.column + 1 if burst.column >= 0 else burst.column
            burst = burst._replace(first=burst.first + burst.step, length=burst.length - 1, column=column)
        self.last = burst.last

    def _take_at_once(self, burst: Burst) -> bool:
        """Take a burst all of whose commands are allowed; False if they have to be looked at one by one."""
        first, length, step, _, command, bank, row, _, _ = burst
        last = first + (length - 1) * step
        if (
            command not in _REPEATABLE
            or last >= self._due
            or (length > 1 and step < self._bounds.limits(command, bank).pitch)
            or self._switched != NEVER
            or self._register_mode != (command in REGISTERS)
            or not self._addresses(burst)
            or not self._open(command, bank, row)
            or self._history.earliest(command, bank) > first
        ):
            return False
        self._history.issue(command, bank, last)
        return True

    def _open(self, command: str, bank: int, row: int) -> bool:
        if command in REGISTERS:
            return True
        return self._rows[bank] == row if bank >= 0 else self._rows.count(row) == len(self._rows)

    def _addresses(self, burst: Burst) -> bool:
        machine = self._machine
        if burst.command == "WRGB":
            columns = machine.buffer.columns
        elif burst.command in REGISTERS:
            columns = machine.bank_unit.accumulators
        else:
            columns = machine.organisation.columns
        row_exists = burst.row < machine.organisation.rows or burst.row >= machine.aim_simulator.lut_row
        return (
            burst.channel < machine.organisation.channels
            and burst.column + burst.length <= columns
            and (row_exists or burst.command not in NAME_A_ROW)
        )

    # --- one command

    def _single(self, c: Burst) -> None:
        if not self._addresses(c):
            self._report("address", c)
        for broken in self._history.broken(c.command, c.bank, c.first):
            self._add(c, broken.row.name, str(broken.row), broken.required, (broken.earlier, broken.earlier_cycle))
        self._check_refresh(c)
        self._check_mode(c)
        self._check_banks(c)
        self._history.issue(c.command, c.bank, c.first)
        self._switched = c.first if c.command == "TMOD" else NEVER

    def _check_mode(self, c: Burst) -> None:
        if c.command == "TMOD":
            self._register_mode = not self._register_mode
            return
        if not self._ours and self._switched != NEVER and self._only_of_aim_requests(c.command):
            earliest = self._history.earliest(c.command, c.bank, without="TMOD")
            if earliest > self._switched:
                self._add(
                    c, "mode-switch", self._texts["mode-switch"], self._switched - earliest, ("TMOD", self._switched)
                )
        wanted = c.command in REGISTERS
        if wanted != self._register_mode and not (self._rows_in_any_mode and c.command in ROWS):
            self._report("mode", c)
            self._register_mode = wanted  # so that one lost TMOD is one violation

    def _only_of_aim_requests(self, command: str) -> bool:
        return command not in _ORDINARY and command != "REFab" and (command != "PREA" or self._due == _NO_REFRESH)

    def _check_banks(self, c: Burst) -> None:
        command, bank, rows = c.command, c.bank, self._rows
        if command in COLUMNS:
            if not self._open(command, bank, c.row):
                self._report("row-open", c)
                self._set_row(bank, c.row)
            if command == "WRA16":
                self._set_row(-1, CLOSED)
        elif command in {"ACT", "ACT16"}:
            others = {rows[bank]} if bank >= 0 else set(rows) - {c.row}
            if others != {CLOSED}:
                self._report("bank-closed", c)
            self._check_activation_window(c)
            self._set_row(bank, c.row)
        elif command in {"PRE", "PREA"}:
            if all(row == CLOSED for row in (rows[bank : bank + 1] if bank >= 0 else rows)):
                self._report("bank-open", c)
            self._set_row(bank, CLOSED)
        elif command == "REFab" and any(row != CLOSED for row in rows):
            self._report("refresh-closed", c)
            self._set_row(-1, CLOSED)

    def _set_row(self, bank: int, row: int) -> None:
        if bank >= 0:
            self._rows[bank] = row
        else:
            self._rows = [row] * len(self._rows)

    def _check_activation_window(self, c: Burst) -> None:
        if not (self._ours and self._machine.rules.faw_enforced):
            return
        window, cycle = self._machine.timing.nFAW, c.first
        at_once = _WINDOW if c.bank < 0 else 1
        earlier = self._activations[-1 if c.bank < 0 else 0]
        if cycle < earlier + window:
            self._report("activation-window", c)
        windows = -(-len(self._rows) // _WINDOW) if c.bank < 0 else 1
        times = [cycle + i * window for i in range(windows) for _ in range(at_once)]
        self._activations = [*self._activations, *times][-_WINDOW:]

    # --- refresh

    def _next_due(self) -> int:
        """The cycle from which refresh goes before everything else."""
        interval = self._machine.timing.nREFI
        if self._ours:
            refresh = self._machine.refresh
            return (refresh.postpone + 1 + self._refreshes) * interval if refresh.enabled else _NO_REFRESH
        return (self._refreshes + 1) * interval - 1 if self._machine.aim_simulator.refresh else _NO_REFRESH

    def _check_refresh(self, c: Burst) -> None:
        if c.first >= self._due:
            if self._ours:
                self._check_forced(c)
            elif c.command not in {"TMOD", "PREA", "REFab"} | _ORDINARY:
                self._report_overdue(c)
        if c.command == "REFab":
            if self._too_early(c.first):
                self._report("refresh-early", c)
            self._refreshes += 1
            self._due = self._next_due()
            self._overdue_reported = False

    def _report_overdue(self, c: Burst) -> None:
        """The first command that should have waited for a refresh stands for all of them."""
        if not self._overdue_reported:
            self._overdue_reported = True
            self._report("refresh-due", c)

    def _too_early(self, cycle: int) -> bool:
        if not self._ours:
            return cycle < self._due
        refresh = self._machine.refresh
        return not refresh.enabled or cycle // self._machine.timing.nREFI - self._refreshes <= -refresh.pull_in

    def _check_forced(self, c: Burst) -> None:
        """A refresh is overdue: its commands alone, each as early as it can."""
        if self._register_mode and not self._rows_in_any_mode:
            step = "TMOD"
        else:
            step = "REFab" if all(row == CLOSED for row in self._rows) else "PREA"
        if c.command != step:
            self._report_overdue(c)
            return
        earliest = max(self._due, self._history.earliest(step, -1))
        if c.first > earliest:
            self._report("refresh-late", c)

    # --- reports

    def _report(self, rule: str, c: Burst) -> None:
        self._add(c, rule, self._texts[rule])

    def _add(
        self, c: Burst, rule: str, text: str, required: int | None = None, earlier: tuple[str, int] | None = None
    ) -> None:
        violation = Violation(rule, text, c.channel, c.first, c.command, c.bank, c.row)
        if earlier is None:
            self._findings.add(violation)
            return
        command, cycle = earlier
        bank = self._history.bank_of(command, cycle)
        self._findings.add(violation.after(command, cycle, bank, required, c.first - cycle))
