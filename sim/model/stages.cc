#include "sim/model/stages.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

std::string Describe(const StageBlock& block) {
  const auto counted = [&](absl::string_view one, absl::string_view many) {
    return absl::StrCat(block.count, " ", block.count == 1 ? one : many);
  };
  const std::string part = block.part == 1 ? "" : "part of ";
  switch (block.kind) {
    case BlockKind::kEmbedding:
      return absl::StrCat(part, "embedding");
    case BlockKind::kDenseLayer:
      return counted("layer", "layers");
    case BlockKind::kExpertLayer:
      return counted("expert layer", "expert layers");
    case BlockKind::kMtpLayer:
      return counted("multi-token-prediction layer",
                     "multi-token-prediction layers");
    case BlockKind::kHead:
      return absl::StrCat(part, "head");
  }
  return "";
}

std::string PairText(const char* name, int pp, int vpp) {
  return absl::StrCat(name, " = ", pp, " * ", vpp, " = ", int64_t{pp} * vpp);
}

}  // namespace

StageLayoutBuilder::StageLayoutBuilder(const ModelSpec& model,
                                       const TrainingSpec& training, int stages)
    : model_(model),
      spread_(training.vocabulary == VocabularyPlacement::kSpread),
      prediction_table_(training.prediction_table) {
  layout_.stages.resize(stages);
}

void StageLayoutBuilder::AddEmbedding(int stage) {
  if (!spread_) layout_.stages[stage].push_back({BlockKind::kEmbedding});
}

void StageLayoutBuilder::AddHead(int stage) {
  if (!spread_) layout_.stages[stage].push_back({BlockKind::kHead});
}

void StageLayoutBuilder::AddMtp(int stage, int64_t count) {
  if (count == 0) return;
  if (stage > 0 && prediction_table_) AddEmbedding(stage);
  layout_.stages[stage].push_back({BlockKind::kMtpLayer, model_.layers, count});
}

void StageLayoutBuilder::AddLayers(int stage, int64_t count) {
  const auto add = [&](BlockKind kind, int64_t layers) {
    auto& blocks = layout_.stages[stage];
    if (!blocks.empty() && blocks.back().kind == kind) {
      blocks.back().count += layers;
    } else {
      blocks.push_back({kind, next_layer_, layers});
    }
    next_layer_ += layers;
  };
  for (const int64_t end = next_layer_ + count; next_layer_ < end;) {
    const bool experts = model_.IsExpertLayer(next_layer_);
    int64_t alike = next_layer_ + 1;
    while (alike < end && model_.IsExpertLayer(alike) == experts) ++alike;
    add(experts ? BlockKind::kExpertLayer : BlockKind::kDenseLayer,
        alike - next_layer_);
  }
}

StageLayout StageLayoutBuilder::Finish() {
  PW_CHECK(next_layer_ == model_.layers);
  if (spread_) {
    const double part = 1.0 / static_cast<double>(layout_.stages.size());
    for (std::vector<StageBlock>& blocks : layout_.stages) {
      blocks.insert(blocks.begin(), {BlockKind::kEmbedding, 0, 1, part});
      blocks.push_back({BlockKind::kHead, 0, 1, part});
    }
  }
  return std::move(layout_);
}

int64_t StageLayout::LayersOf(int stage) const {
  int64_t layers = 0;
  for (const StageBlock& block : stages[stage]) {
    if (block.kind == BlockKind::kDenseLayer ||
        block.kind == BlockKind::kExpertLayer) {
      layers += block.count;
    }
  }
  return layers;
}

std::string StageLayout::ToString() const {
  std::string text;
  for (const std::vector<StageBlock>& blocks : stages) {
    std::vector<std::string> parts;
    for (const StageBlock& block : blocks) parts.push_back(Describe(block));
    absl::StrAppend(&text, blocks.empty() ? "nothing" : "",
                    absl::StrJoin(parts, ", "), "\n");
  }
  return text;
}

std::set<int> RanksWithTable(const StageLayout& layout,
                             const std::vector<int>& rank_of_stage) {
  std::set<int> ranks;
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    for (const StageBlock& block : layout.stages[stage]) {
      if (block.kind == BlockKind::kEmbedding) {
        ranks.insert(rank_of_stage[stage]);
      }
    }
  }
  return ranks;
}

std::vector<Recompute> RecomputeOfStages(
    const TrainingSpec& training, const std::vector<int>& rank_of_stage) {
  std::vector<Recompute> recompute;
  std::map<int, int> chunks;  // of a rank so far
  for (const int rank : rank_of_stage) {
    const int chunk = chunks[rank]++;
    const bool runs_again =
        training.recompute_chunks.empty() || training.recompute_chunks[chunk];
    recompute.push_back(runs_again ? training.recompute : Recompute::kNone);
  }
  return recompute;
}

absl::StatusOr<StageLayout> LayoutFromCounts(
    const ModelSpec& model, const TrainingSpec& training,
    const std::vector<int64_t>& layers_of_stage) {
  PW_CHECK(!layers_of_stage.empty());
  double sum = 0;
  for (const int64_t layers : layers_of_stage) {
    if (layers < 0) {
      return BadValue("strategy.layers", absl::StrCat(layers),
                      "integers from 0 on");
    }
    sum += static_cast<double>(layers);
  }
  if (sum != static_cast<double>(model.layers)) {
    return BadValue("strategy.layers", absl::StrJoin(layers_of_stage, ", "),
                    absl::StrCat("numbers that add up to the ", model.layers,
                                 " layers of the model; these are ", sum));
  }
  const int stages = static_cast<int>(layers_of_stage.size());
  StageLayoutBuilder builder(model, training, stages);
  builder.AddEmbedding(0);
  for (int stage = 0; stage < stages; ++stage) {
    builder.AddLayers(stage, layers_of_stage[stage]);
  }
  builder.AddMtp(stages - 1, model.mtp_layers);
  builder.AddHead(stages - 1);
  return builder.Finish();
}

absl::StatusOr<StageLayout> EvenLayout(const ModelSpec& model,
                                       const TrainingSpec& training, int pp,
                                       int vpp) {
  const int64_t stages = int64_t{pp} * vpp;
  if (model.layers % stages == 0) {
    return LayoutFromCounts(
        model, training, std::vector<int64_t>(stages, model.layers / stages));
  }
  const auto with = [&](int fixed, int64_t size) {
    return model.layers % (fixed * size) == 0;
  };
  const bool by_pp = model.layers % vpp == 0;
  std::string nearest = absl::StrJoin(
      NearestWorking(
          by_pp ? pp : vpp, model.layers,
          [&](int64_t size) { return with(by_pp ? vpp : pp, size); }),
      ", ");
  if (nearest.empty()) nearest = "none";
  return BadValue(
      by_pp ? "strategy.pp" : "strategy.vpp", PairText("pp * vpp", pp, vpp),
      absl::StrCat("a divisor of the model's ", model.layers,
                   " layers; the nearest ", by_pp ? "pp" : "vpp", " with ",
                   by_pp ? "vpp" : "pp", " = ", by_pp ? vpp : pp, ": ", nearest,
                   "; strategy.split: balanced works for any number"));
}

}  // namespace pipewright
