// A text as a gzip file.
#pragma once

#include <string>

namespace pipewright::testing {

std::string Gzip(const std::string& text);

}  // namespace pipewright::testing
