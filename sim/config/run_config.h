// The configuration of a run, typed: what a file, --set and flags say
// together (docs/architecture.md, Files). Nothing is resolved here: a preset is
// still a name and a default still absent; that is Prepare's (prepare.h). The
// fields are sim/proto/config.proto's.
//
// Units: seconds, bytes, bytes per second.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/config/config_choices.h"
#include "sim/config/config_edit.h"

namespace pipewright {

struct RunConfig : RunConfigFields {
  // Compiled once, not by everyone who has one: they are long.
  RunConfig();
  RunConfig(const RunConfig&);
  RunConfig(RunConfig&&) noexcept;
  RunConfig& operator=(const RunConfig&);
  RunConfig& operator=(RunConfig&&) noexcept;
  ~RunConfig();

  ConfigOrigins origins;
  std::string source;  // the file, "" without one
  // How something was read that can be read in several ways.
  std::vector<std::string> notes;
  // Fields that nobody has given: strategy.framework or Prepare has set them.
  std::vector<std::string> defaulted;
  // The run measures what its passes take, so nobody has to say it.
  bool timed_by_run = false;
  // The order of passes is wanted, or memory, but no times: nobody has to say
  // any, and what else is not given is no default.
  bool only_order = false;

  // "run.yaml:3: strategy.pp": how a message about a field begins. Where it
  // was not given, "run.yaml: strategy.pp", or without a file the path alone.
  FieldPlace Field(absl::string_view path) const;
};

// True if it names a system; false if it only gives sizes.
inline bool NamesSystem(const SystemChoice& system) {
  return system.preset || system.file || system.shape;
}

// Do samples differ in their lengths (docs/sequences.md)?
inline bool GivesLengths(const SequenceChoice& sequences) {
  return sequences.lengths || !sequences.histogram.empty();
}

inline bool SlowsDevices(const SlowChoice& slow) {
  return !slow.devices.empty() || slow.devices_law;
}
inline bool SlowsLinks(const SlowChoice& slow) {
  return !slow.links.empty() || slow.links_law;
}

// Do data-parallel replicas differ?
inline bool HasClasses(const DpClassChoice& classes) {
  return !classes.replicas.empty() || !classes.microbatches.empty() ||
         !classes.slower.empty() || !classes.slow_rank.empty() ||
         !classes.microbatch_factor.empty() || !classes.schedule.empty();
}

// The text of a file: YAML, JSON or text protobuf, told apart by the ending
// of `source_name` (.yaml .yml .json .txtpb .textproto .pbtxt) or else by the
// content. Errors: kInvalidArgument with file, line, field, value and what is
// allowed.
absl::StatusOr<RunConfig> ReadConfig(absl::string_view text,
                                     absl::string_view source_name);

// The same with edits on top, the lowest layer first (--set, then flags). A
// higher layer that chooses a schedule, model, system or kind of cost puts
// aside the rival choice of a lower one. An empty `source_name`: no file.
absl::StatusOr<RunConfig> ReadConfig(
    absl::string_view text, absl::string_view source_name,
    const std::vector<std::vector<ConfigEdit>>& layers);

// A file that a run is read from besides the configuration itself.
struct InputField {
  std::string field;
  std::string path;
};
std::vector<InputField> InputFields(const RunConfig& config);

// A line a field that is set, "strategy.pp: 8"; origins are left out.
std::string ToString(const RunConfig& config);

// The paths of the fields that are set, in the order of the fields; of
// schedule.params and system.params one a key.
std::vector<std::string> GivenPaths(const RunConfig& config);

// All field paths of the schema, for help and the nearest name.
std::vector<std::string> ConfigPaths();

}  // namespace pipewright
