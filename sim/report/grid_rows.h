// The contents of a schedule grid, before it is drawn: the operations of one
// replica and iteration sorted into rows and lanes. No pixels, no colours.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/report/palette.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

enum class Part : uint8_t { kWhole, kUpper, kLower };

struct Box {
  const TraceOp* op = nullptr;
  Style style = Style::kOther;
  // An overlapped pair (X&Y) that an engine gives one time shares the height.
  Part part = Part::kWhole;
  double joint_end_s = 0;  // end of an overlapped pair, on its first box
};

using GridRow = std::vector<Box>;  // by start

struct GridRows {
  std::vector<GridRow> compute;  // [rank]
  // Collectives, D2H, H2D, CPU, as far as there are any: [lane][rank].
  std::vector<std::vector<GridRow>> lanes;
  std::array<bool, kNumStyles> present{};
  bool has_replica_b = false;
  bool has_pairs = false;
  size_t boxes = 0;
  size_t longest_label = 1;  // letters
  double start_s = 0;
  double end_s = 0;
};

// Operations that take no time are left out.
GridRows CollectRows(const Program& program, const std::vector<TraceOp>& ops,
                     int replica, int iteration);

// True for the second replica of a bidirectional schedule.
bool IsReplicaB(const TraceOp& op);
// "3", or "3s1" with several slices; "" for what is no pass.
std::string BoxLabel(const Program& program, const TraceOp& op);

}  // namespace pipewright
