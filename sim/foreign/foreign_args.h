// Files of training frameworks as fields of a configuration: Megatron-LM's
// arguments (flags, or a shell script with them), recipes and dumps of
// Megatron-Bridge (YAML, or overrides of a named recipe), torchtitan's TOML and
// Python, DeepSpeed's JSON; and the other way round. docs/frameworks.md says
// what is read and written, with sources. What a target cannot say stands in
// comment lines, "# pipewright: strategy.split=balanced", which the reader
// takes too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/config_edit.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/foreign/given_keys.h"

namespace pipewright {

struct ForeignArgs {
  std::vector<ConfigEdit> edits;
  // "not modelled: --x (what it does)", what came from defaults, what has no
  // effect, and what was assumed.
  std::vector<std::string> notes;
  // The vocabulary is padded to a multiple of this, wherever it came from.
  int64_t vocabulary_multiple = 1;
};

// What a file alone does not say.
struct ForeignSurroundings {
  Environment environment;  // variables that a script does not set
  // Fields that the command line gives beside the file, by path.
  std::map<std::string, std::string> given;
  // Devices of a node, from --system; 0: unknown.
  int devices_per_node = 0;

  bool Gives(const std::string& field) const { return given.count(field) > 0; }
  // A number that the command line gives, else `fallback`.
  int64_t Int(const std::string& field, int64_t fallback) const;
};

// `path` and content tell the forms apart. Error: kInvalidArgument "FILE:LINE:
// ..." for what does not parse, for values that no field takes, for what the
// framework refuses itself, and for files of frameworks that are not read.
absl::StatusOr<ForeignArgs> ReadForeignArgs(
    absl::string_view text, const std::string& path,
    const ForeignSurroundings& around = {});

// Comment lines of ours in others' files begin with this.
inline constexpr char kCommentMark[] = "# pipewright: ";

enum class ForeignForm {
  kMegatron,
  kBridge,
  kTorchtitan,      // Python
  kTorchtitanToml,  // before it
  kDeepSpeed,
};

// `run`: prepared of `config`. `csv`: name of the file with the schedule's
// order, "" for none. Notes say what the trainer cannot do. Error:
// kInvalidArgument without a model, and for what the target cannot say.
struct EmittedArgs {
  std::string text;
  std::vector<std::string> notes;
  // Fields that the target's words do not say, with their values; comment lines
  // say them, if the file can have any.
  std::vector<std::pair<std::string, std::string>> beside;
};
absl::StatusOr<EmittedArgs> EmitArgs(const RunConfig& config,
                                     const PreparedRun& run, ForeignForm form,
                                     const std::string& csv);

// True if PyTorch has no schedule of this name and order, so that torchtitan
// needs a file of it.
bool NeedsTorchCsv(const PreparedRun& run);

}  // namespace pipewright
