#include "execute/run/claims_wire.h"

#include <cstdint>

namespace pipewright {

void PutClaims(const std::vector<MemoryClaim>& claims, WireWriter* writer) {
  writer->Put(static_cast<uint64_t>(claims.size()));
  for (const MemoryClaim& claim : claims) {
    writer->PutText(claim.of);
    writer->PutText(claim.scope);
    writer->Put(claim.free_bytes);
    writer->PutAll(claim.bytes);
  }
}

std::vector<MemoryClaim> GetClaims(WireReader* reader) {
  std::vector<MemoryClaim> claims;
  const auto count = reader->Get<uint64_t>();
  while (claims.size() < count && reader->ok()) {
    MemoryClaim& claim = claims.emplace_back();
    claim.of = reader->GetText();
    claim.scope = reader->GetText();
    claim.free_bytes = reader->Get<double>();
    claim.bytes = reader->GetAll<double>();
  }
  return claims;
}

}  // namespace pipewright
