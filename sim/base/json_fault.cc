#include "sim/base/json_fault.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"

namespace pipewright {

absl::Status JsonFault(absl::string_view text, absl::string_view source) {
  try {
    [[maybe_unused]] const auto json =
        nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    // A number out of range has no place.
    const auto* const syntax =
        dynamic_cast<const nlohmann::json::parse_error*>(&error);
    int64_t line = 0;
    if (syntax != nullptr) {
      // `byte` counts from 1, and is 0 where nobody knows.
      const size_t before =
          std::min(std::max<size_t>(syntax->byte, 1) - 1, text.size());
      line = 1 + std::count(text.begin(), text.begin() + before, '\n');
    }
    return InFile(source, line,
                  absl::InvalidArgumentError(JsonFaultOf(error.what())));
  }
  return absl::OkStatus();
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
std::string JsonFaultOf(absl::string_view message) {
  const size_t start = message.find(": ");
  return absl::StrCat("not JSON: ", start == absl::string_view::npos
                                        ? message
                                        : message.substr(start + 2));
}

}  // namespace pipewright
