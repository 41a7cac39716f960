#include "calibrate/kineto_rank.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// The names are tried in this order, because "backward_weight" is a backward
// too.
constexpr Region kTried[] = {Region::kBackwardWeight, Region::kBackwardInput,
                             Region::kBackwardFull, Region::kForward,
                             Region::kOptimizer};

constexpr absl::string_view kNode = "autograd::engine::evaluate_function: ";

class RankReader {
 public:
  RankReader(PartNames names, KinetoRank* rank)
      : names_(std::move(names)), rank_(*rank) {}

  absl::Status See(const TraceEvent& event) {
    if (event.phase != "X" || !event.start_us || !event.duration_us) {
      return absl::OkStatus();
    }
    if (!(*event.duration_us >= 0)) {
      return BadValue("dur", absl::StrCat(*event.duration_us), "0 or more");
    }
    if (event.category == "kernel") {
      if (const double* device = event.Number("device")) {
        ++kernels_of_device_[std::llround(std::clamp(*device, -1.0, 1e6))];
      }
      rank_.num_instant += *event.duration_us == 0 ? 1 : 0;
    } else if (event.category == "cpu_op") {
      SeeOperator(event);
    }
    const bool is_module = absl::StartsWith(event.name, "nn.Module: ");
    if (is_module || event.category == "user_annotation") SeeMark(event);
    return absl::OkStatus();
  }

  // The device that most kernels ran on.
  int64_t device() const {
    int64_t most = 0;
    int64_t found = -1;
    for (const auto& [device, count] : kernels_of_device_) {
      if (count > most) found = device;
      most = std::max(most, count);
    }
    return found;
  }

 private:
  void SeeMark(const TraceEvent& event) {
    const std::optional<NamedPart>& named = names_.Of(event.name);
    if (!named) return;
    rank_.marks.push_back({*named, event.name, event.thread, *event.start_us,
                           *event.start_us + *event.duration_us});
  }

  void SeeOperator(const TraceEvent& event) {
    const double* const sequence = event.Number("Sequence number");
    KinetoOp op = {.kind = Kind(event.name),
                   .name = event.name,
                   .thread = event.thread,
                   .start_us = *event.start_us,
                   .end_us = *event.start_us + *event.duration_us,
                   .is_node = absl::StartsWith(event.name, kNode)};
    if (sequence != nullptr && *sequence >= 0 && *sequence < 1e15) {
      op.sequence = std::llround(*sequence);
    }
    const bool is_backward =
        !op.is_node && absl::StrContains(event.name, "ackward");
    if (is_backward) return;
    if (op.sequence < 0 && !op.is_node && op.kind == TraceOpKind::kOther) {
      return;
    }
    if (op.kind != TraceOpKind::kOther) op.dims = event.input_dims;
    rank_.ops.push_back(std::move(op));
  }

  TraceOpKind Kind(const std::string& name) {
    const auto found = kinds_.find(name);
    if (found != kinds_.end()) return found->second;
    return kinds_.emplace(name, TraceOpKindOf(name)).first->second;
  }

  PartNames names_;
  KinetoRank& rank_;
  std::unordered_map<std::string, TraceOpKind> kinds_;
  std::map<int64_t, int64_t> kernels_of_device_;
};

// If no kernel says its device, all have to be alike.
TraceDevice DeviceOf(const TraceHeader& header, int64_t id) {
  for (const TraceDevice& device : header.devices) {
    if (device.id == id) return device;
  }
  return header.devices.empty() ? TraceDevice{} : header.devices[0];
}

}  // namespace

absl::StatusOr<KinetoRank> ReadKinetoRank(
    std::istream& in, const std::string& source_name,
    const std::array<std::string, kNumRegions>& patterns,
    const std::string& layer_name) {
  PW_ASSIGN_OR_RETURN(const std::vector<RegionPattern> compiled,
                      CompileRegions(patterns, kTried));
  PW_ASSIGN_OR_RETURN(PartNames names, PartNames::Create(layer_name));
  KinetoRank rank;
  rank.source = source_name;
  RegionReader regions(compiled,
                       {"user_annotation", "gpu_user_annotation", "cpu_op"},
                       /*keep_kernels=*/true);
  RankReader reader(std::move(names), &rank);
  PW_RETURN_IF_ERROR(ReadTraceEvents(
      in, source_name,
      [&](const TraceEvent& event) {
        const absl::Status seen = reader.See(event);
        return seen.ok() ? regions.See(event) : seen;
      },
      &rank.header));
  rank.device = DeviceOf(rank.header, reader.device());
  rank.regions = regions.Finish();
  rank.kernel_names = regions.kernel_names();
  rank.other_names = regions.other_names();
  rank.has_kernels = regions.has_kernels();
  rank.num_orphans = regions.num_orphans();
  const auto by_start = [](const auto& a, const auto& b) {
    return a.start_us < b.start_us;
  };
  std::stable_sort(rank.marks.begin(), rank.marks.end(), by_start);
  std::stable_sort(rank.ops.begin(), rank.ops.end(), by_start);
  return rank;
}

}  // namespace pipewright
