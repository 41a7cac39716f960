#include "sim/program/optimizer_plan.h"

#include <algorithm>
#include <cmath>

namespace pipewright {
namespace {

// Four slots of four bytes: with one buffer a flush precedes each prefetch of
// its array, while the arrays overlap in both directions. [numerics, bytes]
constexpr double kCopyBytesPerParameter = 16;

// What a sum or quotient may miss a whole number by. [numerics]
constexpr double kRounding = 1e-9;

}  // namespace

int64_t NumSubgroups(double parameters, double size) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(parameters / size - kRounding)));
}

int SubgroupPlan::Count(SubgroupStep step) const {
  return static_cast<int>(std::count(steps.begin(), steps.end(), step));
}

double SubgroupPlan::HostShare() const {
  const int host =
      Count(SubgroupStep::kHost) + Count(SubgroupStep::kHostTriggers);
  return static_cast<double>(host) / static_cast<double>(steps.size());
}

SubgroupPlan PlanStrides(int subgroups, int stride, int resident) {
  SubgroupPlan plan;
  std::vector<int> fetched;
  for (int index = 0; index < subgroups; ++index) {
    const bool device = (index + 1) % stride == 0 && index % stride != 0;
    if (index >= resident) {
      plan.steps.push_back(SubgroupStep::kResident);
    } else if (device) {
      plan.steps.push_back(SubgroupStep::kDevice);
      fetched.push_back(index);
    } else {
      plan.steps.push_back(index % stride == 0 ? SubgroupStep::kHostTriggers
                                               : SubgroupStep::kHost);
    }
  }
  for (int index = 0; index < subgroups; ++index) {
    if (plan.steps[index] != SubgroupStep::kHostTriggers) continue;
    const auto next = std::lower_bound(fetched.begin(), fetched.end(), index);
    plan.transfers.push_back(
        {.at = index,
         .flush = next == fetched.begin() ? -1 : *(next - 1),
         .prefetch = next == fetched.end() ? -1 : *next});
  }
  const int flushed = plan.transfers.empty() ? -1 : plan.transfers.back().flush;
  if (!fetched.empty() && fetched.back() != flushed) {
    plan.last_flush = fetched.back();
  }
  return plan;
}

int HostSubgroups(int subgroups, double ratio) {
  return static_cast<int>(std::floor(subgroups * ratio));
}

SubgroupPlan PlanRatio(int subgroups, double ratio) {
  SubgroupPlan plan;
  plan.steps.assign(subgroups, SubgroupStep::kResident);
  std::fill_n(plan.steps.begin(), HostSubgroups(subgroups, ratio),
              SubgroupStep::kHost);
  return plan;
}

int BestStride(double host_parameters_per_s, double copy_bytes_per_s) {
  const double seconds = kCopyBytesPerParameter / copy_bytes_per_s;
  const double stride = 1 + seconds * host_parameters_per_s;
  // Nobody has as many subgroups.
  if (!(stride < kMostSubgroups)) return kMostSubgroups;
  return std::max(2, static_cast<int>(std::ceil(stride - kRounding)));
}

}  // namespace pipewright
