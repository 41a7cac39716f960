// The points of a sweep: axes with their values, conditions and filters. It
// holds the axes, never the points; a walk gives one after the other, the last
// axis fastest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/sweep/cell.h"
#include "sim/analysis/sweep/expression.h"
#include "sim/config/config_edit.h"
#include "sim/config/config_tree.h"
#include "sim/config/run_config.h"

namespace pipewright {

// One field, or several that change together.
struct SweepAxis {
  std::vector<std::string> names;  // paths of fields: "strategy.tp"
  // values[choice][name], as a configuration has them.
  std::vector<std::vector<std::string>> values;
  // Otherwise the axis has no value, and the fields are what they are without
  // it. It may name fields of earlier axes and of the base.
  std::optional<Expression> when;
  std::string place;  // for messages: "sweep.yaml:4", "--sweep"
  // Folder of the file that gives the axis, "sweeps/": its relative files are
  // there.
  std::string folder;

  // "strategy.tp", "strategy.tp,strategy.pp".
  std::string Name() const;
};

struct SweepFilter {
  Expression keep;
  std::string place;
};

// Every `count`-th point of a grid from the `number`-th on: what one of several
// machines runs that do not know of each other.
struct SweepShard {
  int64_t number = 1;  // 1 to count
  int64_t count = 1;   // 1: the whole grid

  bool operator==(const SweepShard&) const = default;
};
std::string ToString(const SweepShard& shard);  // "3/64"

struct SweepGrid {
  std::vector<SweepAxis> axes;
  std::vector<SweepFilter> filters;
  SweepShard shard;
};

// The number of the value of each axis, -1 where it has none.
using SweepChoices = std::vector<int32_t>;

// "strategy.tp=1,2,4", "strategy.pp=1..8", "strategy.pp=1..64*2",
// "costs.p2p=1ms..5ms+1ms", "strategy.layers=[1,2],[2,1]",
// "strategy.tp,strategy.pp=1:8,8:1", "strategy.vpp=1,2 when strategy.pp > 1".
// A flag ("tp", "--tp") stands for its field. Error: kInvalidArgument.
absl::StatusOr<SweepAxis> AxisOfText(const std::string& text);

// The mapping below "axes" of a file, in its order: lists, single values, or
// mappings with values, or from, to and step or times; and when.
absl::StatusOr<std::vector<SweepAxis>> AxesOfNode(const ConfigNode& node,
                                                  absl::string_view source);
// One mapping below "linked": a list for each field, all of one length.
absl::StatusOr<SweepAxis> LinkedAxisOfNode(const ConfigNode& node,
                                           absl::string_view source);

// Error: a field twice, a condition on a later axis.
absl::Status CheckGrid(const SweepGrid& grid);

// What an axis sets, by the number of its value (not -1).
absl::StatusOr<std::vector<ConfigEdit>> EditsOf(const SweepAxis& axis,
                                                int32_t choice);

class GridWalk {
 public:
  // Both must outlive it; CheckGrid has passed.
  GridWalk(const SweepGrid* grid, const RunConfig& base);

  // To the next point that all filters keep; false behind the last one.
  bool Next();
  // To the next one of the grid's shard.
  bool NextOfShard();
  const SweepChoices& choices() const { return choices_; }
  // Which point of the whole grid it is, from 0.
  int64_t place() const { return place_; }

 private:
  // Where a condition finds one of its fields.
  struct Source {
    int axis = -1;  // -1: the base's
    int name = 0;
    SweepCell base;
  };
  struct Condition {
    const Expression* expression;
    std::vector<Source> sources;
    int last_axis = -1;
  };
  Condition Bind(const Expression& expression, const RunConfig& base) const;
  bool Holds(const Condition& condition) const;
  bool Passes(int level) const;
  bool Step();

  const SweepGrid* grid_;
  std::vector<std::vector<std::vector<SweepCell>>> cells_;  // [axis][choice]
  std::vector<std::optional<Condition>> when_;              // [axis]
  // By the last axis that they name, [level + 1].
  std::vector<std::vector<Condition>> filters_;
  SweepChoices choices_;
  int64_t place_ = -1;
  bool started_ = false;
  bool ended_ = false;
};

// The field of a configuration as a cell; nothing where it is not set.
SweepCell CellOfField(const RunConfig& config, absl::string_view path);

}  // namespace pipewright
