"""The native module was built as its numerics and its run-time dispatch need."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from wordline import _native


def test_it_is_cplusplus_20() -> None:
    info = _native.build_info()
    assert info["cplusplus"] >= 202002
    assert info["compiler"].split()[0] in ("gcc", "clang")


def test_each_variant_was_compiled_with_its_own_flags() -> None:
    simd = _native.build_info()["simd"]
    assert next(iter(simd)) == "portable"
    wanted = {
        "portable": {"vector_bits": 128, "fma": platform.machine() == "aarch64"},
        "avx2": {"vector_bits": 256, "fma": True},
        "avx512": {"vector_bits": 512, "fma": True},
    }
    assert simd == {name: wanted[name] for name in simd}


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists() or platform.machine() != "x86_64", reason="reads /proc/cpuinfo")
def test_the_variants_are_those_of_this_processor() -> None:
    flags = set(
        next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    )
    expected = ["portable"]
    if {"avx2", "fma"} <= flags:
        expected.append("avx2")
        if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
            expected.append("avx512")
    assert list(_native.build_info()["simd"]) == expected
