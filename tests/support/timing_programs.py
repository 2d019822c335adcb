"""Programs for timing tests: short builders, and random programs that use every rule and always end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from wordline.isa.affine import Affine, affine
from wordline.isa.controller.vector import OP_BY_NAME
from wordline.isa.declare import Engine
from wordline.isa.gddr6_aim import ISA
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream


def ins(name: str, /, **operands: object) -> Instr:
    return make(ISA, name, **operands)


def program(
    channel: Sequence[Instr] = (), vector: Sequence[Instr] = (), link: Sequence[Instr] = (), mask: int = 1
) -> Program:
    """A program of up to three streams; empty ones are left out, the channel stream is first."""
    streams = [Stream(Engine.CHANNEL, mask, tuple(channel))]
    streams += [Stream(Engine.VECTOR, 0, tuple(vector))] if vector else []
    streams += [Stream(Engine.LINK, 0, tuple(link))] if link else []
    return Program(ISA, tuple(streams))


def vector_pass(
    n: int | Affine, operands: int = 1, operations: Sequence[tuple[str, int, int, int]] = (), result: int | None = None
) -> Instr:
    """A pass over ``n`` f32 elements; ``operations`` are (name, a, b, c); ``result`` is the value stored."""
    layout = {"s2": 4, "dtype": 1}
    return ins(
        "VPASS",
        n0=1,
        n1=1,
        n2=n,
        high=n,
        operands=[{"base": Affine(0), "layout": layout}] * operands,
        operations=[
            {"operation": {"op": OP_BY_NAME[name].code, "a": a, "b": b, "c": c}} for name, a, b, c in operations
        ],
        result=[] if result is None else [{"base": Affine(0), "layout": layout, "broadcast": {"value": result}}],
    )


class _Random:
    """Writes the streams in one global order, so that every WAIT is for something that comes before it."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.streams: dict[Engine, list[Instr]] = {Engine.CHANNEL: [], Engine.VECTOR: [], Engine.LINK: []}
        self.signalled: dict[int, int] = {}
        self.register_bias = self.r.random()
        self.rows = self.r.choice([1, 2, 4])
        self.banks = self.r.choice([[0], [0, 1], [0, 1, 4], list(range(16))])
        self.burst = self.r.choice([2, 8, 40])
        self.by_channel = self.r.random() < 0.4

    def scalar(self) -> Instr:
        rd = self.r.randint(2, 8)
        a, b = affine(self.r.randint(0, 9), (self.r.randint(2, 8), 1)), self.r.randint(0, 5)
        name = self.r.choice(["ADD", "SUB", "AND", "MIN", "LT", "SHR"])
        return ins(name, rd=rd, a=a, b=b) if self.r.random() < 0.8 else ins("LDA", rd=rd, index=self.r.randint(0, 7))

    def count(self, limit: int) -> tuple[int | Affine, int]:
        """A burst length and the largest value that it can have."""
        n = self.r.randint(0, min(self.burst, limit - 1))
        if self.by_channel and self.r.random() < 0.3:
            return affine(n, (1, 1)), n + 1
        return n, max(n, 1)

    def command(self, index: int | None = None) -> Instr:
        """One channel command; ``index`` is the register of an enclosing loop."""
        r = self.r
        row: int | Affine = r.randrange(self.rows)
        if index is not None and r.random() < 0.5:
            row = affine(int(row), (index, r.randint(0, 1)))
        elif self.by_channel and r.random() < 0.3:
            row = affine(int(row), (1, 1))
        bank = r.choice(self.banks)
        count, largest = self.count(32)
        column, buffer = r.randint(0, 64 - largest), r.randint(0, 64 - largest)
        first = r.randint(0, 32 - largest)
        weighted = [
            ("MAC16", 6),
            ("MAC", 2),
            ("RD", 2),
            ("WR", 2),
            ("WRE", 1),
            ("RDCP", 1),
            ("WRCP", 1),
            ("ACT", 1),
            ("ACT16", 2),
            ("PRE", 1),
            ("PREA", 2),
            ("REF", 1),
            ("TMOD", 1),
            ("WRGB", 1 + 6 * self.register_bias),
            ("WRMAC16", 1 + 3 * self.register_bias),
            ("RDMAC16", 1 + 3 * self.register_bias),
        ]
        name = r.choices([n for n, _ in weighted], [w for _, w in weighted])[0]
        match name:
            case "MAC16":
                return ins(name, row=row, column=column, buffer=buffer, count=count)
            case "MAC":
                return ins(name, bank=bank, row=row, column=column, buffer=buffer, count=count)
            case "RD" | "WR":
                operand = "target" if name == "RD" else "source"
                return ins(name, bank=bank, row=row, column=column, count=count, **{operand: 32 * r.randint(0, 8)})
            case "WRE":
                return ins(name, bank=bank, row=row, column=column, lanes=1)
            case "RDCP" | "WRCP":
                return ins(name, bank=bank, row=row, column=column, buffer=buffer, count=count)
            case "ACT":
                return ins(name, bank=bank, row=row)
            case "ACT16":
                return ins(name, row=row)
            case "PRE":
                return ins(name, bank=bank)
            case "TMOD":
                return ins(name, mode=r.randint(0, 1))
            case "REF":
                return ins(name, when=r.randint(0, 1))
            case "WRGB":
                return ins(name, buffer=buffer, count=count)
            case "WRMAC16" | "RDMAC16":
                return ins(name, accumulator=first, count=count)
            case _:
                return ins(name)

    def loop(self, depth: int) -> list[Instr]:
        index = 9 + depth
        body: list[Instr] = []
        for _ in range(self.r.randint(0, 3)):
            if depth < 2 and self.r.random() < 0.2:
                body += self.loop(depth + 1)
            else:
                body.append(self.command(index) if self.r.random() < 0.8 else self.scalar())
        return [ins("LOOP", rd=index, body=len(body), count=self.r.randint(0, 3)), *body]

    def serial(self, engine: Engine) -> list[Instr]:
        r = self.r
        if r.random() < 0.3:
            return [self.scalar()]
        if engine is Engine.LINK:
            return [ins("XOUT", slot=0, blocks=r.randint(0, 3), bytes=64 * r.randint(0, 40), stride=64)]
        operations = [
            (r.choice(["add", "exp", "fma", "sin"]), r.choice([0, 12 + max(i - 1, 0)]) if i else 0, 0, 0)
            for i in range(r.randint(0, 4))
        ]
        result = r.choice([None, 0, 12 + len(operations) - 1 if operations else 0])
        return [vector_pass(r.randint(0, 300), r.randint(1, 4), operations, result)]

    def build(self, length: int) -> Program:
        engines = [Engine.CHANNEL] * 4 + self.r.choice([[], [Engine.VECTOR], [Engine.VECTOR, Engine.LINK]])
        used = sorted(set(engines), key=lambda e: e.value)
        for _ in range(length):
            engine = self.r.choice(engines)
            stream = self.streams[engine]
            kind = self.r.random()
            if kind < 0.12 and len(used) > 1:
                signal = engine.value * 8 + self.r.randint(0, 1)
                stream.append(ins("SIGNAL", signal=signal))
                self.signalled[signal] = self.signalled.get(signal, 0) + 1
            elif kind < 0.24 and self.signalled:
                signal = self.r.choice(sorted(self.signalled))
                stream.append(ins("WAIT", signal=signal, value=self.r.randint(0, self.signalled[signal])))
            elif engine is not Engine.CHANNEL:
                stream += self.serial(engine)
            elif kind < 0.34:
                stream += self.loop(0)
            elif kind < 0.44:
                stream += [self.scalar() for _ in range(self.r.randint(1, 6))]
            else:
                stream.append(self.command())
        return program(*(self.streams[e] for e in Engine), mask=self.r.choice([1, 2, 3, 3]))


def random_program(seed: int) -> Program:
    """A program that ends, of about 5 to 40 items in up to three streams."""
    generator = _Random(seed)
    return generator.build(generator.r.randint(5, 40))


def stepwise_program(seed: int) -> Program:
    """Channels and vector unit in turns: the channels fall into step at every wait, after a pass long or short."""
    generator = _Random(seed)
    channel: list[Instr] = []
    vector: list[Instr] = []
    for step in range(1, generator.r.randint(3, 8)):
        for _ in range(generator.r.randint(1, 8)):
            channel.append(generator.command() if generator.r.random() < 0.8 else generator.scalar())
        channel += [ins("SIGNAL", signal=0), ins("WAIT", signal=1, value=step)]
        vector += [ins("WAIT", signal=0, value=step), vector_pass(generator.r.choice([1, 400, 16000]))]
        vector.append(ins("SIGNAL", signal=1))
    channel.append(generator.command())
    return program(channel, vector, mask=3)


class _Layer:
    """Steps of a decode-like program; every one ends where the channels have met the vector unit."""

    def __init__(self, seed: int) -> None:
        self.base = _Random(seed)
        self.r = self.base.r
        self.steps = [[self.item() for _ in range(self.r.randint(1, 5))] for _ in range(self.r.randint(1, 4))]
        self.vector = [self.vector_step() for _ in self.steps]

    def item(self) -> list[Instr]:
        """Some commands that depend on arguments and on the channel, or not; every register is written before use."""
        r = self.r
        kind = r.random()
        if kind < 0.25:  # rows of weights, refreshed on the way
            body = [ins("MAC16", row=affine(r.randint(0, 3), (9, 1)), count=r.choice([8, 64])), ins("PREA"), ins("REF")]
            return [ins("LOOP", rd=9, body=3, count=r.randint(1, 12)), *body]
        if kind < 0.5:  # as often as the argument, shifted, says, on a row from memory
            index = affine(r.randint(0, 3), (1, r.randint(0, 1)))
            load = [ins("LDA", rd=2, index=index), ins("SHR", rd=3, a=affine(0, (2, 1)), b=r.randint(0, 2))]
            count = affine(r.randint(0, 1), (3, 1), *([(1, r.randint(-1, 1))] if r.random() < 0.5 else []))
            body = [ins("LDM", rd=4, address=affine(4, (9, 1))), *(self.command(9) for _ in range(r.randint(1, 3)))]
            return [*load, ins("LOOP", rd=9, body=len(body), count=count), *body]
        if kind < 0.6:
            return [ins("LDA", rd=4, index=r.randint(0, 3)), self.base.command()]
        if kind < 0.7:
            return [ins("TMOD", mode=r.randint(0, 1))]
        return [self.command(None)]

    def command(self, index: int | None) -> Instr:
        instr = self.base.command(index)
        if "row" in instr.words and index is not None and self.r.random() < 0.5:
            return replace(instr, words=instr.words | {"row": affine(self.r.randint(0, 1), (4, 1))})
        return instr

    def vector_step(self) -> list[Instr]:
        """A pass that may be longer for larger arguments."""
        r = self.r
        instrs = [ins("LDA", rd=2, index=r.randint(0, 3)), ins("SHR", rd=3, a=affine(0, (2, 1)), b=r.randint(0, 3))]
        length: int | Affine = r.choice([0, 16, 400, 3000])
        return [*instrs, vector_pass(affine(length, (r.choice([2, 3]), 16)) if r.random() < 0.5 else length)]


def layered_program(seed: int, layers: int = 4) -> Program:
    """The same steps layer after layer, on other rows: what a compiled decode step looks like to the cycle model.

    Loops, rows and passes depend on arguments (words 0 to 3), on page rows (from word 4) and on the channel; refreshes
    fall into every phase.
    """
    layer = _Layer(seed)
    pitch = layer.r.choice([0, 1, 5])
    channel: list[Instr] = []
    vector: list[Instr] = []
    for number in range(layers):
        for step, passes in zip(layer.steps, layer.vector, strict=True):
            for item in step:
                channel += [_further(instr, pitch * number) for instr in item]
            value = vector.count(ins("SIGNAL", signal=1)) + 1
            channel += [ins("SIGNAL", signal=0), ins("WAIT", signal=1, value=value)]
            vector += [ins("WAIT", signal=0, value=value), *passes, ins("SIGNAL", signal=1)]
    return program(channel, vector, mask=layer.r.choice([1, 3, 3]))


def _further(instr: Instr, rows: int) -> Instr:
    """The same command that many rows further; rows from memory stay."""
    row = instr.words.get("row")
    if not isinstance(row, Affine) or any(register == 4 for register, _ in row.terms):
        return instr
    return replace(instr, words=instr.words | {"row": replace(row, imm=row.imm + rows)})
