#include "sim/cost/profile_shape.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

struct PassWork {
  double linear;     // times the FLOPs of F
  double attention;  // products of scores or values, of which F has two
  double streamed;
};

// Linear layers: F, the gradient of the input and that of the weights are as
// many FLOPs each. Attention: two products forward, five backward (scores
// again; FlashAttention, arXiv 2205.14135).
PassWork WorkOf(ProfilePass pass) {
  switch (pass) {
    case ProfilePass::kBackwardInput:
      return {1, 5, 2};
    case ProfilePass::kBackwardWeight:
      return {1, 0, 1};
    case ProfilePass::kBackwardFull:
      return {2, 5, 3};
    case ProfilePass::kForward:
    case ProfilePass::kRecompute:
      return {1, 2, 1};
  }
  return {1, 2, 1};
}

// Of the matrices that a token meets, all devices.
double Parameters(ProfilePart part, const ProfileModel& model) {
  const auto hidden = static_cast<double>(model.hidden);
  if (!IsLayer(part)) {
    return hidden * static_cast<double>(model.vocabulary);
  }
  const auto heads = static_cast<double>(2 * model.heads + 2 * model.kv_heads);
  const double matrices = model.style == "llama" ? 3 : 2;
  double ffn = static_cast<double>(model.ffn);
  double router = 0;
  if (part == ProfilePart::kExpertLayer) {
    ffn = static_cast<double>(model.experts_per_token * model.expert_ffn +
                              model.shared_ffn);
    router = static_cast<double>(model.experts);
  }
  return hidden * (heads * static_cast<double>(model.head_dim) +
                   matrices * ffn + router);
}

}  // namespace

absl::StatusOr<ProfileModel> ProfileModelOf(const ModelSpec& model) {
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "costs.profile: model ", model.name, " has ", what,
        ", which no profile measures; allowed: models without them that are "
        "trained whole (or --analytic)"));
  };
  if (model.has_mla()) return refuse("latent attention");
  if (model.mtp_layers > 0) return refuse("multi-token prediction");
  if (model.frozen_layers > 0) return refuse("frozen layers");
  if (model.lora_rank > 0) return refuse("LoRA adapters");
  return ProfileModel{.style = model.gated ? "llama" : "gpt",
                      .hidden = model.hidden,
                      .heads = model.heads,
                      .kv_heads = model.kv_heads,
                      .head_dim = model.HeadDim(),
                      .ffn = model.ffn_hidden,
                      .vocabulary = model.vocabulary,
                      .causal = model.causal,
                      .experts = model.experts,
                      .experts_per_token = model.experts_per_token,
                      .expert_ffn = model.expert_ffn_hidden,
                      .shared_ffn = model.shared_ffn_hidden};
}

std::vector<ProfilePart> LayerPartsOf(const ModelSpec& model) {
  std::vector<ProfilePart> parts;
  if (!model.IsExpertLayer(0)) parts.push_back(ProfilePart::kLayer);
  if (model.has_experts() && model.first_dense_layers < model.layers) {
    parts.push_back(ProfilePart::kExpertLayer);
  }
  return parts;
}

bool SameShape(ProfilePart part, const ProfileModel& one,
               const ProfileModel& other) {
  if (one.style != other.style || one.hidden != other.hidden) return false;
  if (!IsLayer(part)) return one.vocabulary == other.vocabulary;
  if (one.heads != other.heads || one.kv_heads != other.kv_heads ||
      one.head_dim != other.head_dim || one.causal != other.causal) {
    return false;
  }
  if (part == ProfilePart::kLayer) return one.ffn == other.ffn;
  return one.experts == other.experts &&
         one.experts_per_token == other.experts_per_token &&
         one.expert_ffn == other.expert_ffn &&
         one.shared_ffn == other.shared_ffn;
}

GridPoint PointOf(ProfilePart part, ProfilePass pass, const ProfileModel& model,
                  int64_t microbatch_size, int64_t sequence, int64_t tp) {
  const PassWork work = WorkOf(pass);
  const double tokens =
      static_cast<double>(microbatch_size) * static_cast<double>(sequence);
  const auto shards = static_cast<double>(tp);
  const double parameters = Parameters(part, model);
  double linear = 2 * tokens * parameters / shards;
  double attention = 0;
  double streamed = tokens * static_cast<double>(model.hidden);
  if (part == ProfilePart::kEmbedding) linear = 0;
  if (part == ProfilePart::kHead) {
    streamed += tokens * static_cast<double>(model.vocabulary) / shards;
  }
  if (IsLayer(part)) {
    attention = (model.causal ? 1.0 : 2.0) * tokens *
                static_cast<double>(sequence * model.heads * model.head_dim) /
                shards;
  }
  return {.work = {work.linear * linear, work.attention * attention,
                   work.streamed * streamed},
          .where = {static_cast<double>(microbatch_size),
                    static_cast<double>(sequence), shards, parameters}};
}

std::vector<const PassEntry*> EntriesOf(const Profile& profile,
                                        ProfilePart part, ProfilePass pass,
                                        absl::string_view type,
                                        const ProfileModel& model,
                                        bool any_shape) {
  std::vector<const PassEntry*> out;
  for (const PassEntry& entry : profile.passes) {
    if (entry.part != part || entry.pass != pass || entry.type != type ||
        entry.time.median_s <= 0) {
      continue;
    }
    if (any_shape ? entry.model.style == model.style &&
                        entry.model.causal == model.causal
                  : SameShape(part, entry.model, model)) {
      out.push_back(&entry);
    }
  }
  return out;
}

std::string ShapeName(ProfilePart part, const ProfileModel& model) {
  if (!IsLayer(part)) {
    return absl::StrCat(model.style, " h", model.hidden, " v",
                        model.vocabulary);
  }
  return absl::StrCat(
      model.style, " h", model.hidden, " a", model.heads,
      model.kv_heads == model.heads ? "" : absl::StrCat("/", model.kv_heads),
      " d", model.head_dim,
      part == ProfilePart::kLayer
          ? absl::StrCat(" f", model.ffn)
          : absl::StrCat(" e", model.experts, "/", model.experts_per_token,
                         " f", model.expert_ffn),
      part == ProfilePart::kExpertLayer && model.shared_ffn > 0
          ? absl::StrCat(" shared f", model.shared_ffn)
          : "",
      model.causal ? "" : " bidirectional");
}

std::vector<LeftOutRow> LeaveOneOut(const Profile& profile) {
  std::map<std::string, LeftOutRow> rows;
  for (const PassEntry& entry : profile.passes) {
    if (entry.time.median_s <= 0) continue;
    const std::string name = absl::StrCat(
        ProfilePartName(entry.part), " ", ProfilePassName(entry.pass), " ",
        ShapeName(entry.part, entry.model), " ", entry.type,
        entry.ep > 1 ? absl::StrCat(" ep", entry.ep) : "");
    LeftOutRow& row = rows[name];
    row.name = name;
    row.entries.push_back(&entry);
  }
  std::vector<LeftOutRow> out;
  for (auto& [name, row] : rows) {
    std::vector<GridPoint> points;
    for (const PassEntry* entry : row.entries) {
      points.push_back(PointOf(entry->part, entry->pass, entry->model,
                               entry->microbatch_size, entry->sequence,
                               entry->tp));
      points.back().seconds = entry->time.median_s;
    }
    if (points.size() < 2) continue;
    row.errors = Interpolation(std::move(points)).left_out();
    out.push_back(std::move(row));
  }
  return out;
}

std::optional<TransferTime> TransferSeconds(const Profile& profile,
                                            absl::string_view operation,
                                            int64_t ranks, double bytes) {
  std::map<double, double> seconds;  // by size
  for (const TransferEntry& entry : profile.transfers) {
    if (entry.operation == operation && entry.ranks == ranks &&
        entry.bytes > 0 && entry.time.median_s > 0) {
      seconds[static_cast<double>(entry.bytes)] = entry.time.median_s;
    }
  }
  if (seconds.empty()) return {};
  const auto above = seconds.lower_bound(bytes);
  if (above == seconds.end()) {
    const auto& [size, time_s] = *seconds.rbegin();
    return TransferTime{time_s * bytes / size, false};
  }
  if (above->first == bytes) return TransferTime{above->second, true};
  if (above == seconds.begin()) return TransferTime{above->second, false};
  const auto below = std::prev(above);
  const double part =
      std::log(bytes / below->first) / std::log(above->first / below->first);
  return TransferTime{
      below->second * std::pow(above->second / below->second, part), true};
}

}  // namespace pipewright
