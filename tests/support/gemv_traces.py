"""Matrix-vector products in the trace language, in the orders of tests/reference/gddr6-aim/gemv_cycles.csv."""

from __future__ import annotations

CHUNK = 1024  # elements of the input that the buffer holds
COLUMN = 16  # elements of a column
BANKS = 16
ROWS = 16384


def gemv_trace(outputs: int, inputs: int, channels: int, order: str) -> str:
    """y[outputs] = W[outputs, inputs] x on the channels of the low bits of the mask.

    Args:
        order: "k": for each chunk of the input the buffer is written once, then every tile of 16 x channels outputs
            adds its part to partial sums that are read out and reloaded; "reuseR": the same with R accumulators a bank;
            "out": each tile goes through all chunks.
    """
    mask = hex((1 << channels) - 1)
    tiles = -(-outputs // (BANKS * channels))
    sizes = [-(-min(CHUNK, inputs - start) // COLUMN) for start in range(0, inputs, CHUNK)]
    lines: list[str] = []

    def bias() -> None:
        lines.append(f"AiM WR_BIAS 0 {mask}")

    def fill(chunk: int) -> None:
        lines.append(f"AiM WR_GB {sizes[chunk]} 0 {mask}")

    def mac(tile: int, chunk: int) -> None:
        lines.append(f"AiM MAC_ABK {sizes[chunk]} {mask} {(tile * len(sizes) + chunk) % ROWS}")

    def read() -> None:
        lines.append(f"AiM RD_MAC 0 {mask}")

    if order == "out":
        if len(sizes) == 1:
            fill(0)
        for tile in range(tiles):
            bias()
            for chunk in range(len(sizes)):
                if len(sizes) > 1:
                    fill(chunk)
                mac(tile, chunk)
            read()
    else:
        reuse = int(order.removeprefix("reuse")) if order.startswith("reuse") else 1
        for chunk in range(len(sizes)):
            fill(chunk)
            for first in range(0, tiles, reuse):
                group = range(first, min(first + reuse, tiles))
                for _ in group:
                    bias()
                for tile in group:
                    mac(tile, chunk)
                for _ in group:
                    read()
    return "\n".join([*lines, "AiM EOC", ""])
