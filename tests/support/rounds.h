// How often a test with random cases runs.
#pragma once

#include <cstdlib>

namespace pipewright::testing {

// `rounds`, or the part of them that PIPEWRIGHT_TEST_ROUNDS says (0.125): with
// sanitizers each takes ten times as long, and few show what they look for.
inline int Rounds(int rounds) {
  const char* const part = std::getenv("PIPEWRIGHT_TEST_ROUNDS");
  const double factor = part == nullptr ? 1 : std::atof(part);
  return static_cast<int>(rounds * (factor > 0 && factor < 1 ? factor : 1));
}

}  // namespace pipewright::testing
