#include "sim/model/stages.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/model/layer_kinds.h"

namespace pipewright {
namespace {

// A layer that has attention and a feed-forward part.
bool IsUsual(const StageBlock& block) {
  return block.layer_kind.mixer == Mixer::kAttention &&
         block.layer_kind.feed_forward != FeedForward::kNone;
}

bool HasLetters(const StageLayout& layout) {
  for (const std::vector<StageBlock>& blocks : layout.stages) {
    for (const StageBlock& block : blocks) {
      if (!IsUsual(block)) return true;
    }
  }
  return false;
}

// `letters`: some layers have other parts than attention and what is behind it.
std::string Describe(const StageBlock& block, bool letters) {
  const auto counted = [&](absl::string_view one, absl::string_view many) {
    return absl::StrCat(block.count, " ", block.count == 1 ? one : many);
  };
  const std::string part = block.part == 1 ? "" : "part of ";
  switch (block.kind) {
    case BlockKind::kEmbedding:
      return absl::StrCat(part, "embedding");
    case BlockKind::kDenseLayer:
    case BlockKind::kExpertLayer:
      if (letters) {
        return LettersOf(std::vector<LayerKind>(block.count, block.layer_kind));
      }
      return block.kind == BlockKind::kDenseLayer
                 ? counted("layer", "layers")
                 : counted("expert layer", "expert layers");
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
  const auto add = [&](const LayerKind& kind, int64_t layers) {
    auto& blocks = layout_.stages[stage];
    const bool experts = kind.feed_forward == FeedForward::kExperts;
    const BlockKind block =
        experts ? BlockKind::kExpertLayer : BlockKind::kDenseLayer;
    if (!blocks.empty() && blocks.back().kind == block &&
        blocks.back().layer_kind == kind) {
      blocks.back().count += layers;
    } else {
      blocks.push_back({block, next_layer_, layers, 1, kind});
    }
    next_layer_ += layers;
  };
  for (const int64_t end = next_layer_ + count; next_layer_ < end;) {
    const LayerKind kind = model_.KindOf(next_layer_);
    int64_t alike = next_layer_ + 1;
    while (alike < end && model_.KindOf(alike) == kind) ++alike;
    add(kind, alike - next_layer_);
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
  const bool letters = HasLetters(*this);
  std::string text;
  for (const std::vector<StageBlock>& blocks : stages) {
    std::vector<std::string> parts;
    bool after_letters = false;  // those of neighbours stand together
    for (const StageBlock& block : blocks) {
      const bool is_letters =
          letters && (block.kind == BlockKind::kDenseLayer ||
                      block.kind == BlockKind::kExpertLayer);
      const std::string part = Describe(block, letters);
      if (is_letters && after_letters) {
        parts.back() += part;
      } else {
        parts.push_back(part);
      }
      after_letters = is_letters;
    }
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
  std::map<int, int> chunks;  // chunks of a rank so far
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

// Megatron-LM's layout strings (Megatron Core user guide, "Custom Pipeline
// Model Parallel Layout").

namespace {

// Far more than any model has; keeps "((t*999)*999)*999" from filling memory.
constexpr size_t kLongest = 1 << 20;
constexpr int kDeepest = 16;

class LayoutReader {
 public:
  explicit LayoutReader(absl::string_view text) : text_(text) {}

  // The text without repetitions, groups and commas.
  absl::StatusOr<std::string> Expand() {
    PW_ASSIGN_OR_RETURN(std::string expanded, Sequence(0));
    if (at_ < text_.size()) return Error("a '(' before it");
    return expanded;
  }

 private:
  absl::Status Error(absl::string_view allowed) const {
    const std::string found = at_ < text_.size()
                                  ? absl::StrCat("'", text_.substr(at_, 1), "'")
                                  : "its end";
    return BadValue(
        "strategy.layout",
        absl::StrCat("'", text_, "', at position ", at_ + 1, ", ", found),
        allowed);
  }

  absl::StatusOr<std::string> Sequence(int depth) {
    std::string expanded;
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == ',' || absl::ascii_isspace(text_[at_])) {
        ++at_;
        continue;
      }
      PW_ASSIGN_OR_RETURN(const std::string unit, Unit(depth));
      PW_ASSIGN_OR_RETURN(const size_t count, Count());
      if (unit.size() * count + expanded.size() > kLongest) {
        return Error(absl::StrCat("at most ", kLongest, " letters in all"));
      }
      for (size_t copy = 0; copy < count; ++copy) expanded += unit;
    }
    return expanded;
  }

  absl::StatusOr<std::string> Unit(int depth) {
    const char letter = text_[at_];
    if (absl::string_view("EtmL|").find(letter) != absl::string_view::npos) {
      ++at_;
      return std::string(1, letter);
    }
    if (letter != '(') {
      return Error(
          "E (embedding), t (layer), m (multi-token prediction), L (loss), | "
          "between stages, *N after a letter or (...)");
    }
    if (depth == kDeepest) return Error("fewer '(' within each other");
    ++at_;
    PW_ASSIGN_OR_RETURN(std::string inner, Sequence(depth + 1));
    if (at_ == text_.size()) return Error("a ')'");
    ++at_;
    return inner;
  }

  absl::StatusOr<size_t> Count() {
    if (at_ == text_.size() || text_[at_] != '*') return size_t{1};
    ++at_;
    const size_t start = at_;
    size_t count = 0;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) {
      count = count * 10 + static_cast<size_t>(text_[at_] - '0');
      if (count > kLongest) return Error(absl::StrCat("at most ", kLongest));
      ++at_;
    }
    if (at_ == start) return Error("a number after '*'");
    return count;
  }

  absl::string_view text_;
  size_t at_ = 0;
};

absl::Status WrongNumber(absl::string_view text, absl::string_view letter,
                         int64_t found, absl::string_view allowed) {
  return BadValue("strategy.layout", absl::StrCat("'", text, "'"),
                  absl::StrCat(allowed, "; it has ", letter, " ", found,
                               found == 1 ? " time" : " times"));
}

absl::Status CheckLetters(const ModelSpec& model, absl::string_view text,
                          const std::string& letters, int stages) {
  const auto count = [&](char letter) {
    return std::count(letters.begin(), letters.end(), letter);
  };
  if (count('|') != stages - 1) {
    return BadValue("strategy.layout", absl::StrCat("'", text, "'"),
                    absl::StrCat("pp * vpp = ", stages,
                                 " stages with '|' between them; it "
                                 "has ",
                                 count('|') + 1));
  }
  if (count('t') != model.layers) {
    return WrongNumber(
        text, "t", count('t'),
        absl::StrCat("t for each of the model's ", model.layers, " layers"));
  }
  if (count('m') != model.mtp_layers) {
    return WrongNumber(
        text, "m", count('m'),
        absl::StrCat("m for each of the model's ", model.mtp_layers,
                     " multi-token-prediction layers"));
  }
  if (count('E') != 1 || letters.empty() || letters[0] != 'E') {
    return WrongNumber(text, "E", count('E'), "one E, at the beginning");
  }
  if (count('L') != 1 || letters.back() != 'L') {
    return WrongNumber(text, "L", count('L'), "one L, at the end");
  }
  const size_t first_m = letters.find('m');
  if (first_m != std::string::npos &&
      letters.find('t', first_m) != std::string::npos) {
    return BadValue("strategy.layout", absl::StrCat("'", text, "'"),
                    "every m after the last t");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StageLayout> ParseLayout(const ModelSpec& model,
                                        const TrainingSpec& training,
                                        absl::string_view text, int stages) {
  PW_ASSIGN_OR_RETURN(const std::string letters, LayoutReader(text).Expand());
  PW_RETURN_IF_ERROR(CheckLetters(model, text, letters, stages));
  StageLayoutBuilder builder(model, training, stages);
  int stage = 0;
  for (size_t at = 0; at < letters.size();) {
    const char letter = letters[at];
    size_t end = letters.find_first_not_of(letter, at);
    if (end == std::string::npos) end = letters.size();
    const auto count = static_cast<int64_t>(end - at);
    at = end;
    switch (letter) {
      case '|':
        stage += static_cast<int>(count);
        break;
      case 'E':
        builder.AddEmbedding(stage);
        break;
      case 't':
        builder.AddLayers(stage, count);
        break;
      case 'm':
        builder.AddMtp(stage, count);
        break;
      default:
        builder.AddHead(stage);
    }
  }
  return builder.Finish();
}

}  // namespace pipewright
