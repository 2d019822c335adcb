"""The independent checker: whether a schedule of DRAM commands obeys the machine file.

It shares no code with the models that make schedules (an import contract sees to that): the intervals are a table
(``rules``), banks, mode and refresh debt a state machine (``channel``). Page: ``docs/checker.md``.
"""

from wordline.sim.checker.check import LIMIT, Checker, check
from wordline.sim.checker.commands import Burst
from wordline.sim.checker.rules import INTERVALS, PROFILES, STATE_RULES, profile_constants
from wordline.sim.checker.schedule import Section, check_file, check_schedule, fold, read_schedule, write_schedule
from wordline.sim.checker.violation import Report, Violation

__all__ = [
    "INTERVALS",
    "LIMIT",
    "PROFILES",
    "STATE_RULES",
    "Burst",
    "Checker",
    "Report",
    "Section",
    "Violation",
    "check",
    "check_file",
    "check_schedule",
    "fold",
    "profile_constants",
    "read_schedule",
    "write_schedule",
]
