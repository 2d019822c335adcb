#include "wordline/timing_segments.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <ranges>

namespace wordline {
namespace {

constexpr std::uint8_t all_bits = 31;
constexpr std::uint32_t every_register = ~std::uint32_t{1};

constexpr std::uint32_t bit(std::uint8_t number) { return number == 0 ? 0 : std::uint32_t{1} << number; }

bool varies(const isa::Affine& operand) { return (operand.reg0 != 0 && operand.stride0 != 0) || (operand.reg1 != 0 && operand.stride1 != 0); }

std::uint32_t reads(const isa::Affine& operand) {
    return (operand.stride0 != 0 ? bit(operand.reg0) : 0) | (operand.stride1 != 0 ? bit(operand.reg1) : 0);
}

// Registers on which the time of an instruction, whether it faults, or a value that later ones read may depend.
std::uint32_t reads(const Stream& stream, const Operation& op) {
    std::uint32_t mask = 0;
    for (const isa::Affine& operand : op.operands) {
        mask |= reads(operand);
    }
    if (op.opcode == Opcode::Vpass) {  // the unmasked range and the scalars change values only
        const PassForm& form = stream.passes[op.extra];
        mask |= reads(form.extents[0]) | reads(form.extents[1]) | reads(form.extents[2]);
        for (std::size_t i = 0; i < form.n_operands; ++i) {
            mask |= reads(form.bases[i]);
        }
        mask |= form.has_result ? reads(form.result_base) : 0;
    }
    return mask;
}

std::uint32_t writes(const Operation& op) { return isa::writes_register(op.opcode) ? bit(op.rd) : 0; }

std::uint32_t after(const Stream& stream, std::uint32_t at) {
    const Operation& op = stream.operations[at];
    return op.opcode == Opcode::Loop ? std::max(op.extra, at + 1) : at + 1;
}

// Positions of the instructions first .. last - 1 that are in no loop of that range.
std::vector<std::uint32_t> outside_loops(const Stream& stream, std::uint32_t first, std::uint32_t last) {
    std::vector<std::uint32_t> positions;
    for (std::uint32_t at = first; at < last; at = after(stream, at)) {
        positions.push_back(at);
    }
    return positions;
}

// Registers that are read before they are written from `first` on, given those that are after `last`.
std::uint32_t live_before(const Stream& stream, std::uint32_t first, std::uint32_t last, std::uint32_t live) {
    for (const std::uint32_t at : outside_loops(stream, first, last) | std::views::reverse) {
        const Operation& op = stream.operations[at];
        if (op.opcode == Opcode::Loop) {  // the body may not run, so it ends no register's life
            live |= reads(stream, op) | (live_before(stream, at + 1, op.extra, 0) & ~writes(op));
        } else {
            live = (live & ~writes(op)) | reads(stream, op);
        }
    }
    return live;
}

bool is_shift_of(const Operation& op, std::uint8_t reg) {
    const isa::Affine& value = op.operands[0];
    const bool plain = value.imm == 0 && ((value.reg0 == reg && value.stride0 == 1 && value.stride1 == 0) ||
                                          (value.reg1 == reg && value.stride1 == 1 && value.stride0 == 0));
    return op.opcode == Opcode::Shr && plain && !varies(op.operands[1]);
}

// The LOOPs of first .. last - 1, and `loop` around them, whose bodies read a register outside further loops.
void add_loops_reading(const Stream& stream, std::uint32_t loop, std::uint32_t first, std::uint32_t last, std::uint8_t reg,
                       std::vector<std::uint32_t>& loops) {
    for (const std::uint32_t at : outside_loops(stream, first, last)) {
        const Operation& op = stream.operations[at];
        if ((reads(stream, op) & bit(reg)) != 0) {
            loops.push_back(loop);
        }
        if (op.opcode == Opcode::Loop) {
            add_loops_reading(stream, at, at + 1, op.extra, reg, loops);
        }
    }
}

// How the value matters that a register has before instruction `from`, outside the loops of the range up to `end`.
struct Use {
    std::uint8_t shift = all_bits;       // every reader shifts it right by at least that, but for readers within loops
    std::vector<std::uint32_t> loops{};  // that have such readers
    bool stays = true;                   // nothing in the range writes the register
};

Use use_of(const Stream& stream, std::uint8_t reg, std::uint32_t from, std::uint32_t end) {
    Use use;
    for (std::uint32_t at = from; at < end; at = after(stream, at)) {
        const Operation& op = stream.operations[at];
        if ((reads(stream, op) & bit(reg)) != 0) {
            use.shift = is_shift_of(op, reg) ? std::min(use.shift, static_cast<std::uint8_t>(op.operands[1].imm & all_bits)) : std::uint8_t{0};
        }
        if (op.opcode == Opcode::Loop) {
            add_loops_reading(stream, at, at + 1, op.extra, reg, use.loops);
            for (std::uint32_t inner = at; inner < op.extra; ++inner) {
                if ((writes(stream.operations[inner]) & bit(reg)) != 0) {  // perhaps: what it is afterwards depends on all of it
                    return {0, {}, false};
                }
            }
        } else if ((writes(op) & bit(reg)) != 0) {
            use.stays = false;
            break;
        }
    }
    if (!use.loops.empty() && stream.engine != Engine::channel) {  // only channels look ahead at what loops they enter
        use.shift = 0;
    }
    return use;
}

void find_shifts(const Stream& stream, std::uint32_t first, std::uint32_t last, bool in_loop, std::uint32_t live, StreamSegments& found) {
    for (const std::uint32_t at : outside_loops(stream, first, last)) {
        const Operation& op = stream.operations[at];
        if (op.opcode == Opcode::Lda || op.opcode == Opcode::Ldm) {
            const Use use = use_of(stream, op.rd, at + 1, last);
            const bool leaves = use.stays && (live & bit(op.rd)) != 0;
            if (leaves && in_loop) {
                continue;  // all of it may matter in the next round, or after the loop
            }
            found.load_shift[at] = use.shift;
            found.load_leaves[at] = leaves;
            for (const std::uint32_t loop : use.loops) {
                found.loads_used_in[loop].push_back(at);
            }
        } else if (op.opcode == Opcode::Loop) {
            find_shifts(stream, at + 1, op.extra, true, every_register, found);
        }
    }
}

// The same for what registers hold when the segment begins.
void find_input_shifts(const Stream& stream, Segment& segment, StreamSegments& found) {
    for (std::uint32_t mask = segment.inputs; mask != 0; mask &= mask - 1) {
        const auto reg = static_cast<std::uint8_t>(std::countr_zero(mask));
        const Use use = use_of(stream, reg, segment.first, segment.last);
        segment.input_shift[reg] = use.shift;
        segment.by_channel |= !use.loops.empty();
        for (const std::uint32_t loop : use.loops) {
            found.inputs_used_in[loop].push_back(reg);
        }
    }
}

constexpr std::int8_t none = -1;

// Positions of the operands of a channel instruction that matter for time.
struct TimedOperands {
    std::int8_t count = none, bank = none, row = none;
};

TimedOperands timed_operands(Opcode opcode) {
    switch (opcode) {
        case Opcode::Loop:
            return {0, none, none};
        case Opcode::Act:
        case Opcode::Wre:
            return {none, 0, 1};
        case Opcode::Act16:
            return {none, none, 0};
        case Opcode::Pre:
            return {none, 0, none};
        case Opcode::Mac16:
            return {4, none, 0};
        case Opcode::Mac:
            return {5, 0, 1};
        case Opcode::Rd:
        case Opcode::Wr:
            return {3, 0, 1};
        case Opcode::Rdcp:
        case Opcode::Wrcp:
            return {4, 0, 1};
        case Opcode::Wrgb:
        case Opcode::Wrmac16:
        case Opcode::Rdmac16:
            return {1, none, none};
        default:
            return {};
    }
}

// Instructions as far as they matter for time, but for what a path names.
std::vector<std::int64_t> shape_of(const Stream& stream, const Segment& segment) {
    std::vector<std::int64_t> shape;
    for (std::uint32_t at = segment.first; at < segment.last; ++at) {
        const Operation& op = stream.operations[at];
        const TimedOperands timed = timed_operands(op.opcode);
        const bool scalar = op.opcode != Opcode::Loop && isa::writes_register(op.opcode);  // all take one slot
        shape.push_back(scalar ? 0 : static_cast<std::int64_t>(op.opcode) << 8 | op.field);
        if (op.opcode == Opcode::Loop) {
            shape.push_back(op.extra - at);
        }
        for (const std::int8_t position : {timed.count, timed.bank}) {
            if (position != none) {
                const isa::Affine& operand = op.operands[static_cast<std::size_t>(position)];
                shape.push_back(varies(operand) ? std::int64_t{1} << 40 : operand.imm);
            }
        }
    }
    return shape;
}

}  // namespace

StreamSegments find_segments(const Stream& stream) {
    const auto end = static_cast<std::uint32_t>(stream.operations.size());
    StreamSegments found;
    found.load_shift.resize(end);
    found.load_leaves.resize(end);
    for (const Operation& op : stream.operations) {
        const TimedOperands timed = timed_operands(op.opcode);
        const auto names = [&op](std::int8_t position) { return position != none && varies(op.operands[static_cast<std::size_t>(position)]); };
        found.path.push_back({names(timed.count), names(timed.bank), timed.row != none, false});
    }
    std::uint32_t live = 0;    // before the instruction last looked at
    std::uint32_t last = end;  // where a segment that begins after it ends
    std::uint32_t live_after_last = 0;
    const auto add = [&](std::uint32_t first) {
        Segment segment{first, last};
        bool independent = first < last;
        for (std::uint32_t i = first; i < last; ++i) {
            const Operation& op = stream.operations[i];
            independent &= op.opcode != Opcode::Sta && op.opcode != Opcode::Wait;
            segment.written |= writes(op);
        }
        if (independent) {
            segment.inputs = live_before(stream, first, last, live_after_last & segment.written);
            find_shifts(stream, first, last, false, live_after_last, found);
            find_input_shifts(stream, segment, found);
            found.segments.push_back(segment);
        }
    };
    for (const std::uint32_t at : outside_loops(stream, 0, end) | std::views::reverse) {
        const Opcode opcode = stream.operations[at].opcode;
        if (opcode == Opcode::Wait || opcode == Opcode::Signal) {
            add(at + 1);
            last = opcode == Opcode::Wait ? at : at + 1;
            live_after_last = opcode == Opcode::Wait ? live_before(stream, at, at + 1, live) : live;
        }
        live = live_before(stream, at, after(stream, at), live);
    }
    add(0);
    std::ranges::reverse(found.segments);
    for (const auto& [loop, loads] : found.loads_used_in) {
        found.path[loop].uses_whole = true;
    }
    for (const auto& [loop, inputs] : found.inputs_used_in) {
        found.path[loop].uses_whole = true;
    }
    if (stream.engine == Engine::channel) {
        std::map<std::vector<std::int64_t>, std::uint32_t> shapes;
        for (Segment& segment : found.segments) {
            segment.shape = shapes.try_emplace(shape_of(stream, segment), static_cast<std::uint32_t>(shapes.size())).first->second;
        }
        found.shapes = static_cast<std::uint32_t>(shapes.size());
    }
    return found;
}

}  // namespace wordline
