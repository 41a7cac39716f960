// The fields of sections `slow` and `reliability`, as VisitFields
// (run_config_fields.h) has the others.
#pragma once

#include <cstdint>
#include <limits>

#include "sim/base/quantity.h"

namespace pipewright {

inline constexpr int kMostFailureDays = 1'000'000;

template <typename Config, typename Visitor>
void VisitReality(Config& config, Visitor& visit) {
  constexpr int64_t kMostSeed = std::numeric_limits<int64_t>::max();
  auto& slow = config.slow;
  visit.Texts("slow.devices", slow.devices);
  visit.Text("slow.devices_law", slow.devices_law);
  visit.Texts("slow.links", slow.links);
  visit.Text("slow.links_law", slow.links_law);
  visit.Int("slow.seed", slow.seed, 0, kMostSeed);

  auto& job = config.reliability;
  visit.Quantity("reliability.mtbf_per_device", job.mtbf_per_device_s,
                 Unit::kTime);
  visit.Quantity("reliability.checkpoint_every", job.checkpoint_every_s,
                 Unit::kTime);
  visit.Quantity("reliability.checkpoint_write", job.checkpoint_write_s,
                 Unit::kTime);
  visit.Quantity("reliability.restart", job.restart_s, Unit::kTime);
  visit.Quantity("reliability.horizon", job.horizon_s, Unit::kTime);
  visit.Int("reliability.seeds", job.seeds, 1, kMostFailureDays);
  visit.Int("reliability.seed", job.seed, 0, kMostSeed);
}

}  // namespace pipewright
