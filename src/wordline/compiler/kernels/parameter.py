"""Vector parameters (norm weights, biases, tables).

Every channel reads its copy from one bank into scratch before use.
"""

from __future__ import annotations

from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Address, Item
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import linear
from wordline.compiler.layout import ParameterPlace

COLUMN_BYTES = 32


def read(place: ParameterPlace, target: ScratchTensor, row_columns: int) -> tuple[Item, ...]:
    """Body of the channel task: one burst per DRAM row that the parameter spans."""
    b = Builder()
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
            target=Address(target.buffer, linear(target.offset + done * COLUMN_BYTES)),
        )
        done += count
    return b.take()
