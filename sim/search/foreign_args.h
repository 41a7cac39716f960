// Arguments of other trainers as fields of a configuration: Megatron-LM's
// (flags, or a shell script with them), a recipe of Megatron-Bridge (YAML) and
// torchtitan's TOML; and the other way round. docs/plan.md has the table of
// flags with its sources. What they cannot say stands in comment lines,
// "# pipewright: strategy.split=balanced", which the reader takes too.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/config_edit.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"

namespace pipewright {

struct ForeignArgs {
  std::vector<ConfigEdit> edits;
  // "ignored: --lr (2 more: --min-lr, --weight-decay)", and what was assumed.
  std::vector<std::string> notes;
};

// `path` tells TOML (.toml), YAML (.yaml, .yml) and shell (else) apart. Error:
// kInvalidArgument "FILE:LINE: ..." for what does not parse, and for values
// that no field takes.
absl::StatusOr<ForeignArgs> ReadForeignArgs(absl::string_view text,
                                            const std::string& path);

enum class ForeignForm { kMegatron, kTorchtitan };

// `run`: prepared of `config`. `csv`: name of the file with the schedule's
// order, "" for none. Notes say what the trainer cannot do. Error:
// kInvalidArgument without a model.
struct EmittedArgs {
  std::string text;
  std::vector<std::string> notes;
};
absl::StatusOr<EmittedArgs> EmitArgs(const RunConfig& config,
                                     const PreparedRun& run, ForeignForm form,
                                     const std::string& csv);

}  // namespace pipewright
