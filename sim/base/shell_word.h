// A word of a command as a shell takes it.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace pipewright {

inline std::string QuotedWord(absl::string_view word) {
  const bool plain =
      !word.empty() && std::all_of(word.begin(), word.end(), [](char letter) {
        return absl::ascii_isalnum(letter) ||
               absl::StrContains("-_./:=,+@%", absl::string_view(&letter, 1));
      });
  return plain ? std::string(word)
               : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}),
                              "'");
}

}  // namespace pipewright
