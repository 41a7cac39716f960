// The text of a configuration, read once for edits of many kinds on top of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/config_edit.h"
#include "sim/config/run_config.h"

namespace pipewright {

// A copy is cheap.
class ConfigText {
 public:
  // As ReadConfig; an empty `source_name`: no file.
  static absl::StatusOr<ConfigText> Parse(absl::string_view text,
                                          absl::string_view source_name);
  // What ReadConfig gives of the text and these layers.
  absl::StatusOr<RunConfig> With(
      const std::vector<std::vector<ConfigEdit>>& layers) const;

 private:
  struct Parsed;
  explicit ConfigText(std::shared_ptr<const Parsed> parsed)
      : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace pipewright
