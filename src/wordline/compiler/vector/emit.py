"""A placed pass as an instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wordline.compiler.kernel.passes import PassOperand, PassResult, PassSpec, ScalarSource, SharedScalar
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernel.symbols import Register, SharedRegister
from wordline.isa.controller.vector import DTYPES, OP_BY_NAME, REDUCTIONS, SCALAR_KINDS
from wordline.isa.declare import InstructionSet
from wordline.isa.instruction import Instr, make


def pass_instruction(
    isa: InstructionSet,
    spec: PassSpec,
    place: Callable[[ScratchBuffer], int],
    register: Callable[[Register], int],
    shared: Callable[[SharedRegister], int],
) -> Instr:
    """VPASS for ``spec``, given the byte offset of each buffer and the number of each register.

    Limits of fields are checked when the instruction is encoded.
    """

    def scalar(source: ScalarSource) -> dict[str, int]:
        if isinstance(source, SharedScalar):
            kind = SCALAR_KINDS.index("shared_i32" if source.integer else "shared_f32")
            return {"kind": kind, "value": shared(source.register)}
        if isinstance(source, Register):
            return {"kind": SCALAR_KINDS.index("register_i32"), "value": register(source)}
        return {"kind": SCALAR_KINDS.index("f32"), "value": int(np.float32(source).view(np.uint32))}

    def layout(vector: PassOperand | PassResult) -> dict[str, int]:
        s0, s1, s2 = vector.strides
        rotate = isinstance(vector, PassOperand) and vector.rotate
        return {"s0": s0, "s1": s1, "s2": s2, "dtype": DTYPES.index(vector.dtype), "rotate": int(rotate)}

    def base(vector: PassOperand | PassResult) -> Any:
        return (vector.offset + place(vector.buffer)).resolve(register)

    n0, n1, n2 = (extent.resolve(register) for extent in spec.shape)
    results = [] if spec.result is None else [spec.result]
    return make(
        isa,
        "VPASS",
        n0=n0,
        n1=n1,
        n2=n2,
        low=spec.low.resolve(register),
        high=spec.high.resolve(register),
        operands=[{"base": base(o), "layout": layout(o)} for o in spec.operands],
        scalars=[{"scalar": scalar(s)} for s in spec.scalars],
        operations=[
            {"operation": {"op": OP_BY_NAME[o.op].code, **dict(zip("abc", o.sources, strict=False))}}
            for o in spec.operations
        ],
        result=[
            {"base": base(r), "layout": layout(r), "broadcast": {"channels": r.channels, "value": r.value}}
            for r in results
        ],
        reductions=[
            {"reduction": {"kind": REDUCTIONS.index(r.kind), "value": r.value, "shared": shared(r.register)}}
            for r in spec.reductions
        ],
    )
