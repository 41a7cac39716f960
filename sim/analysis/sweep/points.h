// From the choices of a grid to the configuration of that point, and to the
// hash that it is stored under. Each value of each axis is read once; a point
// copies the base and the few fields that its values change, and its hash takes
// nothing but a sum over them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/grid.h"
#include "sim/config/config_edit.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"

namespace pipewright {

// To be raised whenever the results of any run change: rows of other versions
// are kept and marked, and their points are run again.
inline constexpr int kModelVersion = 15;

// What all points have in common: a configuration, read with the fields of a
// point on top. Called by threads at a time.
using SweepBase =
    std::function<absl::StatusOr<RunConfig>(const std::vector<ConfigEdit>&)>;

using PointHash = std::array<uint8_t, 16>;

struct ConfigField;

class SweepPoints {
 public:
  // Reads the base and every value of every axis. `engine`: that of points
  // that name none. `context` then has all files, so that runs see what was
  // hashed. Error: kInvalidArgument or kNotFound naming the axis, the
  // value and what is allowed; a file that cannot be read.
  static absl::StatusOr<SweepPoints> Create(SweepBase base, SweepGrid grid,
                                            const std::string& engine,
                                            RunContext* context);

  const SweepGrid& grid() const { return grid_; }
  const RunConfig& base() const { return base_config_; }
  bool composes() const { return composes_; }

  // The configuration of a point. Error: values that exclude each other.
  absl::StatusOr<RunConfig> At(const SweepChoices& choices) const;

  // Hash of the configuration (which file or flag has said it does not matter),
  // the contents of all files that it names, the engine and kModelVersion. One
  // that does not exist (At fails) is hashed by its choices.
  PointHash HashOf(const RunConfig& config) const;
  PointHash HashOfRefused(const SweepChoices& choices) const;
  // The same of the point with these choices.
  PointHash HashAt(const SweepChoices& choices) const;

  // {"strategy.tp":2,"schedule.name":"zb-h1"}; axes without a value are left
  // out.
  std::string AxesJson(const SweepChoices& choices) const;

  // [{"names":["strategy.tp"],"values":[[1],[2]]}]: an object an axis.
  std::string AxesTable() const;

  // What the grid, the base, their files and kModelVersion are together, a line
  // each: equal texts are of equal points in equal order. The shard is no part.
  std::string GridText() const;

 private:
  // What a value of an axis changes.
  struct Patch {
    std::shared_ptr<const RunConfig> config;
    std::vector<const ConfigField*> fields;
    absl::uint128 hash = 0;  // of these fields, beyond that of the base's
    bool notes = false;      // of reading, too
    std::vector<std::pair<std::string, ConfigOrigin>> origins;
    std::vector<std::string> origins_gone;
  };

  absl::StatusOr<RunConfig> Read(const SweepChoices& choices) const;
  absl::Status ReadValues(RunContext* context);
  absl::Status ReadDigests(const RunConfig& config, RunContext* context);
  Patch PatchTo(RunConfig config) const;
  bool Composes() const;
  RunConfig Compose(const SweepChoices& choices) const;
  absl::uint128 HashOfField(const ConfigField& field,
                            const RunConfig& config) const;
  absl::uint128 SumOf(const RunConfig& config) const;

  SweepBase base_;
  SweepGrid grid_;
  std::string engine_;
  RunConfig base_config_;
  absl::uint128 base_hash_ = 0;
  std::vector<std::vector<Patch>> patches_;  // [axis][choice]
  // Do the patches of several axes give what reading all gives?
  bool composes_ = false;
  std::map<std::string, std::string> digest_of_file_;
};

}  // namespace pipewright
