"""The graph level: what one decode step computes, as typed tensors and a small set of operations."""

from wordline.graph.ir import Constant, Graph, Op, Value
from wordline.graph.types import SymDim, TensorType

__all__ = ["Constant", "Graph", "Op", "SymDim", "TensorType", "Value"]
