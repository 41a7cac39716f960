// The keys of one file with what they mean: their values or the framework's
// defaults, the fields that they set, and a word on every key that sets none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/given_keys.h"
#include "sim/foreign/key_table.h"

namespace pipewright {

// Largest number of layers, degrees and samples of a file.
inline constexpr int64_t kMostForeignNumber = 1 << 20;

class KeyReader {
 public:
  // `title`: "Megatron-LM". `said`: fields of comment lines, which win.
  // `version`: whose defaults hold. `before`: the one before it, which has to
  // refuse as well what is refused; "": none.
  KeyReader(const KeyTable& table, const char* title, const char* version,
            const char* before, std::string path, std::set<std::string> said);

  // Takes the file's keys; of one that stands several times the last. Those
  // that the table does not know are noted. Errors: kInvalidArgument for what
  // the framework's parser refuses (a type, a choice, a value of a switch), and
  // for a script of which it is not clear what runs: two training commands, two
  // values in branches that exclude each other.
  absl::Status Take(std::vector<GivenKey> given);
  // The key of a file as another one would have it; of no line of its own.
  void Assume(absl::string_view id, std::string value);
  void Forget(absl::string_view id);

  // Has the table such a key? All else needs one.
  bool Knows(absl::string_view id) const;
  bool Has(absl::string_view id);      // given, and not null
  bool IsGiven(absl::string_view id);  // null included
  // Given or the framework's default; "" for neither.
  std::string Text(absl::string_view id);
  std::vector<std::string> List(absl::string_view id);
  bool On(absl::string_view id);
  // Error: kInvalidArgument for what is no integer from `least` on.
  absl::StatusOr<int64_t> Int(absl::string_view id, int64_t fallback,
                              int64_t least = 1);
  std::optional<double> Number(absl::string_view id);
  // Text as the field of the row has it: by the row's values.
  std::string Mapped(absl::string_view id);
  std::string Mapped(absl::string_view id, const std::string& value) const;

  // Sets a field that no comment line has said.
  void Set(absl::string_view field, absl::string_view value,
           absl::string_view id);
  // Sets the field that each row names, to what the file or the framework's
  // default says.
  void Apply(const std::vector<std::string>& ids);
  // Passes over all keys whose fields begin so: something else gives them.
  void Ignore(const std::vector<std::string>& fields);
  // The keys do nothing in this file; `why`: "without experts".
  void Unused(const std::vector<std::string>& ids, absl::string_view why);
  // Sets a field to what stands in no key; `why` names it in the note.
  void SetDefault(absl::string_view field, absl::string_view value,
                  absl::string_view why);
  bool IsSaid(absl::string_view field) const;
  void Note(absl::string_view text);
  // In the report's notes as "not modelled: ...".
  void NotModelled(absl::string_view id, absl::string_view what);

  // "FILE:LINE: KEY: VALUE is not allowed; allowed: ...".
  absl::Status Wrong(absl::string_view id, absl::string_view allowed);
  absl::Status Refused(absl::string_view id, absl::string_view why);
  // "FILE:3: --tp-size" of a key that is given; without it FILE and the key.
  FieldPlace PlaceOf(absl::string_view id) const;

  // What the framework refuses; `known` has values that no key has
  // ("world_size").
  absl::Status CheckRules(const std::map<std::string, std::string>& known);

  // Sets the fields of keys that no function asked for, and says of each other
  // key what it does.
  ForeignArgs Finish();

  const std::string& path() const { return path_; }

 private:
  struct Value {
    GivenKey given;
    std::string text;
  };
  absl::Status CheckValue(const ForeignKey& key, const Value& value) const;
  absl::Status CheckScript(const ForeignKey& key, const Value& before,
                           const Value& after);
  void Apply(const ForeignKey& key, const std::string& text);
  FieldPlace PlaceOf(const GivenKey& given) const;
  absl::Status RefusedBy(absl::string_view version,
                         const std::map<std::string, std::string>& known);
  absl::Status CheckRule(const ForeignRule& rule,
                         const std::map<std::string, std::string>& known);
  const ForeignKey* Resolve(absl::string_view id) const;
  const ForeignKey& KeyOf(absl::string_view id) const;
  const Value* Find(const ForeignKey& key) const;
  std::string NearestTo(const GivenKey& given) const;

  const KeyTable& table_;
  std::string title_;
  std::string version_;
  std::string before_;
  bool is_core_;  // keys are found by name alone
  std::string path_;
  std::set<std::string> said_;
  std::map<const ForeignKey*, Value> values_;
  std::set<const ForeignKey*> used_;
  std::vector<std::string> unknown_;
  std::vector<std::string> not_modelled_;
  std::vector<std::string> defaults_;
  std::vector<std::string> without_effect_;
  std::map<int, int> shared_by_program_;  // keys that an earlier one has, too
  ForeignArgs out_;
};

}  // namespace pipewright
