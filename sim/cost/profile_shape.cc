#include "sim/cost/profile_shape.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

struct PassWork {
  double linear;     // times the FLOPs of F
  double attention;  // products of scores or values, of which F has two
  double streamed;
};

// Linear layers: F, the gradient of the input and that of the weights are as
// many FLOPs each. Attention: two products forward, five backward (scores
// again; FlashAttention, arXiv 2205.14135). [numerics]
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

// Parameters of the matrices that a token meets, on all devices.
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
    return FieldError("costs.profile",
                      absl::StrCat("model ", model.name, " has ", what,
                                   ", which no profile measures; allowed: "
                                   "models without them that are "
                                   "trained whole (or --analytic)"));
  };
  if (model.has_mla()) return refuse("latent attention");
  if (model.mtp_layers > 0) return refuse("multi-token prediction");
  if (model.frozen_layers > 0) return refuse("frozen layers");
  if (model.lora_rank > 0) return refuse("LoRA adapters");
  if (model.window > 0) return refuse("windows of attention");
  if (!model.kinds.empty()) return refuse("layers of several kinds");
  if (model.attention_gate) return refuse("gates of attention");
  if (model.expert_latent > 0) return refuse("a projection before experts");
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
  if (model.has_dense_layers()) parts.push_back(ProfilePart::kLayer);
  if (model.ExpertLayers() > 0) {
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
                  double microbatch_size, int64_t sequence, int64_t tp) {
  const PassWork work = WorkOf(pass);
  const double tokens = microbatch_size * static_cast<double>(sequence);
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
          .where = {microbatch_size, static_cast<double>(sequence), shards,
                    parameters}};
}

std::vector<const PassEntry*> EntriesOf(const Profile& profile,
                                        ProfilePart part, ProfilePass pass,
                                        absl::string_view type,
                                        const ProfileModel& model,
                                        bool any_shape) {
  std::vector<const PassEntry*> out;
  for (const PassEntry& entry : profile.passes) {
    if (entry.part != part || entry.pass != pass || entry.type != type ||
        entry.slices > 0 || entry.pp > 0 || entry.time.median_s <= 0) {
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
    if (entry.time.median_s <= 0 || entry.slices > 0 || entry.pp > 0) {
      continue;
    }
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
                               static_cast<double>(entry->microbatch_size),
                               entry->sequence, entry->tp));
      points.back().seconds = entry->time.median_s;
    }
    if (points.size() < 2) continue;
    row.errors = Interpolation(std::move(points)).left_out();
    out.push_back(std::move(row));
  }
  return out;
}

TransferTime AtSize(const TimesBySize& seconds, double bytes) {
  const auto above = seconds.lower_bound(bytes);
  if (above == seconds.end()) {
    const auto& [size, time_s] = *seconds.rbegin();
    return {.seconds = time_s * bytes / size, .inside = false};
  }
  if (above->first == bytes) return {.seconds = above->second};
  if (above == seconds.begin()) {
    return {.seconds = above->second, .inside = false};
  }
  const auto below = std::prev(above);
  const double part =
      std::log(bytes / below->first) / std::log(above->first / below->first);
  return {.seconds =
              below->second * std::pow(above->second / below->second, part)};
}

TimesBySize TimesOfCopies(const Profile& profile, CopyDirection direction,
                          bool beside_opposite) {
  TimesBySize times;
  for (const CopyEntry& entry : profile.copies) {
    if (entry.direction != direction || entry.time.median_s <= 0 ||
        entry.beside_opposite != beside_opposite) {
      continue;
    }
    times[static_cast<double>(entry.bytes)] = entry.time.median_s;
  }
  return times;
}

TimesBySize TimesOfSends(const Profile& profile, int64_t nodes) {
  TimesBySize times;
  for (const TransferEntry& entry : profile.transfers) {
    if (entry.operation != "send_recv" || entry.transport != kNcclTransport ||
        entry.ranks != 2 || entry.nodes != nodes || entry.time.median_s <= 0) {
      continue;
    }
    times[static_cast<double>(entry.bytes)] = entry.time.median_s;
  }
  return times;
}

double MeasuredDevices(const Profile& profile) {
  int64_t devices = 1;
  for (const TransferEntry& entry : profile.transfers) {
    if (entry.transport != kNcclTransport || entry.nodes != 1) continue;
    devices = std::max(devices, entry.ranks);
  }
  return static_cast<double>(devices);
}

namespace {

using Ranks = std::map<int64_t, TimesBySize>;

std::optional<TransferTime> BetweenRanks(const Ranks& measured, int64_t ranks,
                                         double bytes) {
  const auto more = measured.upper_bound(ranks);
  if (more == measured.begin() || more == measured.end()) return {};
  const auto fewer = std::prev(more);
  const TransferTime low = AtSize(fewer->second, bytes);
  const TransferTime high = AtSize(more->second, bytes);
  const auto log_of = [](int64_t count) {
    return std::log(static_cast<double>(count));
  };
  const double part = (log_of(ranks) - log_of(fewer->first)) /
                      (log_of(more->first) - log_of(fewer->first));
  return TransferTime{
      .seconds = low.seconds * std::pow(high.seconds / low.seconds, part),
      .inside = low.inside && high.inside,
      .between_ranks = true};
}

// The lower, the sooner it is taken.
int PlaceOf(absl::string_view transport) {
  const absl::string_view order[] = {kNcclTransport, kMpiTransport,
                                     kThreadsTransport};
  return static_cast<int>(
      std::find(std::begin(order), std::end(order), transport) -
      std::begin(order));
}

}  // namespace

std::optional<TransferTime> TransferSeconds(const Profile& profile,
                                            absl::string_view operation,
                                            int64_t ranks, double bytes,
                                            const TransferFilter& filter) {
  // By how soon they are taken, name, and nodes: the fewest first.
  std::map<std::tuple<int, std::string, int64_t>, Ranks> transports;
  for (const TransferEntry& entry : profile.transfers) {
    const bool of_members =
        (filter.between_ranks ? entry.ranks > 0 : entry.ranks == ranks) &&
        (filter.nodes == 0 || entry.nodes == filter.nodes) &&
        (filter.transport.empty() || entry.transport == filter.transport);
    if (of_members && entry.operation == operation && entry.bytes > 0 &&
        entry.time.median_s > 0) {
      transports[{PlaceOf(entry.transport), entry.transport, entry.nodes}]
                [entry.ranks][static_cast<double>(entry.bytes)] =
                    entry.time.median_s;
    }
  }
  for (const auto& [transport, measured] : transports) {
    const auto exact = measured.find(ranks);
    if (exact != measured.end()) return AtSize(exact->second, bytes);
  }
  for (const auto& [transport, measured] : transports) {
    if (const auto between = BetweenRanks(measured, ranks, bytes)) {
      return between;
    }
  }
  return {};
}

double BusBytes(const TransferEntry& entry) {
  const auto bytes = static_cast<double>(entry.bytes);
  const auto ranks = static_cast<double>(entry.ranks);
  if (entry.operation == "send_recv") return bytes;
  const double once = bytes * (ranks - 1) / ranks;
  return entry.operation == "all_reduce" ? 2 * once : once;
}

}  // namespace pipewright
