// Tokens of a rank's order, as the text and JSON forms share them (text.h):
// [a|b]KIND MB[.CHUNK][sSLICE] without blanks; (X&Y) is a joint pair.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// What decides which parts a token has and how large its numbers may be.
struct TokenSizes {
  int vpp = 1;
  int microbatches_per_direction = 1;
  int slices = 1;
  int directions = 1;
};

// A number of digits only, at most `maximum`; false otherwise. Takes the
// digits off the front of `text`; at least one must be there.
bool TakeNumber(absl::string_view& text, int64_t maximum, int64_t& value);

// Takes the next word off the front of `text`: up to a blank or tab; "" at
// its end.
absl::string_view TakeWord(absl::string_view& text);

// "'X3'", escaped and cut where it is long, for messages.
std::string Quoted(absl::string_view token);

// A rank's passes, separated by blanks. Error: kInvalidArgument with the
// token and what is allowed.
absl::StatusOr<RankOrder> ParseOrder(absl::string_view text,
                                     const TokenSizes& sizes);

// The cells of a rank's order, a joint pair being one, with `separator`
// between them.
void AppendOrder(const Schedule& schedule, int rank, char separator,
                 std::string* out);

}  // namespace pipewright
