// The operations of a simulated and of a measured run, one for one: what
// everything in sim/analysis/compare works on. Nothing here has a time of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/program/network.h"
#include "sim/trace/trace_read.h"

namespace pipewright {

enum Side : int { kSimulated = 0, kMeasured = 1 };
inline constexpr int kNumSides = 2;

struct PairedOp {
  TraceOp op;         // which operation it is; do not use its times
  int32_t peer = -1;  // receiving rank of a transfer
  // Meeting of a collective, the same for all members.
  int32_t meeting = -1;
  std::array<double, kNumSides> start_s{};
  std::array<double, kNumSides> end_s{};
  // False where that trace has no such operation: it then stands there without
  // a length at the end of what the rank did before.
  std::array<bool, kNumSides> present{true, true};

  double seconds(Side side) const { return end_s[side] - start_s[side]; }
};

struct PairedRun {
  std::string simulated;  // files
  std::string measured;
  std::string schedule;
  WaitRule wait_rule = WaitRule::kBuffered;
  int replicas = 0;  // data-parallel
  int pp = 0;
  int iterations = 0;  // that both have in full, from 0 on
  // Operations of those iterations; transfers once, as their sending. By
  // replica, rank and simulated start.
  std::vector<PairedOp> ops;
  std::vector<std::string> warnings;
};

// Both from 0 s on. A replica that the simulation does not tell is like its
// first. Error: kInvalidArgument where passes of one have no partner in the
// other, naming the first.
absl::StatusOr<PairedRun> PairRuns(const ReadTrace& simulated,
                                   const ReadTrace& measured);

// "F3 on rank 2", "message F3 rank 1 -> 2", "all-reduce on rank 0".
std::string OpLabel(const PairedOp& op);

}  // namespace pipewright
