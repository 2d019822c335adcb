"""What the compiler does to make a program fast, each of which can be left out to see what it gains.

A program without one of them computes the same; where additions are in another order, it may round otherwise. Some are
left out by the compiler itself, where scratch or instruction memory do not suffice. What each gains is measured in
docs/optimisations.md, which has a section of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Optimisations:
    """What is done; everything, unless said otherwise.

    Attributes:
        rows_opened_ahead: programs open and close DRAM rows themselves, before they visit register mode.
        early_prologues: what needs no data is done before a task waits for its data.
        refresh_placed: programs refresh where it costs least.
        accumulators_grouped: all accumulators of a bank are in use between two read-outs.
        inputs_shared: all matrices with the same input are one matrix-vector product.
        inputs_split: K of a matrix may be divided; the vector unit adds up the partial sums.
        channels_grouped: every group of channels has KV heads of its own.
        rounds_overlapped: the scores of two rounds of KV heads are in scratch at once.
        pages_divided: attention may go through the pages in parts, on which banks and vector unit work by turns.
        appended_on_the_way: K and V are written while the rows of their pages are open for attention.
        vectors_fused: vector operations between two bank operations share passes.
        parameters_ahead: vector parameters are read from the banks before anybody waits for them.
        engines_overlapped: engines wait only for the data they need.
        waits_implied: a wait that an earlier one implies is left out.
        scratch_rested: bytes of scratch that were in use until lately are used again last.
    """

    rows_opened_ahead: bool = True
    early_prologues: bool = True
    refresh_placed: bool = True
    accumulators_grouped: bool = True
    inputs_shared: bool = True
    inputs_split: bool = True
    channels_grouped: bool = True
    rounds_overlapped: bool = True
    pages_divided: bool = True
    appended_on_the_way: bool = True
    vectors_fused: bool = True
    parameters_ahead: bool = True
    engines_overlapped: bool = True
    waits_implied: bool = True
    scratch_rested: bool = True

    def without(self, name: str) -> Optimisations:
        """These but ``name``."""
        return replace(self, **{name: False})

    def only(self, name: str) -> Optimisations:
        """Of these, ``name`` only."""
        return replace(NONE, **{name: getattr(self, name)})


NAMES = tuple(field.name for field in fields(Optimisations))
"""All of them, in order."""
ALL = Optimisations()
NONE = Optimisations(**dict.fromkeys(NAMES, False))
