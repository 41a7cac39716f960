// Megatron-LM's arguments, as its own code reads them. Parts of foreign_args.h.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/given_keys.h"

namespace pipewright {

absl::StatusOr<ForeignArgs> ReadMegatron(std::vector<GivenKey> keys,
                                         const std::string& path,
                                         const std::set<std::string>& said,
                                         const ForeignSurroundings& around);

// The same of configuration objects: their defaults hold, and keys have their
// names. No key has a section. `known`: values of other sections that the rules
// of Megatron-Bridge ask for.
absl::StatusOr<ForeignArgs> ReadMegatronCore(
    std::vector<GivenKey> keys, const std::string& path,
    const std::set<std::string>& said, const ForeignSurroundings& around,
    std::map<std::string, std::string> known);

// Recipes, dumps and overrides of Megatron-Bridge, whose sections come before
// that.
absl::StatusOr<ForeignArgs> ReadBridge(std::vector<GivenKey> keys,
                                       const std::string& path,
                                       const std::set<std::string>& said,
                                       const ForeignSurroundings& around);

}  // namespace pipewright
