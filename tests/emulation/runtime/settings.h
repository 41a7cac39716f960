// How a process emulates: variables of its environment, see the README.
#ifndef PIPEWRIGHT_TESTS_EMULATION_RUNTIME_SETTINGS_H_
#define PIPEWRIGHT_TESTS_EMULATION_RUNTIME_SETTINGS_H_

#include <cstdint>
#include <cstdlib>
#include <random>

namespace emulated {

inline int64_t Setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Seed of the order of streams and threads: 0 threads in order, 1 the last one
// first, above that any.
inline int Seed() {
  static const int seed = static_cast<int>(Setting("EMULATION_SEED", 0));
  return seed;
}
inline std::mt19937& Random() {
  static std::mt19937 random(static_cast<unsigned>(Seed()));
  return random;
}
// Time passes, and nothing is computed.
inline bool ClockOnly() {
  static const bool only = Setting("EMULATION_CLOCK_ONLY", 0) != 0;
  return only;
}

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_RUNTIME_SETTINGS_H_
