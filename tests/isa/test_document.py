"""The generated parts: the instruction tables of the documentation and the C++ header."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wordline.errors import WordlineError
from wordline.isa import GENERATIONS, instruction_set
from wordline.isa.affine import affine
from wordline.isa.assemble import assemble
from wordline.isa.declare import Engine, InstructionSet
from wordline.isa.document import BEGIN, END, document, main, own_document, replace_section
from wordline.isa.header import generate
from wordline.isa.header import main as header_main
from wordline.isa.instruction import encode, make

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "device-programs.md"
ISA = instruction_set("gddr6-aim")
SETS = [instruction_set(generation) for generation in GENERATIONS]
EVERY = pytest.mark.parametrize("isa", SETS, ids=lambda isa: isa.generation)


def test_the_pages_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert replace_section(text, document(ISA)) == text, (
        "run: python -m wordline.isa.document gddr6-aim docs/device-programs.md"
    )
    for isa in SETS:
        page = ROOT / "docs" / f"{isa.generation}.md"
        if isa is ISA:
            continue
        text = page.read_text(encoding="utf-8")
        assert replace_section(text, own_document(isa)) == text, (
            f"run: python -m wordline.isa.document --own {isa.generation} docs/{page.name}"
        )


def test_the_program_on_the_page_assembles() -> None:
    text = PAGE.read_text(encoding="utf-8")
    start = text.index("    stream channel mask=0x3")
    listing = text[start : text.index("\n## Instructions", start)]
    assert [len(s.instrs) for s in assemble(ISA, listing).streams] == [4, 2]


@EVERY
def test_every_instruction_is_documented(isa: InstructionSet) -> None:
    text, own = document(isa), own_document(isa)
    for instruction in isa.instructions:
        assert f"#### {instruction.name} ({instruction.opcode})\n" in text
        assert instruction.description in text
        assert (instruction.description in own) == (instruction.engines == (Engine.CHANNEL,))
    for instruction in isa.buffer.instructions if isa.buffer is not None else ():
        assert instruction.description in own


def test_operands_are_documented() -> None:
    text = document(ISA)
    assert "| `layout.s0` | bits 0-21, signed | stride of the outer index, bytes |" in text
    assert "| `scalar.kind` | bits 0-1, unsigned | source: 0 f32, 1 shared_f32, 2 register_i32, 3 shared_i32 |" in text


def test_the_page_needs_its_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WordlineError, match="no place for the instruction tables"):
        replace_section("nothing here", "tables")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nstale section\n{END}\nafter\n", encoding="utf-8")
    assert main(["gddr6-aim", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "stale section" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert main(["gddr6-aim", str(tmp_path / "missing.md")]) == 1
    assert "missing.md" in capsys.readouterr().err


def test_the_header_is_written_only_when_it_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "include" / "isa.hpp"
    assert header_main(["gddr6-aim", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == generate(ISA)
    os.utime(path, (1, 1))
    assert header_main(["gddr6-aim", "-o", str(path)]) == 0
    assert path.stat().st_mtime == 1
    path.write_text("old", encoding="utf-8")
    assert header_main(["gddr6-aim", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == generate(ISA)
    assert [p.name for p in path.parent.iterdir()] == ["isa.hpp"]
    assert header_main(["gddr9"]) == 1
    assert "no instruction set is declared" in capsys.readouterr().err


@EVERY
def test_the_generator_needs_nothing_besides_python(isa: InstructionSet) -> None:
    call = f"main(['{isa.generation}'])"
    code = f"import sys; from wordline.isa.header import main; {call}; assert 'numpy' not in sys.modules"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == generate(isa)


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_header_decodes_what_python_encodes(tmp_path: Path) -> None:
    mac16 = make(ISA, "MAC16", row=affine(-5, (4, -16384), (31, 7)), column=3, accumulator=affine(0, (2, 1)), count=64)
    layout = {"s0": -(1 << 21), "s1": (1 << 21) - 1, "s2": -2048, "dtype": 2, "rotate": 1}
    vpass = make(
        ISA,
        "VPASS",
        n0=7,
        high=affine(1, (3, 2)),
        operands=[{"base": 5, "layout": {}}, {"base": affine(-6, (9, 4)), "layout": layout}],
        scalars=[{"scalar": {"kind": 3, "value": 0xDEADBEEF}}],
        operations=[{"operation": {"op": 3, "a": 1, "b": 4, "c": 0}}, {"operation": {"op": 14, "a": 12}}],
        result=[{"base": 64, "layout": {"dtype": 1}, "broadcast": {"channels": 0x80000001, "value": 13}}],
        reductions=[{"reduction": {"kind": 2, "value": 12, "shared": 63}}],
    )
    loop = make(ISA, "LOOP", rd=31, body=65535, count=-1)
    checks = """
        constexpr auto m = Mac16::decode(mac16);
        static_assert(m.row == Affine{-5, 4, 31, -16384, 7} && m.accumulator.reg0 == 2 && m.count.imm == 64);
        constexpr std::int32_t r[32] = {0, 0, 9, 0, 1 << 20};
        static_assert(m.row.evaluate(r) == -5 && m.accumulator.evaluate(r) == 9 && m.column.evaluate(r) == 3);
        constexpr auto l = Loop::decode(loop);
        static_assert(l.rd == 31 && l.body == 65535 && l.count.imm == -1);
        constexpr auto v = Vpass::decode(vpass);
        static_assert(v.n_operands == 2 && v.n_scalars == 1 && v.n_operations == 2 && v.n_results == 1);
        static_assert(v.n0.imm == 7 && v.high == Affine{1, 3, 0, 2, 0});
        static_assert(v.operands[1].base.imm == -6 && v.operands[1].layout.s0 == -(1 << 21));
        static_assert(v.operands[1].layout.s1 == (1 << 21) - 1 && v.operands[1].layout.s2 == -2048);
        static_assert(v.operands[1].layout.dtype == Dtype::i32 && v.operands[1].layout.rotate == 1);
        static_assert(v.scalars[0].kind == ScalarKind::shared_i32 && v.scalars[0].value == 0xDEADBEEF);
        static_assert(v.operations[0].op == VectorOp::fma && v.operations[0].b == 4);
        static_assert(vector_op_arity[static_cast<int>(v.operations[1].op)] == 1);
        static_assert(v.result[0].broadcast.channels == 0x80000001 && v.result[0].layout.dtype == Dtype::f32);
        static_assert(v.reductions[0].kind == Reduction::argmax && v.reductions[0].shared == 63);
        static_assert(word_count(vpass[0]) == sizeof vpass / 8 && stated_word_count(vpass[0]) == word_count(vpass[0]));
        static_assert(word_count(0xFF) == 0 && name(Opcode::Mac16)[4] == '6');
        static_assert(runs_on(Opcode::Vpass, Engine::vector) && !runs_on(Opcode::Vpass, Engine::channel));
        static_assert(writes_register(Opcode::Lda) && !writes_register(Opcode::Sta));
    """
    arrays = "".join(
        f"constexpr std::uint64_t {name}[] = {{{', '.join(f'{word}ull' for word in encode(instr))}}};\n"
        for name, instr in (("mac16", mac16), ("vpass", vpass), ("loop", loop))
    )
    (tmp_path / "isa.hpp").write_text(generate(ISA), encoding="utf-8")
    source = tmp_path / "check.cpp"
    source.write_text(f'#include "isa.hpp"\nusing namespace wordline::gddr6_aim;\n{arrays}{checks}', encoding="utf-8")
    command = ["c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Werror", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_header_decodes_an_instruction_buffer(tmp_path: Path) -> None:
    isa = instruction_set("hbm2-pim")
    assert isa.buffer is not None
    words = {
        "mad": make(isa.buffer, "MAD", aam=1, dst=15, a=32, b=23, c=31),
        "jump": make(isa.buffer, "JUMP", target=31, count=65535),
    }
    arrays = "".join(
        f"constexpr std::uint64_t {name}[] = {{{encode(instr, isa.buffer.layout)[0]}ull}};\n"
        for name, instr in words.items()
    )
    checks = """
        constexpr auto m = buffer::Mad::decode(mad);
        static_assert(m.aam == 1 && m.dst == buffer::CrfRegister::GRF_B7 && m.a == buffer::CrfOperand::EVEN_BANK);
        static_assert(m.b == buffer::CrfOperand::SRF_M7 && m.c == buffer::CrfOperand::SRF_A7);
        constexpr auto j = buffer::Jump::decode(jump);
        static_assert(j.target == 31 && j.count == 65535);
        static_assert(mad[0] >> 32 == 0 && runs_on(Opcode::Pimrd, Engine::channel));
    """
    (tmp_path / "isa.hpp").write_text(generate(isa), encoding="utf-8")
    source = tmp_path / "check.cpp"
    source.write_text(f'#include "isa.hpp"\nusing namespace wordline::hbm2_pim;\n{arrays}{checks}', encoding="utf-8")
    command = ["c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Werror", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
