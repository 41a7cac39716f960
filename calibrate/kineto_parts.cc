#include "calibrate/kineto_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Vocabularies are padded to multiples of this times tp at most (Megatron-LM,
// --make-vocab-size-divisible-by, default 128).
constexpr int64_t kVocabularyPadding = 128;

// A stretch of a host thread that belongs to a part.
struct Stretch {
  double start_us;
  double end_us;
  TracePart part;
  const KinetoMark* layer = nullptr;
  bool has_product = false;  // in the head, or it is all of it
};

// Returns the stretch at `us`, or null; `stretches` are in order and do not
// overlap.
const Stretch* StretchAt(const std::vector<Stretch>& stretches, double us) {
  auto behind = std::upper_bound(
      stretches.begin(), stretches.end(), us,
      [](double at, const Stretch& each) { return at < each.start_us; });
  if (behind == stretches.begin()) return nullptr;
  --behind;
  return us <= behind->end_us ? &*behind : nullptr;
}

// A node of the backward with the part that it is of.
struct Node {
  double start_us;
  double end_us;
  std::optional<TracePart> part;
  const KinetoMark* layer = nullptr;
};

struct Found {
  TracePart part = TracePart::kOther;
  const KinetoMark* layer = nullptr;
};

class PartFinder {
 public:
  PartFinder(const KinetoRank& rank, const PartSizes& sizes) : rank_(rank) {
    TakeLayers();
    TakeEnds(sizes);
    for (const TraceRegion& region : rank.regions) {
      if (region.region == Region::kForward) TakeForward(region);
    }
    TakeNodes();
  }

  absl::StatusOr<RegionParts> Of(const TraceRegion& region,
                                 bool sum_kernels) const;

 private:
  struct Forward {
    double start_us;
    double end_us;
    bool has_layers = false;
    bool has_embedding = false;
    bool has_head = false;
    bool has_product = false;
    double first_layer_us = 0;
    double last_layer_us = 0;
    double head_us = 0;  // first operator of the head
  };
  using Threads = std::map<std::string, std::vector<Stretch>>;

  void TakeLayers();
  void TakeEnds(const PartSizes& sizes);
  void TakeForward(const TraceRegion& region);
  void TakeNodes();
  const Forward* ForwardAt(const std::string& thread, double us) const;
  Found InForward(const std::string& thread, double us) const;
  Found InBackward(const LaunchedKernel& kernel) const;
  Found Direct(const std::string& thread, double us) const;
  absl::Status CountLayers(const TraceRegion& region, RegionParts* parts) const;

  const KinetoRank& rank_;
  Threads layers_;
  Threads ends_;  // embedding and head
  std::map<std::string, std::vector<Forward>> forwards_;
  std::map<std::string, std::vector<Node>> nodes_;
};

const std::vector<Stretch>& OfThread(
    const std::map<std::string, std::vector<Stretch>>& threads,
    const std::string& thread) {
  static const auto* const none = new std::vector<Stretch>;
  const auto found = threads.find(thread);
  return found == threads.end() ? *none : found->second;
}

// Modules count alone where there are any. A module that holds another layer is
// their container; of marks the outer one of a layer counts.
void PartFinder::TakeLayers() {
  bool modules = false;
  for (const KinetoMark& mark : rank_.marks) {
    modules |= mark.named.part == TracePart::kLayer && mark.named.is_module;
  }
  for (const KinetoMark& mark : rank_.marks) {
    if (mark.named.part != TracePart::kLayer) continue;
    if (mark.named.is_module != modules) continue;
    std::vector<Stretch>& list = layers_[mark.thread];
    // What starts later inside of the last one is inside of it.
    if (!list.empty() && mark.start_us < list.back().end_us) {
      if (!modules && list.back().layer->named.id == mark.named.id) continue;
      list.pop_back();
    }
    list.push_back({mark.start_us, mark.end_us, TracePart::kLayer, &mark});
  }
}

// Stretches of one part that overlap become one.
void PartFinder::TakeEnds(const PartSizes& sizes) {
  Threads all;
  for (const KinetoMark& mark : rank_.marks) {
    if (mark.named.part == TracePart::kLayer) continue;
    all[mark.thread].push_back({mark.start_us, mark.end_us, mark.named.part,
                                nullptr, /*has_product=*/true});
  }
  for (const KinetoOp& op : rank_.ops) {
    if (op.is_node) continue;
    const bool head =
        op.kind == TraceOpKind::kLoss ||
        (op.kind == TraceOpKind::kProduct && IsVocabularyProduct(op, sizes));
    if (!head && op.kind != TraceOpKind::kEmbedding) continue;
    all[op.thread].push_back({op.start_us, op.end_us,
                              head ? TracePart::kHead : TracePart::kEmbedding,
                              nullptr, op.kind == TraceOpKind::kProduct});
  }
  for (auto& [thread, list] : all) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Stretch& a, const Stretch& b) {
                       return a.start_us < b.start_us;
                     });
    std::vector<Stretch>& kept = ends_[thread];
    for (const Stretch& each : list) {
      // A lookup inside of a layer is that layer's.
      if (StretchAt(OfThread(layers_, thread), each.start_us) != nullptr) {
        continue;
      }
      if (!kept.empty() && each.start_us < kept.back().end_us) {
        kept.back().end_us = std::max(kept.back().end_us, each.end_us);
        kept.back().has_product |= each.has_product;
      } else {
        kept.push_back(each);
      }
    }
  }
}

void PartFinder::TakeForward(const TraceRegion& region) {
  Forward forward = {.start_us = region.host_start_us,
                     .end_us = region.host_end_us};
  const auto inside = [&](double us) {
    return us >= forward.start_us && us <= forward.end_us;
  };
  for (const Stretch& each : OfThread(layers_, region.thread)) {
    if (!inside(each.start_us)) continue;
    if (!forward.has_layers) forward.first_layer_us = each.start_us;
    forward.last_layer_us = each.end_us;
    forward.has_layers = true;
  }
  for (const Stretch& each : OfThread(ends_, region.thread)) {
    if (!inside(each.start_us)) continue;
    if (each.part == TracePart::kEmbedding) forward.has_embedding = true;
    if (each.part != TracePart::kHead) continue;
    if (!forward.has_head) forward.head_us = each.start_us;
    forward.has_head = true;
    forward.has_product |= each.has_product;
  }
  forwards_[region.thread].push_back(forward);
}

// A forward operator is of the part that it stands in; of several with one
// number the last made the node.
void PartFinder::TakeNodes() {
  std::map<int64_t, std::pair<double, Found>> made;
  for (const KinetoOp& op : rank_.ops) {
    if (op.is_node || op.sequence < 0) continue;
    if (ForwardAt(op.thread, op.start_us) == nullptr) continue;
    std::pair<double, Found>& entry = made[op.sequence];
    if (entry.first > op.start_us) continue;
    entry = {op.start_us, InForward(op.thread, op.start_us)};
  }
  for (const KinetoOp& op : rank_.ops) {
    if (!op.is_node) continue;
    std::vector<Node>& list = nodes_[op.thread];
    Node node = {.start_us = op.start_us, .end_us = op.end_us};
    const auto found = made.find(op.sequence);
    if (op.sequence >= 0 && found != made.end()) {
      node.part = found->second.second.part;
      node.layer = found->second.second.layer;
    } else if (op.sequence < 0 && !list.empty()) {
      node.part = list.back().part;
      node.layer = list.back().layer;
    }
    list.push_back(node);
  }
}

const PartFinder::Forward* PartFinder::ForwardAt(const std::string& thread,
                                                 double us) const {
  const auto found = forwards_.find(thread);
  if (found == forwards_.end()) return nullptr;
  const std::vector<Forward>& list = found->second;
  auto behind = std::upper_bound(
      list.begin(), list.end(), us,
      [](double at, const Forward& each) { return at < each.start_us; });
  if (behind == list.begin()) return nullptr;
  --behind;
  return us <= behind->end_us ? &*behind : nullptr;
}

Found PartFinder::Direct(const std::string& thread, double us) const {
  if (const Stretch* layer = StretchAt(OfThread(layers_, thread), us)) {
    return {TracePart::kLayer, layer->layer};
  }
  if (const Stretch* end = StretchAt(OfThread(ends_, thread), us)) {
    return {end->part, nullptr};
  }
  return {};
}

Found PartFinder::InForward(const std::string& thread, double us) const {
  const Found direct = Direct(thread, us);
  if (direct.part != TracePart::kOther) return direct;
  const Forward* const forward = ForwardAt(thread, us);
  if (forward == nullptr) return {};
  if (!forward->has_layers) {
    return {forward->has_head && us >= forward->head_us ? TracePart::kHead
                                                        : TracePart::kLayer};
  }
  if (us < forward->first_layer_us && forward->has_embedding) {
    return {TracePart::kEmbedding};
  }
  if (us > forward->last_layer_us && forward->has_head) {
    return {TracePart::kHead};
  }
  return {};
}

Found PartFinder::InBackward(const LaunchedKernel& kernel) const {
  const Found direct = Direct(kernel.thread, kernel.launch_us);
  if (direct.part != TracePart::kOther) return direct;
  const auto found = nodes_.find(kernel.thread);
  if (found == nodes_.end()) return {};
  const std::vector<Node>& list = found->second;
  const auto behind = std::upper_bound(
      list.begin(), list.end(), kernel.launch_us,
      [](double at, const Node& each) { return at < each.start_us; });
  // The innermost of nodes that stand in each other.
  constexpr int kDeepest = 8;
  auto at = behind;
  for (int step = 0; step < kDeepest && at != list.begin(); ++step) {
    --at;
    if (kernel.launch_us > at->end_us) continue;
    return at->part ? Found{*at->part, at->layer} : Found{};
  }
  return {};
}

absl::Status PartFinder::CountLayers(const TraceRegion& region,
                                     RegionParts* parts) const {
  int64_t count = 0;
  for (const Stretch& each : OfThread(layers_, region.thread)) {
    if (each.start_us < region.host_start_us ||
        each.start_us > region.host_end_us) {
      continue;
    }
    ++count;
    parts->layer_ids.insert(each.layer->named.id);
    parts->layer_name = each.layer->name;
  }
  if (region.region == Region::kForward &&
      count > static_cast<int64_t>(parts->layer_ids.size())) {
    return BadValue(
        FieldPlace::InFile(rank_.source, 0, "traceEvents"),
        absl::StrCat("'", region.name, "' at ", region.host_start_us,
                     " us goes through ", count, " layers, ", parts->layer_name,
                     " more than once"),
        "regions of one microbatch (--forward REGEX)");
  }
  return absl::OkStatus();
}

absl::StatusOr<RegionParts> PartFinder::Of(const TraceRegion& region,
                                           bool sum_kernels) const {
  RegionParts parts;
  parts.region = &region;
  PW_RETURN_IF_ERROR(CountLayers(region, &parts));
  if (region.kernels.empty()) {
    parts.us[static_cast<size_t>(TracePart::kLayer)] =
        region.end_us - region.start_us;
    parts.layers = static_cast<int64_t>(parts.layer_ids.size());
    return parts;
  }
  std::vector<PartKernel> kernels;
  std::vector<int32_t> names;
  for (const LaunchedKernel& kernel : region.kernels) {
    const TracePart said = PartOfKernel(rank_.kernel_names[kernel.name]);
    Found found = {said, nullptr};
    if (said == TracePart::kLayer) {
      found = region.region == Region::kForward
                  ? InForward(kernel.thread, kernel.launch_us)
                  : InBackward(kernel);
    } else if (said != TracePart::kCommunication) {
      // A layer may hold such a kernel too.
      const Found direct = Direct(kernel.thread, kernel.launch_us);
      if (direct.part != TracePart::kOther) found = direct;
    }
    kernels.push_back({found.part, kernel.start_us, kernel.end_us});
    if (found.layer != nullptr) {
      parts.layer_ids.insert(found.layer->named.id);
      parts.layer_name = found.layer->name;
    }
    if (found.part == TracePart::kLayer) names.push_back(kernel.name);
  }
  parts.layers = static_cast<int64_t>(parts.layer_ids.size());
  if (sum_kernels) {
    for (const PartKernel& kernel : kernels) {
      parts.us[static_cast<size_t>(kernel.part)] +=
          kernel.end_us - kernel.start_us;
    }
  } else {
    parts.us = ShareTimeline(std::move(kernels));
  }
  if (region.region == Region::kForward) {
    const Forward* const forward =
        ForwardAt(region.thread, region.host_start_us);
    parts.has_vague_head = parts.Us(TracePart::kHead) > 0 &&
                           forward != nullptr && !forward->has_layers &&
                           !forward->has_product;
  }
  parts.layer_kernels = std::move(names);
  return parts;
}

}  // namespace

bool IsVocabularyProduct(const KinetoOp& op, const PartSizes& sizes) {
  if (op.dims.size() < 2) return false;
  const ProfileModel& model = sizes.model;
  const int64_t queries = model.heads * model.head_dim;
  const int64_t keys = model.kv_heads * model.head_dim;
  const auto is_vocabulary = [&](int64_t size) {
    if (size > model.vocabulary + kVocabularyPadding * sizes.tp) return false;
    const int64_t whole = size * sizes.tp;
    for (const int64_t other :
         {model.ffn, 2 * model.ffn, queries, queries + 2 * keys, keys}) {
      if (whole == other) return false;
    }
    return size != model.hidden && size != sizes.tokens &&
           whole >= model.vocabulary &&
           whole < model.vocabulary + kVocabularyPadding * sizes.tp;
  };
  bool vocabulary = false;
  bool hidden = false;
  for (const std::vector<int64_t>& dims : op.dims) {
    if (dims.size() != 2) continue;
    vocabulary |= is_vocabulary(dims[0]) || is_vocabulary(dims[1]);
    hidden |= dims[0] == model.hidden || dims[1] == model.hidden;
  }
  return vocabulary && hidden;
}

absl::StatusOr<std::vector<RegionParts>> PartsOfRegions(const KinetoRank& rank,
                                                        const PartSizes& sizes,
                                                        bool sum_kernels) {
  const PartFinder finder(rank, sizes);
  std::vector<RegionParts> all;
  for (const TraceRegion& region : rank.regions) {
    PW_ASSIGN_OR_RETURN(RegionParts parts, finder.Of(region, sum_kernels));
    all.push_back(std::move(parts));
  }
  return all;
}

std::array<double, kNumTraceParts> ShareTimeline(
    std::vector<PartKernel> kernels) {
  std::array<double, kNumTraceParts> us = {};
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const PartKernel& a, const PartKernel& b) {
                     return a.start_us < b.start_us;
                   });
  const auto add = [&us](TracePart part, double more) {
    us[static_cast<size_t>(part)] += more;
  };
  std::vector<PartKernel> running;  // by start
  size_t next = 0;
  double at = kernels.empty() ? 0 : kernels[0].start_us;
  while (true) {
    while (next < kernels.size() && kernels[next].start_us <= at) {
      running.push_back(kernels[next++]);
    }
    running.erase(
        std::remove_if(running.begin(), running.end(),
                       [at](const PartKernel& k) { return k.end_us <= at; }),
        running.end());
    if (running.empty()) {
      if (next == kernels.size()) return us;
      add(kernels[next].part, kernels[next].start_us - at);
      at = kernels[next].start_us;
      continue;
    }
    double until = running[0].end_us;
    TracePart part = TracePart::kCommunication;
    for (const PartKernel& kernel : running) {
      until = std::min(until, kernel.end_us);
      if (part == TracePart::kCommunication) part = kernel.part;
    }
    if (next < kernels.size()) until = std::min(until, kernels[next].start_us);
    add(part, until - at);
    at = until;
  }
}

}  // namespace pipewright
