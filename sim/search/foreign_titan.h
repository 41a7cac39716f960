// torchtitan's TOML, for foreign_args.cc alone.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "sim/search/foreign_args.h"

namespace pipewright {

// `said`: fields that comment lines have; they win.
absl::StatusOr<ForeignArgs> ReadTitan(absl::string_view text,
                                      const std::string& path,
                                      const std::set<std::string>& said);

}  // namespace pipewright
