#include "sim/memory/weight_versions.h"

#include <algorithm>

namespace pipewright {

WeightVersions WeightVersionsOf(const Schedule& schedule) {
  WeightVersions out;
  out.staleness.assign(schedule.pp(), 0);
  out.versions.assign(schedule.pp(), 1);
  if (schedule.update_every == 0) return out;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    // A forward runs this many backwards before its own.
    int ahead = 0;
    for (const Pass pass : schedule.order(rank)) {
      if (pass.kind() != PassKind::kForward) break;
      ++ahead;
    }
    ahead = std::max(0, ahead - 1);
    const int every = schedule.update_every;
    out.staleness[rank] = (ahead + every - 1) / every;
  }
  if (schedule.update_every == 1) {
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      out.versions[rank] = out.staleness[rank] > 0 ? 2 : 1;
    }
    return out;
  }
  // A microbatch uses one version on all ranks, the newest that the first of
  // them has when it comes in.
  const int most =
      *std::max_element(out.staleness.begin(), out.staleness.end());
  out.staleness.assign(schedule.pp(), most);
  out.versions.assign(schedule.pp(), most + 1);
  return out;
}

}  // namespace pipewright
