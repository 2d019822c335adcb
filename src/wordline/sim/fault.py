"""A device program did something that the device refuses."""

from __future__ import annotations

from wordline.errors import WordlineError


class Fault(WordlineError):  # noqa: N818  # the hardware word
    """Ends a submission. Code "device-fault"; ``channel`` is 0 for vector and link streams."""

    def __init__(self, stream: int, channel: int, instruction: int, reason: str, text: str = "") -> None:
        self.stream = stream
        self.channel = channel
        self.instruction = instruction
        self.reason = reason
        self.text = text
        place = f"stream {stream}, channel {channel}, instruction {instruction}"
        super().__init__(
            "device-fault",
            f"the device program stopped: {reason}",
            where=f"{place}: {text}" if text else place,
            remedy="look the instruction up with `wordline disasm`; arguments or page table do not fit the program",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stream, self.channel, self.instruction, self.reason, self.text)
