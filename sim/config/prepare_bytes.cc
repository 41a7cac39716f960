// Whether the bytes of a run can be counted at all: sizes that each are
// possible can have a product that no integer holds.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_parts.h"
#include "sim/model/ops.h"

namespace pipewright {
namespace {

// A quarter of what int64_t holds, so that sums of a few of them fit too.
constexpr double kMostBytes = 0x1p62;

// All that is ever held of an operation: state, `in_flight` activations, and
// scratch. `versions`: sets of weights held at a time.
double BytesOf(const ModelOp& op, const TrainingSpec& training,
               double in_flight, double versions) {
  const double state = training.weight_bytes * (versions + 1) +
                       training.gradient_bytes + training.master_bytes +
                       training.moment_bytes;
  const double kept =
      op.saved_until_backward + op.saved_until_weight + op.held_for_weight;
  return op.parameters * state + op.n * op.k * training.weight_bytes +
         2 * kept * in_flight + op.forward_workspace + op.backward_workspace +
         op.weight_workspace + op.shared_workspace;
}

// Bytes of the whole model on one rank, so more than any rank can have.
double MostOnOneRank(const PreparedModel& model, const RunSizes& sizes) {
  // Each replica holds the chunks of both directions at most.
  const double in_flight = 2.0 * sizes.microbatches * sizes.slices;
  const double versions = sizes.pp + 1;
  double bytes = BoundaryBytes(model.spec, model.training) * in_flight;
  std::map<std::pair<BlockKind, int64_t>, double> counts;
  for (const std::vector<StageBlock>& blocks : model.layout.stages) {
    for (const StageBlock& block : blocks) {
      // As of a layer behind all others: frozen ones, which need less, are
      // the first.
      const int64_t layer =
          model.spec.kinds.empty() ? model.spec.layers : block.first_layer;
      counts[{block.kind, layer}] += static_cast<double>(block.count);
    }
  }
  for (const auto& [block, count] : counts) {
    for (const ModelOp& op : model.Ops(block.first, block.second)) {
      bytes += count * BytesOf(op, model.training, in_flight, versions);
    }
  }
  return bytes;
}

// The largest size that was given of those that bytes grow with.
struct LargestSize {
  std::string path;  // "": none is given
  int64_t value = 0;
};

LargestSize LargestOf(const RunConfig& config) {
  LargestSize largest;
  for (const ConfigField& field : ConfigFields()) {
    const absl::string_view name = field.path;
    const bool grows = absl::StartsWith(name, "model.") ||
                       name == "strategy.microbatch_size" ||
                       name == "strategy.sequence" ||
                       name == "strategy.microbatches";
    if (!grows) continue;
    WithMember(field, config, [&](const auto& value) {
      using Value = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, std::optional<int>> ||
                    std::is_same_v<Value, std::optional<int64_t>>) {
        if (value.value_or(0) > largest.value) {
          largest = {std::string(name), *value};
        }
      }
    });
  }
  return largest;
}

}  // namespace

absl::Status CheckBytes(const RunConfig& config, const RunSizes& sizes,
                        const PreparedModel& model) {
  const double most = MostOnOneRank(model, sizes) *
                      (1 + config.strategy.fragmentation.value_or(0));
  if (most <= kMostBytes) return absl::OkStatus();
  const LargestSize largest = LargestOf(config);
  // Sizes of a file are its own.
  const bool from_file =
      config.model.hf && !absl::StartsWith(largest.path, "strategy.");
  const std::string path =
      from_file || largest.path.empty() ? "model.hf" : largest.path;
  return BadValue(
      config.Field(path),
      path == "model.hf" ? config.model.hf.value_or(model.spec.name)
                         : absl::StrCat(largest.value),
      absl::StrFormat("sizes whose bytes on a rank can be counted, 2^62 at "
                      "most; here they may be %.3g",
                      most));
}

}  // namespace pipewright
