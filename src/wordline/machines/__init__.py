"""Hardware as data: machine files, their schema, and the loader."""

from wordline.machines.loader import list_machines, load_machine
from wordline.machines.machine import Field, Machine
from wordline.machines.schema import Table

__all__ = ["Field", "Machine", "Table", "list_machines", "load_machine"]
