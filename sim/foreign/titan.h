// torchtitan's configurations: TOML, and Python that returns a configuration,
// with batches in samples or in tokens. Parts of foreign_args.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/given_keys.h"

namespace pipewright {

absl::StatusOr<ForeignArgs> ReadTitan(std::vector<GivenKey> keys,
                                      const std::string& path,
                                      const std::set<std::string>& said,
                                      const ForeignSurroundings& around);

absl::StatusOr<ForeignArgs> ReadTitanPython(absl::string_view text,
                                            const std::string& path,
                                            const std::set<std::string>& said,
                                            const ForeignSurroundings& around);

}  // namespace pipewright
