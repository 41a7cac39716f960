// Which ranks of a job were traced, and where each stands in its pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/kineto_rank.h"

namespace pipewright {

// What the user says; 0: nothing.
struct KinetoAxes {
  int64_t pp = 0;
  int64_t tp = 0;
  int64_t ep = 0;
  bool some_ranks = false;  // the other ranks were not traced
};

struct KinetoLayout {
  int64_t pp = 0;  // 0: not known
  int64_t tp = 1;
  bool tp_told = false;            // by the user or by the traces
  std::vector<int64_t> pipeline;   // pipeline rank of each trace; -1: unknown
  std::vector<std::string> notes;  // what is not known, for people
};

// From the process groups, or from what the user says; ranks of one stage then
// follow each other. Errors, kInvalidArgument: two traces of one rank, ranks
// that are missing though several were given, sizes that contradict each other
// or the user, several traces whose pipeline nobody tells, context parallelism.
absl::StatusOr<KinetoLayout> LayoutOfRanks(const std::vector<KinetoRank>& ranks,
                                           const KinetoAxes& axes);

}  // namespace pipewright
