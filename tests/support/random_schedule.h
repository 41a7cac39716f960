// Random numbers that are the same everywhere, and schedules made from them.
#pragma once

#include <cstdint>
#include <random>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  // The bytes decide as long as they last, two for each number: a fuzzer
  // changes one decision by changing two bytes.
  explicit Random(absl::string_view bytes) : engine_(1), bytes_(bytes) {}
  int Int(int low, int high) {
    return low + static_cast<int>(Next() % (high - low + 1));
  }
  // Multiples of 1/64: sums are exact, so engines must agree to the bit.
  double Time(double most) {
    return Int(0, static_cast<int>(most * 64)) / 64.0;
  }
  bool Chance(int percent) { return Int(1, 100) <= percent; }

 private:
  uint32_t Next() {
    if (bytes_.size() < 2) return static_cast<uint32_t>(engine_());
    const auto low = static_cast<unsigned char>(bytes_[0]);
    const auto high = static_cast<unsigned char>(bytes_[1]);
    bytes_.remove_prefix(2);
    return low + 256u * high;
  }

  std::mt19937 engine_;
  absl::string_view bytes_;
};

// A schedule that its registered row accepts, by position in the registry.
absl::StatusOr<Schedule> AnySchedule(size_t row, int pp, int microbatches);

// A position in the registry; one in six is that of a schedule that overlaps
// its iterations, as few of all do.
size_t AnyRow(Random& random);

// Sends the activations of some forwards to the host and back before their
// backward.
Schedule WithCopies(const Schedule& schedule, Random& random);

// Joins neighbouring F and BW into blocks, where nobody's order forbids it.
Schedule WithJointPairs(const Schedule& schedule, Random& random);

}  // namespace pipewright
