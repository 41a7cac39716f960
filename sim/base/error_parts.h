// The parts of an error, for programs: file, line, field, value and what is
// allowed travel beside the message of a status, so that no program parses it.
// Codes and messages are those of status.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// The parts of what the message says in words. A status carries them as
// payloads; a part that was not set is unknown.
struct ErrorParts {
  std::optional<std::string> file;
  std::optional<int64_t> line;  // from 1; only with a file
  std::optional<std::string> field;
  std::optional<std::string> value;
  std::optional<std::string> allowed;
};
ErrorParts PartsOf(const absl::Status& status);

// How a message about a field begins ("run.yaml:3: strategy.pp", the text
// itself), with its parts. It goes wherever a text goes.
struct FieldPlace : std::string {
  // "FILE:LINE: FIELD", "FILE: FIELD" with line 0.
  static FieldPlace InFile(absl::string_view file, int64_t line,
                           absl::string_view field);
  // "--pp: strategy.pp"; without an origin "strategy.pp".
  static FieldPlace FromFlag(absl::string_view origin, absl::string_view field);

  std::string file;  // "" for none
  int64_t line = 0;  // 0 for none
  std::string field;
};

// A text of the user as a message has it: the start of a long one, with its
// size.
inline constexpr size_t kMostShown = 200;
std::string Shortened(absl::string_view text);

// The same as those of status.h, for a field with its place.
absl::Status BadValue(const FieldPlace& field, absl::string_view value,
                      absl::string_view allowed);
absl::Status LaterValue(const FieldPlace& field, absl::string_view value,
                        absl::string_view allowed);

// "FIELD: missing; allowed: ALLOWED", as kInvalidArgument.
absl::Status MissingValue(absl::string_view field, absl::string_view allowed);
absl::Status MissingValue(const FieldPlace& field, absl::string_view allowed);

// "FIELD: given together with OTHER; allowed: one of them", as
// kInvalidArgument.
absl::Status BothGiven(const FieldPlace& field, absl::string_view other);

// "FIELD: MESSAGE", as kInvalidArgument.
absl::Status FieldError(absl::string_view field, absl::string_view message);
absl::Status FieldError(const FieldPlace& field, absl::string_view message);

// Puts `where` and ": " in front of the message, and sets the parts that the
// status does not have.
absl::Status Prefix(const FieldPlace& where, const absl::Status& status);

// "FILE:LINE: MESSAGE", or "FILE: MESSAGE" with line 0; sets both parts where
// the status has no file. An OK status stays OK.
absl::Status InFile(absl::string_view file, int64_t line,
                    const absl::Status& status);

// Sets the file of a message that names it in its own words.
absl::Status AboutFile(absl::string_view file, absl::Status status);

// Sets the field in the same way.
absl::Status AboutField(absl::string_view field, absl::Status status);

// "FIELD: MESSAGE"; sets the field where the status has none.
absl::Status InField(absl::string_view field, const absl::Status& status);

// "SECTION.MESSAGE", of a message that begins with its field; the field too.
absl::Status InSection(absl::string_view section, const absl::Status& status);

// Sets the value and what is allowed, where the status does not have them.
absl::Status WithValue(absl::Status status, absl::string_view value,
                       absl::string_view allowed);

// The parts of `from` with another message.
absl::Status Reworded(const absl::Status& from, absl::string_view message);

}  // namespace pipewright
