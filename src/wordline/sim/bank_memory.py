"""The DRAM of a device, sparse by row: a row that nobody wrote is zero and takes no memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.machines import Machine

U16 = npt.NDArray[np.uint16]


class BankMemory:
    """Rows of all banks of a channel, uint16 [banks, columns, lanes] each, in bank-image order."""

    def __init__(self, machine: Machine) -> None:
        organisation = machine.organisation
        self.rows = organisation.rows
        self.channels = organisation.channels
        self.row_shape = (organisation.banks, organisation.columns, organisation.column_bytes // 2)
        self._row_bytes = organisation.device_row_bytes
        self._rows: dict[tuple[int, int], U16] = {}
        self._zero = np.zeros(self.row_shape, dtype=np.uint16)
        self._zero.flags.writeable = False

    def row(self, channel: int, row: int) -> U16:
        """[banks, columns, lanes], for reading."""
        return self._rows.get((channel, row), self._zero)

    def writable_row(self, channel: int, row: int) -> U16:
        """[banks, columns, lanes], for writing."""
        found = self._rows.get((channel, row))
        if found is None:
            found = self._rows[channel, row] = np.zeros(self.row_shape, dtype=np.uint16)
        return found

    def write(self, first_row: int, rows: int, image: bytes | memoryview | npt.NDArray[np.uint16]) -> None:
        """Write ``rows`` rows from a bank image: uint16 [row][channel][bank][column][lane]."""
        self._check(first_row, rows)
        size = len(image) if isinstance(image, bytes) else image.nbytes
        if size != rows * self._row_bytes:
            raise WordlineError("bad-range", f"{rows} rows need {rows * self._row_bytes} bytes, the image has {size}")
        values = np.frombuffer(image, dtype=np.uint16).reshape(rows, self.channels, *self.row_shape).copy()
        for row in range(rows):
            for channel in range(self.channels):
                self._rows[channel, first_row + row] = values[row, channel]

    def read(self, first_row: int, rows: int) -> bytes:
        """The bank image of ``rows`` rows."""
        self._check(first_row, rows)
        return b"".join(
            self.row(channel, first_row + row).tobytes() for row in range(rows) for channel in range(self.channels)
        )

    def fill_zero(self, first_row: int, rows: int, channel_mask: int) -> None:
        """Zero ``rows`` rows of the channels in the mask."""
        self._check(first_row, rows)
        for channel in range(self.channels):
            if channel_mask >> channel & 1:
                for row in range(first_row, first_row + rows):
                    self._rows.pop((channel, row), None)

    def _check(self, first_row: int, rows: int) -> None:
        if first_row < 0 or rows < 0 or first_row + rows > self.rows:
            raise WordlineError("bad-range", f"rows {first_row}..{first_row + rows} of {self.rows}")
