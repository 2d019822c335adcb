"""The compiled file: a folder ``NAME.wl/`` that every device loads, written atomically and checked before use."""

from wordline.artifact.artifact import Artifact, open_artifact
from wordline.artifact.manifest import (
    ArgumentNames,
    Entry,
    Envelope,
    KvLayout,
    LogitsOutput,
    MachineRef,
    Manifest,
    MemoryMap,
    ModelInfo,
    Part,
    Range,
    ScratchAllocation,
    TokenizerInfo,
    WeightPlacement,
)
from wordline.artifact.write import ArtifactContents, EntryContents, check_target, write_artifact

__all__ = [
    "ArgumentNames",
    "Artifact",
    "ArtifactContents",
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
    "TokenizerInfo",
    "WeightPlacement",
    "check_target",
    "open_artifact",
    "write_artifact",
]
