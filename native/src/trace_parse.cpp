#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "wordline/error.hpp"
#include "wordline/trace.hpp"

namespace wordline {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

enum class Field : std::uint8_t { opsize, gpr, mask, bank, row, id, data, channel };

struct FieldRule {
    const char* name;
    const char* expected;
};

constexpr std::array<FieldRule, 8> field_rules{{
    {"opsize", "a number of columns below 2^31"},
    {"gpr", "the number of a register of 256 bit"},
    {"channel_mask", "a mask of the machine's channels, such as 0x1"},
    {"bank", "a bank of the machine"},
    {"row", "a row below 2^30"},
    {"id", "the number of a register"},
    {"data", "a value below 2^30"},
    {"channel", "a channel of the machine"},
}};

struct Form {
    std::string_view name;
    TraceOp op;
    DramCommand command;
    std::uint8_t n_fields;
    std::array<Field, 4> fields;
};

using enum Field;
// Frequent ones first.
constexpr std::array<Form, 16> forms{{
    {"MAC_ABK", TraceOp::request, DramCommand::mac16, 3, {opsize, mask, row}},
    {"WR_BIAS", TraceOp::request, DramCommand::wrmac16, 2, {gpr, mask}},
    {"RD_MAC", TraceOp::request, DramCommand::rdmac16, 2, {gpr, mask}},
    {"WR_GB", TraceOp::request, DramCommand::wrgb, 3, {opsize, gpr, mask}},
    {"AF", TraceOp::request, DramCommand::af16, 1, {mask}},
    {"RD_AF", TraceOp::request, DramCommand::rdaf16, 2, {gpr, mask}},
    {"EWMUL", TraceOp::request, DramCommand::ewmul16, 3, {opsize, mask, row}},
    {"COPY_BKGB", TraceOp::request, DramCommand::rdcp, 4, {opsize, mask, bank, row}},
    {"COPY_GBBK", TraceOp::request, DramCommand::wrcp, 4, {opsize, mask, bank, row}},
    {"MAC_SBK", TraceOp::request, DramCommand::mac, 4, {opsize, mask, bank, row}},
    {"WR_SBK", TraceOp::request, DramCommand::wr, 4, {gpr, mask, bank, row}},
    {"RD_SBK", TraceOp::request, DramCommand::rd, 4, {gpr, mask, bank, row}},
    {"WR_ABK", TraceOp::request, DramCommand::wra16, 3, {gpr, mask, row}},
    {"EWADD", TraceOp::host, DramCommand::act, 3, {opsize, gpr, gpr}},
    {"SYNC", TraceOp::sync, DramCommand::act, 0, {}},
    {"EOC", TraceOp::eoc, DramCommand::act, 0, {}},
}};
constexpr Form gpr_access{"GPR", TraceOp::host, DramCommand::act, 1, {id}};
constexpr Form cfr_access{"CFR", TraceOp::host, DramCommand::act, 2, {id, data}};
constexpr Form memory_access{"MEM", TraceOp::request, DramCommand::rd, 3, {channel, bank, row}};
constexpr std::int64_t n_cfr = 3, cfr_activation_function = 2;

bool separates(char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r'; }

// At most 40 characters of a text, fit to be shown.
std::string shown(std::string_view text) {
    std::string result(text.substr(0, 40));
    for (char& c : result) {
        if (c < ' ' || c > '~') {
            c = '?';
        }
    }
    return "'" + result + (text.size() > 40 ? "...'" : "'");
}

class Parser {
public:
    Parser(std::string_view text, const std::string& name, const TraceForm& form)
        : at_(text.data()), end_(text.data() + text.size()), name_(name), form_(form), all_(static_cast<std::uint32_t>((std::uint64_t{1} << form.channels) - 1)) {}

    std::vector<TraceInstruction> run() {
        std::vector<TraceInstruction> trace;
        trace.reserve(std::min<std::size_t>(static_cast<std::size_t>(end_ - at_) / 16 + 1, std::size_t{1} << 20));
        while (at_ != end_) {
            ++line_;
            if (const std::string_view first = token(); !first.empty()) {
                trace.push_back(instruction(first));
                if (trace.back().op == TraceOp::eoc) {
                    return trace;
                }
            }
            next_line();
        }
        throw Error("bad-trace", "the trace ends without AiM EOC", name_, "add a last line 'AiM EOC'");
    }

private:
    [[noreturn, gnu::cold, gnu::noinline]] void refuse(const std::string& what, const std::string& expected) const {
        throw Error("bad-trace", what, name_ + ":" + std::to_string(line_), "expected " + expected);
    }

    // The next token of the line; empty at its end or at a comment.
    std::string_view token() {
        while (at_ != end_ && separates(*at_)) {
            ++at_;
        }
        if (at_ == end_ || *at_ == '\n' || *at_ == '#') {
            return {};
        }
        const char* const start = at_;
        while (at_ != end_ && *at_ != '\n' && !separates(*at_)) {
            ++at_;
        }
        return {start, static_cast<std::size_t>(at_ - start)};
    }

    void next_line() {
        if (at_ != end_ && *at_ != '\n') {  // a comment
            const void* const newline = std::memchr(at_, '\n', static_cast<std::size_t>(end_ - at_));
            at_ = newline == nullptr ? end_ : static_cast<const char*>(newline);
        }
        if (at_ != end_) {
            ++at_;
        }
    }

    TraceInstruction instruction(std::string_view first) {
        if (first == "AiM") {
            std::string_view name = token();
            if (name.starts_with("ISR_")) {
                name.remove_prefix(4);
            }
            for (const Form& form : forms) {
                if (form.name == name) {
                    return read("AiM ", form);
                }
            }
            if (name == "WR_AFLUT") {
                refuse("AiM WR_AFLUT is not supported, by the public simulator neither", "any other instruction: tables are loaded outside a trace");
            }
            unknown_instruction(name);
        }
        if (first == "W" || first == "R") {
            const std::string_view where = token();
            const char* const kind = first == "W" ? "W " : "R ";
            if (where == "GPR") {
                return read(kind, gpr_access);
            }
            if (where == "CFR") {
                return access_cfr(kind);
            }
            if (where == "MEM") {
                TraceInstruction access = read(kind, memory_access);
                access.command = first == "W" ? DramCommand::wr : DramCommand::rd;
                return access;
            }
            refuse(where.empty() ? "the line ends after " + std::string(first) : shown(where) + " cannot be accessed", "GPR, CFR or MEM after " + std::string(first));
        }
        refuse(shown(first) + " does not begin a line of a trace", "AiM, W, R or #");
    }

    [[noreturn]] void unknown_instruction(std::string_view name) const {
        std::string known;
        for (const Form& form : forms) {
            known += (known.empty() ? "" : ", ") + std::string(form.name);
        }
        refuse(name.empty() ? "the line ends after AiM" : shown(name) + " is not an AiM instruction", "one of " + known);
    }

    TraceInstruction access_cfr(const char* kind) {
        std::array<std::int64_t, 4> values{};
        fields(kind, cfr_access, values);
        if (values[0] >= n_cfr) {
            refuse("there is no CFR " + std::to_string(values[0]), "0 (BROADCAST), 1 (EWMUL_BG) or 2 (AFM)");
        }
        if (*kind == 'W' && values[0] == cfr_activation_function) {
            function_ = static_cast<std::int32_t>(values[1]);
        }
        return {TraceOp::host, DramCommand::act, 0, 0, -1, -1, line_};
    }

    // Reads the fields of a form, and that nothing follows them.
    void fields(const char* kind, const Form& form, std::array<std::int64_t, 4>& values) {
        for (std::size_t i = 0; i < form.n_fields; ++i) {
            const std::string_view text = token();
            if (text.empty()) {
                refuse(std::string(form.name) + " lacks its field " + field_rules[static_cast<std::size_t>(form.fields[i])].name, usage(kind, form));
            }
            values[i] = number(text);
            if (values[i] < 0 || values[i] > limit(form.fields[i])) {
                const FieldRule& rule = field_rules[static_cast<std::size_t>(form.fields[i])];
                refuse(std::string(rule.name) + " " + shown(text) + " is not valid", rule.expected);
            }
        }
        if (const std::string_view rest = token(); !rest.empty()) {
            refuse(shown(rest) + " follows the last field of " + std::string(form.name), usage(kind, form));
        }
    }

    TraceInstruction read(const char* kind, const Form& form) {
        std::array<std::int64_t, 4> values{};
        fields(kind, form, values);
        TraceInstruction result{form.op, form.command, form.op == TraceOp::host ? 0 : all_, 1, -1, -1, line_};
        if (form.op != TraceOp::request) {
            return result;
        }
        for (std::size_t i = 0; i < form.n_fields; ++i) {
            switch (form.fields[i]) {
                case opsize:
                    result.count = static_cast<std::int32_t>(values[i]);
                    break;
                case mask:
                    result.channels = channels_of(static_cast<std::uint32_t>(values[i]));
                    break;
                case channel:
                    result.channels = std::uint32_t{1} << values[i];
                    break;
                case bank:
                    result.bank = static_cast<std::int32_t>(values[i]);
                    break;
                case row:
                    result.row = static_cast<std::int32_t>(values[i]);
                    break;
                default:
                    break;
            }
        }
        if (result.command == DramCommand::af16) {
            result.row = form_.lut_row + function_;
        }
        if (result.channels == 0 || result.count == 0) {
            result.op = TraceOp::host;
        }
        return result;
    }

    std::uint32_t channels_of(std::uint32_t given) {
        if (!form_.reversed_mask) {
            return given;
        }
        if (given != last_mask_) {
            last_mask_ = given;
            last_channels_ = 0;
            for (std::int32_t bit = 0; bit < form_.channels; ++bit) {
                last_channels_ |= (given >> bit & 1U) << (form_.channels - 1 - bit);
            }
        }
        return last_channels_;
    }

    std::int64_t limit(Field field) const {
        switch (field) {
            case mask:
                return all_;
            case bank:
                return form_.banks - 1;
            case channel:
                return form_.channels - 1;
            case row:
            case data:
                return (std::int64_t{1} << 30) - 1;
            case gpr:
            case id:
                return std::numeric_limits<std::int64_t>::max();
            default:
                return largest;
        }
    }

    // Decimal or 0x hexadecimal; -1 if it is no number or beyond 64 bit.
    static std::int64_t number(std::string_view text) {
        const bool hexadecimal = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
        constexpr auto highest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        std::uint64_t value = 0;
        if (hexadecimal) {
            for (const char c : text.substr(2)) {
                const auto lower = static_cast<char>(c | 0x20);
                const int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
                if (digit < 0 || value >> 59 != 0) {
                    return -1;
                }
                value = value << 4 | static_cast<std::uint64_t>(digit);
            }
        } else {
            for (const char c : text) {
                const auto digit = static_cast<std::uint64_t>(c - '0');
                if (c < '0' || c > '9' || value > (highest - digit) / 10) {
                    return -1;
                }
                value = value * 10 + digit;
            }
        }
        return static_cast<std::int64_t>(value);
    }

    static std::string usage(const char* kind, const Form& form) {
        std::string text = "'";
        text.append(kind).append(form.name);
        for (std::size_t i = 0; i < form.n_fields; ++i) {
            text.append(" ").append(field_rules[static_cast<std::size_t>(form.fields[i])].name);
        }
        return text.append("'");
    }

    const char* at_;
    const char* const end_;
    const std::string& name_;
    const TraceForm& form_;
    const std::uint32_t all_;
    std::uint32_t line_ = 0;
    std::uint32_t last_mask_ = 0, last_channels_ = 0;
    std::int32_t function_ = 0;
};

}  // namespace

std::vector<TraceInstruction> parse_trace(std::string_view text, const std::string& name, const TraceForm& form) {
    return Parser(text, name, form).run();
}

std::vector<std::uint32_t> alike_channels(std::span<const TraceInstruction> trace, std::int32_t channels) {
    std::vector<std::uint32_t> parts{static_cast<std::uint32_t>((std::uint64_t{1} << channels) - 1)};
    std::uint32_t last = 0;
    for (const TraceInstruction& instruction : trace) {
        if (instruction.op != TraceOp::request || instruction.channels == last) {
            continue;
        }
        last = instruction.channels;
        for (std::size_t i = 0, n = parts.size(); i < n; ++i) {
            const std::uint32_t in = parts[i] & last;
            if (in != 0 && in != parts[i]) {
                parts[i] &= ~last;
                parts.push_back(in);
            }
        }
    }
    std::sort(parts.begin(), parts.end(), [](std::uint32_t a, std::uint32_t b) { return std::countr_zero(a) < std::countr_zero(b); });
    return parts;
}

void check_trace_cycle(std::int64_t cycle, const std::string& name, std::uint32_t line) {
    if (cycle > std::int64_t{1} << 56) [[unlikely]] {
        throw Error("bad-trace", "the trace takes more than 2^56 cycles", name + ":" + std::to_string(line), "split it, or check its sizes");
    }
}

void spread_schedule(std::vector<TraceEntry>& schedule, std::span<const std::uint32_t> parts) {
    const std::size_t recorded = schedule.size();
    for (std::size_t i = 0; i < recorded; ++i) {
        for (const std::uint32_t part : parts) {
            const std::int32_t first = std::countr_zero(part);
            if (schedule[i].channel == first) {
                for (std::uint32_t rest = part & (part - 1); rest != 0; rest &= rest - 1) {
                    TraceEntry copy = schedule[i];
                    copy.channel = std::countr_zero(rest);
                    schedule.push_back(copy);
                }
            }
        }
    }
    std::sort(schedule.begin(), schedule.end(), [](const TraceEntry& a, const TraceEntry& b) {
        return a.cycle != b.cycle ? a.cycle < b.cycle : a.channel < b.channel;
    });
}

}  // namespace wordline
