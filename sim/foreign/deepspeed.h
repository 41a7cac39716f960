// DeepSpeed's JSON, as far as it concerns a training step. Parts of
// foreign_args.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/given_keys.h"

namespace pipewright {

absl::StatusOr<ForeignArgs> ReadDeepSpeed(std::vector<GivenKey> keys,
                                          const std::string& path,
                                          const std::set<std::string>& said,
                                          const ForeignSurroundings& around);

}  // namespace pipewright
