"""Text form of graphs: MLIR's generic operation syntax.

`print_graph` and `parse_graph` are inverse to each other, except that weights are named, not printed, and come back
unbound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from wordline.errors import WordlineError
from wordline.graph.ir import Attr, Constant, Graph, Op, Value
from wordline.graph.opdef import Array
from wordline.graph.types import Dim, DType, SymDim, TensorType

_DIALECT = "wordline"
_ELEMENTS: dict[DType, str] = {"bf16": "bf16", "f32": "f32", "i32": "i32", "i64": "i64", "bool": "i1"}
_DTYPES: dict[str, DType] = {text: dtype for dtype, text in _ELEMENTS.items()}
_STORAGE: dict[DType, type[np.generic]] = {
    "bf16": np.float32,
    "f32": np.float32,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


def print_graph(graph: Graph, *, locations: bool = True) -> str:
    """The graph as an MLIR module in generic syntax.

    Args:
        graph: a verified graph.
        locations: print where in the model each operation comes from.
    """
    arguments = ", ".join(f"{_ssa(value)} : {_type(value.type)}" for value in graph.inputs)
    lines = ['"builtin.module"() ({', f'  "{_DIALECT}.graph"() ({{', f"  ^bb0({arguments}):"]
    for op in graph.ops:
        attrs = dict(op.attrs)
        inline = _inline_data(graph, op)
        text = ", ".join(f"{name} = {_attr(value)}" for name, value in attrs.items())
        if inline is not None:
            text += f", data = {_dense(inline, op.result.type)}"
        loc = f" loc({_quote(op.loc)})" if locations and op.loc else ""
        lines.append(
            f'    {_ssa(op.result)} = "{_DIALECT}.{op.kind}"({", ".join(_ssa(value) for value in op.operands)})'
            f"{f' {{{text}}}' if text else ''} : "
            f"({', '.join(_type(value.type) for value in op.operands)}) -> {_type(op.result.type)}{loc}"
        )
    outputs = graph.outputs
    lines.append(
        f'    "{_DIALECT}.output"({", ".join(_ssa(value) for value in outputs.values())}) '
        f"{{names = [{', '.join(_quote(name) for name in outputs)}]}} : "
        f"({', '.join(_type(value.type) for value in outputs.values())}) -> ()"
    )
    lines += [f"  }}) {{sym_name = {_quote(graph.name)}}} : () -> ()", "}) : () -> ()", ""]
    return "\n".join(lines)


def describe(op: Op) -> str:
    """One operation on one short line, for reports: "%7 = linear(%3, %4) : f32[batch, 1, 576]"."""
    attrs = ", ".join(
        f"{name}={'x'.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in op.attrs.items()
    )
    operands = ", ".join(str(value) for value in op.operands)
    inside = operands + ("; " if operands and attrs else "") + attrs
    return f"{op.result} = {op.kind}({inside}) : {op.result.type}"


def _inline_data(graph: Graph, op: Op) -> Array | None:
    if op.kind != "constant" or "name" not in op.attrs:
        return None
    constant = graph.constants[str(op.attrs["name"])]
    return constant.data if constant.inline else None


def _ssa(value: Value) -> str:
    return f"%{value.name or value.id}"


def _type(type: TensorType) -> str:
    dims = "".join(f"{dim if isinstance(dim, int) else '?'}x" for dim in type.shape)
    symbols = f', "{",".join(type.symbols)}"' if type.symbols else ""
    return f"tensor<{dims}{_ELEMENTS[type.dtype]}{symbols}>"


def _attr(value: Attr) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        return f"[{', '.join(str(dim) if isinstance(dim, int) else _quote(dim.name) for dim in value)}]"
    if isinstance(value, int):
        return f"{value} : i64"
    return f"{_float(value)} : f64"


def _float(value: float) -> str:
    if not math.isfinite(value):
        return f"0x{int(np.float64(value).view(np.uint64)):016X}"
    return _decimal(repr(value))


def _dense(data: Array, type: TensorType) -> str:
    def element(item: np.generic) -> str:
        if type.dtype == "bool":
            return "true" if item else "false"
        if not type.is_float:
            return str(int(item))
        # The shortest text of a float32; what is not finite is written as its bits.
        value = np.float32(item)
        return _decimal(str(value)) if np.isfinite(value) else f"0x{int(value.view(np.uint32)):08X}"

    def nested(part: Array) -> str:
        return element(part.dtype.type(part)) if part.ndim == 0 else f"[{', '.join(nested(row) for row in part)}]"

    return f"dense<{nested(np.asarray(data))}> : {_type(type)}"


def _decimal(text: str) -> str:
    """MLIR's float literals need a point before the exponent."""
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{mark}{exponent}"


def _quote(text: str) -> str:
    return '"' + "".join(_escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\{byte:02X}" for byte in char.encode())


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<ssa>%[A-Za-z0-9_.$-]+)
    | (?P<block>\^[A-Za-z0-9_]+)
    | (?P<tensor>tensor<[^">]*(?:"[^"]*")?>)
    | (?P<number>0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
    | (?P<arrow>->)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>[(){}\[\]<>,=:])
    )""",
    re.VERBOSE,
)


def parse_graph(text: str) -> Graph:
    """The graph that a text in the syntax of `print_graph` describes. It is not verified.

    Raises:
        WordlineError: "graph-syntax", with the line number.
    """
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._at = 0
        self._values: dict[str, Value] = {}

    def module(self) -> Graph:
        self._expect('"builtin.module"', "(", ")", "(", "{", f'"{_DIALECT}.graph"', "(", ")", "(", "{")
        self._take("block")
        self._expect("(")
        inputs: list[Value] = []
        while self._peek() != ")":
            name = self._take("ssa")
            self._expect(":")
            inputs.append(self._define(name, self._tensor()))
            self._accept(",")
        self._expect(")", ":")
        ops: list[Op] = []
        constants: dict[str, Constant] = {}
        while self._peek() != f'"{_DIALECT}.output"':
            ops.append(self._operation(constants))
        outputs = self._outputs()
        self._expect("}", ")")
        name = str(self._attributes()["sym_name"])
        self._expect(":", "(", ")", "->", "(", ")", "}", ")", ":", "(", ")", "->", "(", ")")
        return Graph(name, tuple(inputs), tuple(ops), outputs, constants)

    def _operation(self, constants: dict[str, Constant]) -> Op:
        result = self._take("ssa")
        self._expect("=")
        kind = _unquote(self._take("string")).removeprefix(f"{_DIALECT}.")
        operands = self._operands()
        attrs = self._attributes() if self._peek() == "{" else {}
        self._expect(":")
        self._types()
        self._expect("->")
        type = self._tensor()
        loc = ""
        if self._accept("loc"):
            self._expect("(")
            loc = _unquote(self._take("string"))
            self._expect(")")
        data = attrs.pop("data", None)
        if kind == "constant" and "name" in attrs:
            assert data is None or isinstance(data, np.ndarray)
            constants[str(attrs["name"])] = Constant(type, data, inline=data is not None)
        plain: dict[str, Attr] = {name: value for name, value in attrs.items() if not isinstance(value, np.ndarray)}
        return Op(kind, operands, plain, (self._define(result, type),), loc)

    def _outputs(self) -> dict[str, Value]:
        self._expect(f'"{_DIALECT}.output"')
        values = self._operands()
        self._expect("{", "names", "=", "[")
        names: list[str] = []
        while self._peek() != "]":
            names.append(_unquote(self._take("string")))
            self._accept(",")
        self._expect("]", "}", ":")
        self._types()
        self._expect("->", "(", ")")
        return dict(zip(names, values, strict=True))

    def _operands(self) -> tuple[Value, ...]:
        self._expect("(")
        operands: list[Value] = []
        while self._peek() != ")":
            name = self._take("ssa")
            if name not in self._values:
                raise self._error(f"{name} is used before it is defined")
            operands.append(self._values[name])
            self._accept(",")
        self._expect(")")
        return tuple(operands)

    def _types(self) -> None:
        """Operand types repeat what the definitions say."""
        self._expect("(")
        while self._peek() != ")":
            self._tensor()
            self._accept(",")
        self._expect(")")

    def _attributes(self) -> dict[str, Attr | NDArray[np.generic]]:
        self._expect("{")
        attrs: dict[str, Attr | NDArray[np.generic]] = {}
        while self._peek() != "}":
            name = self._take("word")
            self._expect("=")
            attrs[name] = self._attribute()
            self._accept(",")
        self._expect("}")
        return attrs

    def _attribute(self) -> Attr | NDArray[np.generic]:
        kind, token = self._tokens[self._at][:2]
        if kind == "string":
            return _unquote(self._take("string"))
        if token == "[":
            return self._dimensions()
        if token == "dense":
            return self._elements()
        number = self._take("number")
        self._expect(":")
        if self._take("word") == "i64":
            return int(number)
        if number.startswith("0x"):
            return float(np.uint64(int(number, 16)).view(np.float64))
        return float(number)

    def _dimensions(self) -> tuple[Dim, ...]:
        self._expect("[")
        dims: list[Dim] = []
        while self._peek() != "]":
            if self._tokens[self._at][0] == "string":
                dims.append(SymDim(_unquote(self._take("string"))))
            else:
                dims.append(int(self._take("number")))
            self._accept(",")
        self._expect("]")
        return tuple(dims)

    def _elements(self) -> NDArray[np.generic]:
        self._expect("dense", "<")
        items: list[str] = []
        while self._peek() != ">":
            kind, token = self._tokens[self._at][:2]
            if kind in ("number", "word"):
                items.append(token)
            self._at += 1
        self._expect(">", ":")
        type = self._tensor()
        storage = _STORAGE[type.dtype]
        shape = tuple(dim for dim in type.shape if isinstance(dim, int))
        return np.array([_element(item, type) for item in items], storage).reshape(shape)

    def _tensor(self) -> TensorType:
        body = self._take("tensor").removeprefix("tensor<").removesuffix(">")
        shape_text, _, quoted = body.partition(", ")
        *dims, element = shape_text.split("x")
        symbols = iter(quoted.strip('"').split(","))
        try:
            shape = tuple(SymDim(next(symbols)) if dim == "?" else int(dim) for dim in dims)
            return TensorType(_DTYPES[element], shape)
        except (KeyError, ValueError, RuntimeError) as error:
            raise self._error(f"'tensor<{body}>' is no tensor type") from error

    def _define(self, name: str, type: TensorType) -> Value:
        if name in self._values:
            raise self._error(f"{name} is defined twice")
        text = name[1:]
        value = Value(len(self._values), type, "" if text.isdigit() else text)
        self._values[name] = value
        return value

    def _split(self) -> Iterator[tuple[str, str, int]]:
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise _syntax(self._text, at, f"unexpected text '{self._text[at:].split()[0][:20]}'")
            kind = match.lastgroup
            assert kind is not None
            yield kind, match.group(kind), match.start(kind)
            at = match.end()
        yield "end", "", end

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _accept(self, token: str) -> bool:
        if self._peek() == token:
            self._at += 1
            return True
        return False

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            if not self._accept(token):
                raise self._error(f"expected '{token}', found '{self._peek() or 'the end'}'")

    def _take(self, kind: str) -> str:
        found, token, _ = self._tokens[self._at]
        if found != kind:
            raise self._error(f"expected a {kind}, found '{token or 'the end'}'")
        self._at += 1
        return token

    def _error(self, what: str) -> WordlineError:
        return _syntax(self._text, self._tokens[self._at][2], what)


def _element(item: str, type: TensorType) -> float | int | bool:
    if type.dtype == "bool":
        return item == "true"
    if not type.is_float:
        return int(item)
    return float(np.uint32(int(item, 16)).view(np.float32)) if item.startswith("0x") else float(item)


def _unquote(text: str) -> str:
    data = bytearray()
    parts: Mapping[str, str] = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
    body = text[1:-1]
    at = 0
    while at < len(body):
        if body[at] != "\\":
            data += body[at].encode()
            at += 1
        elif body[at + 1] in parts and not re.match(r"[0-9A-F]{2}", body[at + 1 : at + 3]):
            data += parts[body[at + 1]].encode()
            at += 2
        else:
            data.append(int(body[at + 1 : at + 3], 16))
            at += 3
    return data.decode()


def _syntax(text: str, at: int, what: str) -> WordlineError:
    return WordlineError("graph-syntax", what, where=f"line {text.count(chr(10), 0, at) + 1} of the graph text")
