// The numbers of DESIGN section 3, computed once and printed in every form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace pipewright {

struct GlobalAndPerRank {
  double global = 0;
  double per_rank = 0;
};

struct RankReport {
  int rank = 0;
  double busy_s = 0;
  double span_s = 0;
  double idle_s = 0;  // span - busy
  double first_start_s = 0;
  double last_end_s = 0;
  double peak_activations = 0;
  // Device of this rank in each data-parallel replica; empty without a system.
  std::vector<int> devices;
};

// Times of the slowest data-parallel replica.
struct Report {
  std::string schedule;
  std::string engine;
  std::string network;  // "hop 0.601 ms", "dgx-h100 (native)", "free"
  int pp = 1;
  int vpp = 1;
  int microbatches = 1;
  int slices = 1;
  int data_parallel = 1;
  GlobalAndPerRank span_s;
  double busy_s = 0;  // busiest rank
  GlobalAndPerRank bubble_fraction;
  GlobalAndPerRank bubble_overhead;
  double iteration_s = 0;
  int iterations = 1;
  bool steady = false;
  std::vector<double> peak_activations;
  std::vector<RankReport> ranks;
  int64_t ops = 0;
  double bytes_sent = 0;
  std::string mapping;  // ranks on devices, for people; empty without a system
  std::vector<std::string> warnings;  // also on standard error
  // What these times leave out, as words: "kernel launch gaps".
  std::vector<std::string> not_modelled;
};

// `peak_activations`: one a rank. Strings about engine and network are the
// caller's to fill in.
Report Summarize(const Program& program, const RunSummary& run,
                 std::vector<double> peak_activations);

// One JSON object, keys of DESIGN section 3. Numbers read back exactly.
std::string ReportToJson(const Report& report);

// For people: both bubble definitions named, a table by rank.
std::string ReportToText(const Report& report);

}  // namespace pipewright
