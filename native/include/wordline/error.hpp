// The error that the native core raises for anything a caller can cause; Python sees it as wordline.errors.WordlineError.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace wordline {

class Error : public std::runtime_error {
public:
    Error(std::string code, const std::string& what, std::string where = {}, std::string remedy = {})
        : std::runtime_error(what), code(std::move(code)), where(std::move(where)), remedy(std::move(remedy)) {}

    std::string code;    // stable kebab-case name, such as "bad-program"
    std::string where;   // empty: not given
    std::string remedy;  // empty: not given
};

}  // namespace wordline
