#include "sim/base/memory_claim.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"

namespace pipewright {

absl::Status CheckMemory(absl::string_view what, double needed_bytes,
                         double free_bytes, absl::string_view where,
                         absl::string_view allowed) {
  const double usable_bytes = kUsableMemory * free_bytes;
  if (needed_bytes <= usable_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " need ", FormatBytes(needed_bytes), "; usable on ", where, ": ",
      FormatBytes(usable_bytes), "; allowed: ", allowed));
}

size_t MemoryNeed::WorstPart() const {
  return static_cast<size_t>(std::max_element(bytes.begin(), bytes.end()) -
                             bytes.begin());
}

std::vector<MemoryNeed> SumClaims(
    const std::vector<std::vector<MemoryClaim>>& claims) {
  std::vector<MemoryNeed> needs;
  std::vector<std::string> scopes;  // [need]
  for (const std::vector<MemoryClaim>& process : claims) {
    for (const MemoryClaim& claim : process) {
      size_t index = 0;
      while (index < needs.size() &&
             (needs[index].of != claim.of || scopes[index] != claim.scope)) {
        ++index;
      }
      if (index == needs.size()) {
        needs.push_back({.of = claim.of, .free_bytes = claim.free_bytes});
        scopes.push_back(claim.scope);
      }
      MemoryNeed& need = needs[index];
      need.free_bytes = std::min(need.free_bytes, claim.free_bytes);
      need.bytes.resize(std::max(need.bytes.size(), claim.bytes.size()));
      for (size_t part = 0; part < claim.bytes.size(); ++part) {
        need.bytes[part] += claim.bytes[part];
      }
      ++need.processes;
    }
  }
  return needs;
}

}  // namespace pipewright
