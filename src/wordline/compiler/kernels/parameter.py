"""Vector parameters (norm weights, biases, tables).

Every channel reads its copy from one bank into scratch before use.
"""

from __future__ import annotations

from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Address, Item
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import linear
from wordline.compiler.layout import ParameterPlace
from wordline.machines import Machine


def read(machine: Machine, place: ParameterPlace, target: ScratchTensor) -> tuple[Item, ...]:
    """Body of the channel task: one burst per DRAM row that the parameter spans."""
    b, row_columns = Builder(), machine.organisation.columns
    done = 0
    while done < place.columns:
        position = place.column + done
        count = min(place.columns - done, row_columns - position % row_columns)
        b.emit(
            "RD",
            bank=place.bank,
            row=place.row + position // row_columns,
            column=position % row_columns,
            count=count,
            target=Address(target.buffer, linear(target.offset + done * machine.organisation.column_bytes)),
        )
        done += count
    return b.take()
