"""The compiled file: a folder ``NAME.wl/`` that every device loads, written atomically and checked before use."""

from wordline.artifact.artifact import Artifact, open_artifact
from wordline.artifact.manifest import (
    LOGITS_BYTES,
    ArgumentNames,
    Chosen,
    Entry,
    Envelope,
    KvLayout,
    LogitsOutput,
    MachineRef,
    Manifest,
    MemoryMap,
    ModelInfo,
    Part,
    ScratchAllocation,
    Searched,
    SearchedStep,
    TokenizerInfo,
    WeightPlacement,
)
from wordline.artifact.write import ArtifactContents, EntryContents, check_target, write_artifact
from wordline.isa.provenance import Range

__all__ = [
    "LOGITS_BYTES",
    "ArgumentNames",
    "Artifact",
    "ArtifactContents",
    "Chosen",
    "Entry",
    "EntryContents",
    "Envelope",
    "KvLayout",
    "LogitsOutput",
    "MachineRef",
    "Manifest",
    "MemoryMap",
    "ModelInfo",
    "Part",
    "Range",
    "ScratchAllocation",
    "Searched",
    "SearchedStep",
    "TokenizerInfo",
    "WeightPlacement",
    "check_target",
    "open_artifact",
    "write_artifact",
]
