#include "sim/report/cost_report.h"

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "sim/model/layer_kinds.h"

namespace pipewright {
namespace {

constexpr const char* kPassNames[kNumOpPasses] = {"F", "B", "W"};

struct KindOfBlock {
  int64_t layer = 0;  // a first one
  double blocks = 0;
};

}  // namespace

CostReport ReportCosts(const BlockPrices& prices, const StageLayout& layout,
                       const PassCosts& costs) {
  const ModelSpec& model = prices.inventory().model();
  CostReport report;
  report.device = prices.options().device;
  report.stages = costs.stages;
  report.optimizer_s = costs.optimizer_s;
  // Frozen layers have other passes than the rest, those with a window another
  // attention, those of several kinds other parts.
  std::map<std::tuple<BlockKind, bool, bool, std::string>, KindOfBlock> kinds;
  for (const std::vector<StageBlock>& blocks : layout.stages) {
    for (const StageBlock& block : blocks) {
      for (int64_t at = 0; at < block.count; ++at) {
        const int64_t layer = block.first_layer + at;
        const auto [kind, is_new] =
            kinds.try_emplace({block.kind, layer >= model.frozen_layers,
                               model.WindowOf(layer) > 0,
                               model.kinds.empty() || !IsLayer(block.kind)
                                   ? ""
                                   : LettersOf({model.KindOf(layer)})});
        if (is_new) kind->second.layer = layer;
        kind->second.blocks += block.part;
      }
    }
  }
  double whole_s = 0;
  for (const auto& [key, kind] : kinds) {
    const auto& [block, is_trained, has_window, letters] = key;
    const std::vector<ModelOp>& ops = prices.inventory().Ops(block, kind.layer);
    const std::vector<OpTime>& times = prices.Times(block, kind.layer);
    for (size_t index = 0; index < ops.size(); ++index) {
      for (int pass = 0; pass < kNumOpPasses; ++pass) {
        const OpWork& work = ops[index].Work(static_cast<OpPass>(pass));
        OpCost row = {.block = std::string(BlockKindName(block)),
                      .blocks = kind.blocks,
                      .op = ops[index].name,
                      .pass = kPassNames[pass],
                      .flops = work.flops,
                      .bytes = work.bytes,
                      .seconds = times[index].seconds[pass],
                      .comm_seconds = times[index].comm_seconds[pass],
                      .beside_seconds = times[index].beside_seconds[pass],
                      .launches = times[index].launches[pass],
                      .host_seconds = times[index].host_seconds[pass],
                      .how = times[index].how[pass],
                      .error = times[index].error[pass]};
        if (!letters.empty()) absl::StrAppend(&row.block, " ", letters);
        if (!is_trained) row.block += ", frozen";
        const bool is_layer =
            block != BlockKind::kEmbedding && block != BlockKind::kHead;
        if (has_window && is_layer) row.block += ", window";
        row.share = row.blocks * (row.seconds + row.comm_seconds);
        if (row.share == 0) continue;
        whole_s += row.share;
        report.ops.push_back(std::move(row));
      }
    }
  }
  for (OpCost& row : report.ops) row.share /= whole_s;
  return report;
}

Json CostsToJson(const CostReport& report) {
  Json out = {{"source", "analytic"},
              {"device", report.device.name},
              {"optimizer_s", report.optimizer_s}};
  Json stages = Json::array();
  for (const StageCosts& stage : report.stages) {
    stages.push_back({{"forward_s", stage.forward_s},
                      {"backward_input_s", stage.backward_input_s},
                      {"backward_weight_s", stage.backward_weight_s},
                      {"recompute_s", stage.recompute_s}});
  }
  out["stages"] = std::move(stages);
  Json ops = Json::array();
  for (const OpCost& row : report.ops) {
    ops.push_back({{"block", row.block},
                   {"blocks", row.blocks},
                   {"name", row.op},
                   {"pass", row.pass},
                   {"flops", row.flops},
                   {"bytes", row.bytes},
                   {"seconds", row.seconds},
                   {"comm_seconds", row.comm_seconds},
                   {"beside_seconds", row.beside_seconds},
                   {"launches", row.launches},
                   {"host_seconds", row.host_seconds},
                   {"share", row.share},
                   {"how", row.how},
                   {"error", row.error > 0 ? Json(row.error) : Json()}});
  }
  out["ops"] = std::move(ops);
  return out;
}

}  // namespace pipewright
