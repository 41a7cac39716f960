// Faults that are put into a run on purpose, in the executor only, to see
// whether `compare` names them and whether a run ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/schedule/pass.h"

namespace pipewright {

struct Program;

struct Faults {
  // Passes of this kind take `factor` times as long, on all ranks or on one.
  struct SlowPass {
    std::optional<PassKind> kind;  // none: every kind
    int rank = -1;                 // -1: all
    double factor = 1;
  };
  std::vector<SlowPass> slow_passes;
  // The `number`-th message (from 0) that `rank` sends to another rank in
  // iteration `iteration` comes `seconds` late, or, below 0, never.
  struct LateMessage {
    int rank = 0;
    int iteration = 0;
    int64_t number = 0;
    double seconds = 0;
  };
  std::vector<LateMessage> late_messages;
  // The rank ends its process, or its thread, before this pass.
  struct Death {
    int rank = 0;
    int iteration = 0;
    int64_t position = 0;
  };
  std::optional<Death> death;
  // Every microbatch counts the same, however many tokens it has: what
  // frameworks have done. For tests.
  bool weighs_microbatches = false;

  bool any() const {
    return !slow_passes.empty() || !late_messages.empty() || death ||
           weighs_microbatches;
  }
};

// `slow`: KIND[@RANK]:FACTOR, "B:1.3", "*@2:1.1". `late`:
// RANK:ITERATION:MESSAGE:SECONDS. Error: kInvalidArgument naming --fault-slow
// or --fault-late.
absl::StatusOr<Faults> ParseFaults(const std::vector<std::string>& slow,
                                   const std::vector<std::string>& late);

// Error: kInvalidArgument for a rank, iteration or kind of pass that `program`
// has not, so that a fault which never comes does not look harmless.
absl::Status CheckFaults(const Faults& faults, const Program& program);

}  // namespace pipewright
