// One rank's Kineto trace, cut down to what an import needs: regions with
// their kernels, marks of layers, embedding and head, operators that say which
// part a backward belongs to and how large the products are.
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/kineto_names.h"
#include "sim/trace/trace_events.h"
#include "sim/trace/trace_regions.h"

namespace pipewright {

struct KinetoMark {
  NamedPart named;
  std::string name;
  std::string thread;
  double start_us = 0;
  double end_us = 0;
};

struct KinetoOp {
  TraceOpKind kind = TraceOpKind::kOther;
  std::string name;
  std::string thread;
  double start_us = 0;
  double end_us = 0;
  // Joins a node of the backward to the operators that made it; below 0: none.
  int64_t sequence = -1;
  bool is_node = false;  // a node of the backward
  std::vector<std::vector<int64_t>> dims;
};

struct KinetoRank {
  std::string source;
  TraceHeader header;
  TraceDevice device;  // that ran the kernels
  std::vector<TraceRegion> regions;
  std::vector<std::string> kernel_names;
  // By start.
  std::vector<KinetoMark> marks;
  std::vector<KinetoOp> ops;
  std::set<std::string> other_names;  // some that are no region
  bool has_kernels = false;
  int64_t num_orphans = 0;  // kernels that nothing launched
  int64_t num_instant = 0;  // kernels of no duration
};

// Reads as a stream: memory grows with kernels, regions, marks and operators,
// not with the file. `layer_name`: see PartNames. Errors: kInvalidArgument for
// a file that is no such trace, for a time below 0, and for a pattern that is
// no regular expression.
absl::StatusOr<KinetoRank> ReadKinetoRank(
    std::istream& in, const std::string& source_name,
    const std::array<std::string, kNumRegions>& patterns,
    const std::string& layer_name);

}  // namespace pipewright
