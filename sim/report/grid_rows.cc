#include "sim/report/grid_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

constexpr std::array<Stream, 10> kLaneStreams = {
    Stream::kCollective,   Stream::kD2H,          Stream::kH2D,
    Stream::kGradientCopy, Stream::kMomentumCopy, Stream::kVarianceCopy,
    Stream::kMasterCopy,   Stream::kWeightCopy,   Stream::kCast,
    Stream::kCpu};

// The two passes of an (X&Y) block follow each other in the order. Returns
// whether there are any.
bool FindPairs(GridRow* row) {
  bool found = false;
  for (size_t index = 0; index + 1 < row->size(); ++index) {
    Box& first = (*row)[index];
    Box& second = (*row)[index + 1];
    const double tolerance = 1e-9 * std::abs(first.op->end_s);
    if (!first.op->joint || !second.op->joint ||
        second.op->start_s > first.op->end_s + tolerance) {
      continue;
    }
    found = true;
    first.joint_end_s = std::max(first.op->end_s, second.op->end_s);
    if (second.op->start_s < first.op->end_s - tolerance) {
      first.part = Part::kUpper;
      second.part = Part::kLower;
    }
    ++index;
  }
  return found;
}

}  // namespace

bool IsReplicaB(const TraceOp& op) {
  return op.kind == OpKind::kPass && op.pass.direction() == 1;
}

std::string BoxLabel(const Program& program, const TraceOp& op) {
  if (op.kind != OpKind::kPass) return "";
  if (program.schedule != nullptr && program.schedule->slices > 1) {
    return absl::StrCat(op.pass.microbatch(), "s", op.pass.slice());
  }
  return absl::StrCat(op.pass.microbatch());
}

GridRows CollectRows(const Program& program, const std::vector<TraceOp>& ops,
                     int replica, int iteration) {
  GridRows out;
  const size_t ranks = program.ranks.size();
  out.compute.resize(ranks);
  std::array<std::vector<GridRow>, kLaneStreams.size()> lanes;
  for (std::vector<GridRow>& lane : lanes) lane.resize(ranks);
  for (const TraceOp& op : ops) {
    if (op.iteration != iteration || op.replica != replica ||
        op.end_s <= op.start_s || op.rank < 0 ||
        static_cast<size_t>(op.rank) >= ranks) {
      continue;
    }
    GridRow* row = nullptr;
    if (op.stream == Stream::kCompute) row = &out.compute[op.rank];
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (op.stream == kLaneStreams[lane]) row = &lanes[lane][op.rank];
    }
    if (row == nullptr) continue;
    row->push_back({&op, StyleOf(op), Part::kWhole, 0});
    out.present[static_cast<size_t>(row->back().style)] = true;
    out.has_replica_b |= IsReplicaB(op);
    out.longest_label =
        std::max(out.longest_label, BoxLabel(program, op).size());
    out.start_s =
        out.boxes == 0 ? op.start_s : std::min(out.start_s, op.start_s);
    out.end_s = out.boxes == 0 ? op.end_s : std::max(out.end_s, op.end_s);
    ++out.boxes;
  }
  for (GridRow& row : out.compute) {
    std::stable_sort(row.begin(), row.end(),
                     [](const Box& one, const Box& other) {
                       return one.op->start_s < other.op->start_s;
                     });
    out.has_pairs |= FindPairs(&row);
  }
  for (std::vector<GridRow>& lane : lanes) {
    const auto used = [](const GridRow& row) { return !row.empty(); };
    if (std::any_of(lane.begin(), lane.end(), used)) {
      out.lanes.push_back(std::move(lane));
    }
  }
  return out;
}

}  // namespace pipewright
