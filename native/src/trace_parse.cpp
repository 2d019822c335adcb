#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "wordline/error.hpp"
#include "wordline/trace.hpp"

namespace wordline {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max(), any = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t below_2_30 = (std::int64_t{1} << 30) - 1;

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

enum class Class : std::uint8_t { text, separator, newline };

constexpr std::array<Class, 256> classes = [] {
    std::array<Class, 256> table{};
    for (const char c : {' ', '\t', ',', '\r'}) {
        table[static_cast<unsigned char>(c)] = Class::separator;
    }
    table['\n'] = Class::newline;
    return table;
}();

Class class_of(char c) { return classes[static_cast<unsigned char>(c)]; }

constexpr std::array<std::int8_t, 256> digits = [] {
    std::array<std::int8_t, 256> table{};
    table.fill(-1);
    for (int digit = 0; digit < 16; ++digit) {
        table[static_cast<unsigned char>("0123456789abcdef"[digit])] = table[static_cast<unsigned char>("0123456789ABCDEF"[digit])] =
            static_cast<std::int8_t>(digit);
    }
    return table;
}();

int digit_of(char c) { return digits[static_cast<unsigned char>(c)]; }

// The first 8 characters of a name, zeros behind a shorter one.
constexpr std::uint64_t name_key(std::string_view name) {
    std::uint64_t key = 0;
    for (std::size_t i = 0; i < name.size() && i < 8; ++i) {
        key |= std::uint64_t{static_cast<unsigned char>(name[i])} << 8 * i;
    }
    return key;
}

constexpr std::array<std::uint64_t, forms.size()> form_keys = [] {
    std::array<std::uint64_t, forms.size()> keys{};
    for (std::size_t i = 0; i < forms.size(); ++i) {
        keys[i] = name_key(forms[i].name);
    }
    return keys;
}();

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
        : at_(text.data()),
          end_(text.data() + text.size()),
          name_(name),
          form_(form),
          all_(static_cast<std::uint32_t>((std::uint64_t{1} << form.channels) - 1)),
          limits_{largest, any, all_, form.banks - 1, below_2_30, any, below_2_30, form.channels - 1} {}

    std::vector<TraceInstruction> run() {
        trace_.reserve(std::min<std::size_t>(static_cast<std::size_t>(end_ - at_) / 16 + 1, std::size_t{1} << 20));
        while (at_ != end_) {
            ++line_;
            if (const std::string_view first = token(); !first.empty()) {
                instruction(first);
                if (trace_.back().op == TraceOp::eoc) {
                    return std::move(trace_);
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
        while (at_ != end_ && class_of(*at_) == Class::separator) {
            ++at_;
        }
        if (at_ == end_ || *at_ == '\n' || *at_ == '#') {
            return {};
        }
        const char* const start = at_;
        while (at_ != end_ && class_of(*at_) == Class::text) {
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

    // Reads the rest of a line and adds its instruction.
    void instruction(std::string_view first) {
        if (first == "AiM") {
            std::string_view name = token();
            if (name.starts_with("ISR_")) {
                name.remove_prefix(4);
            }
            const std::uint64_t key = key_of(name);
            for (std::size_t i = 0; i < forms.size(); ++i) {
                if (form_keys[i] == key && forms[i].name.size() == name.size() && (name.size() <= 8 || forms[i].name == name)) {
                    return read("AiM ", forms[i]);
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
                read(kind, memory_access);
                trace_.back().command = first == "W" ? DramCommand::wr : DramCommand::rd;
                return;
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

    void access_cfr(const char* kind) {
        read(kind, cfr_access);
        const std::int64_t number = values_[static_cast<std::size_t>(id)];
        if (number >= n_cfr) {
            refuse("there is no CFR " + std::to_string(number), "0 (BROADCAST), 1 (EWMUL_BG) or 2 (AFM)");
        }
        if (*kind == 'W' && number == cfr_activation_function) {
            function_ = static_cast<std::int32_t>(values_[static_cast<std::size_t>(data)]);
        }
    }

    // Reads the fields of a form, and that nothing follows them.
    void fields(const char* kind, const Form& form) {
        for (std::size_t i = 0; i < form.n_fields; ++i) {
            const auto field = static_cast<std::size_t>(form.fields[i]);
            const char* const before = at_;
            if (short_number(values_[field]) && values_[field] <= limits_[field]) [[likely]] {
                continue;
            }
            at_ = before;
            const FieldRule& rule = field_rules[field];
            const std::string_view text = token();
            if (text.empty()) {
                refuse(std::string(form.name) + " lacks its field " + rule.name, usage(kind, form));
            }
            values_[field] = number(text);
            if (values_[field] < 0 || values_[field] > limits_[field]) {
                refuse(std::string(rule.name) + " " + shown(text) + " is not valid", rule.expected);
            }
        }
        if (at_ != end_ && *at_ == '\n') [[likely]] {
            return;
        }
        if (const std::string_view rest = token(); !rest.empty()) {
            refuse(shown(rest) + " follows the last field of " + std::string(form.name), usage(kind, form));
        }
    }

    void read(const char* kind, const Form& form) {
        values_ = {1, 0, -1, -1, -1, 0, 0, -1};  // by Field, where the form has it not
        fields(kind, form);
        const auto value = [this](Field field) { return values_[static_cast<std::size_t>(field)]; };
        std::uint32_t channels = all_;
        if (value(mask) >= 0) {
            channels = channels_of(static_cast<std::uint32_t>(value(mask)));
        } else if (value(channel) >= 0) {
            channels = std::uint32_t{1} << value(channel);
        }
        const bool idle = form.op == TraceOp::host || channels == 0 || value(opsize) == 0;
        TraceInstruction& result = trace_.emplace_back();  // written in place: this is where the time of a trace goes
        result.op = idle ? TraceOp::host : form.op;
        result.command = form.command;
        result.channels = form.op == TraceOp::host ? 0 : channels;
        result.count = static_cast<std::int32_t>(value(opsize));
        result.bank = static_cast<std::int32_t>(value(bank));
        result.row = form.command == DramCommand::af16 ? form_.lut_row + function_ : static_cast<std::int32_t>(value(row));
        result.line = line_;
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

    // Reads the next token if it is a number of a usual length; false: look at it again more closely.
    bool short_number(std::int64_t& value) {
        const char* p = at_;
        while (p != end_ && class_of(*p) == Class::separator) {
            ++p;
        }
        const bool hexadecimal = end_ - p > 2 && p[0] == '0' && p[1] == 'x';
        p += hexadecimal ? 2 : 0;
        const int base = hexadecimal ? 16 : 10;
        const char* const first = p;
        const char* const last = end_ - p > 12 ? p + 12 : end_;
        std::int64_t result = 0;
        for (int digit = 0; p != last && (digit = digit_of(*p)) >= 0 && digit < base; ++p) {
            result = result * base + digit;
        }
        value = result;
        at_ = p;
        return p != first && p != last && class_of(*p) != Class::text;
    }

    // Decimal or 0x hexadecimal; -1 if it is no number or beyond 64 bit.
    static std::int64_t number(std::string_view text) {
        const bool hexadecimal = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
        constexpr auto highest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        std::uint64_t value = 0;
        if (hexadecimal) {
            for (const char c : text.substr(2)) {
                const int digit = digit_of(c);
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

    // name_key() of a token, which lies in the text: by one load where the text goes on for so long.
    std::uint64_t key_of(std::string_view name) const {
        if constexpr (std::endian::native == std::endian::little) {
            if (end_ - name.data() >= 8 && name.size() > 0) {
                std::uint64_t key = 0;
                std::memcpy(&key, name.data(), 8);
                return name.size() >= 8 ? key : key & ((std::uint64_t{1} << 8 * name.size()) - 1);
            }
        }
        return name_key(name);
    }

    const char* at_;
    const char* const end_;
    const std::string& name_;
    const TraceForm& form_;
    const std::uint32_t all_;
    const std::array<std::int64_t, 8> limits_;  // by Field
    std::uint32_t line_ = 0;
    std::uint32_t last_mask_ = 0, last_channels_ = 0;
    std::int32_t function_ = 0;
    std::array<std::int64_t, 8> values_{};  // of the fields of the current line, by Field
    std::vector<TraceInstruction> trace_;
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
    if (cycle > last_trace_cycle) [[unlikely]] {
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
