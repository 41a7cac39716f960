#ifndef PIPEWRIGHT_TESTS_EMULATION_NCCL_TEXT_H_
#define PIPEWRIGHT_TESTS_EMULATION_NCCL_TEXT_H_

#include <sstream>
#include <string>

namespace emulated_nccl {

// All parts, one after the other.
template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace emulated_nccl

#endif  // PIPEWRIGHT_TESTS_EMULATION_NCCL_TEXT_H_
