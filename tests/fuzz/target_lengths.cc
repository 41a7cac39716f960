#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "sim/base/check.h"
#include "sim/model/lengths.h"
#include "sim/model/packer.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {

bool FuzzLengths(absl::string_view input) {
  // What a flag may say, too.
  for (const absl::Status& status :
       {ParseLengthLaw(input).status(),
        ParseHistogram({std::string(input)}).status()}) {
    PW_CHECK(status.ok() ||
             status.code() == absl::StatusCode::kInvalidArgument);
  }
  absl::StatusOr<std::vector<int64_t>> lengths =
      ParseLengths(input, "fuzz.csv");
  if (!lengths.ok()) {
    PW_CHECK(lengths.status().code() == absl::StatusCode::kInvalidArgument);
    PW_CHECK(absl::StartsWith(lengths.status().message(), "fuzz.csv"));
    return false;
  }
  PW_CHECK(!lengths->empty());
  for (const int64_t length : *lengths) {
    PW_CHECK(length >= 1 && length <= kMostLength);
  }
  const LengthSource source =
      LengthSource::OfSamples(*std::move(lengths), "fuzz.csv");
  PackRequest request;
  request.lengths =
      source.Draw(1, std::min<int64_t>(source.samples.size(), 64), true);
  request.max_token_len = source.longest();
  for (const PackerTraits& traits : kPackers) {
    request.packer = traits.packer;
    PW_CHECK(Pack(request).ok());
  }
  return true;
}

}  // namespace pipewright::testing
