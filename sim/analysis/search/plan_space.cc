#include "sim/analysis/search/plan_space.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr int kMostChunks = 12;
constexpr int kMostMicrobatchSize = 8;
// A ring of context parallelism with fewer tokens a device waits for its
// messages.
constexpr int64_t kLeastContextTokens = 4096;

// Few passes that stand for many: what a generator refuses depends on the
// microbatches by what is left over, once there are several for each rank.
int Reduced(int microbatches, int pp) {
  const int period = 4 * pp;
  return microbatches <= period ? microbatches : period + microbatches % period;
}

ScheduleParams SmallParams(int pp, int vpp, int microbatches) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  return params;
}

// Does the order change when costs come?
bool IsPlanner(const std::string& name, int vpp) {
  ScheduleParams params = SmallParams(4, vpp, 8);
  const absl::StatusOr<Schedule> plain = BuildSchedule(name, params);
  if (!plain.ok()) return false;
  for (const double weight : {0.3, 3.0}) {
    params.costs = {.forward = 1,
                    .backward_input = 2 * weight,
                    .backward_weight = weight,
                    .hop = 0.1,
                    .given = true};
    const absl::StatusOr<Schedule> timed = BuildSchedule(name, params);
    if (!timed.ok() || !RunAlike(*plain, *timed)) return true;
  }
  return false;
}

}  // namespace

bool RunAlike(const Schedule& one, const Schedule& other) {
  if (one.pp() != other.pp() || one.vpp() != other.vpp() ||
      one.microbatches != other.microbatches || one.slices != other.slices ||
      one.unit != other.unit || one.update_every != other.update_every ||
      one.directions != other.directions || one.backward != other.backward ||
      one.gaps != other.gaps) {
    return false;
  }
  for (int stage = 0; stage < one.stages(); ++stage) {
    if (one.placement.RankOf(stage) != other.placement.RankOf(stage)) {
      return false;
    }
  }
  for (int rank = 0; rank < one.pp(); ++rank) {
    if (one.order(rank) != other.order(rank)) return false;
  }
  return true;
}

const std::vector<PlanAxis>& PlanAxes() {
  static const auto* axes = new std::vector<PlanAxis>{
      {"nodes", "system.nodes",
       "all; with objective cost or energy also every power of two below"},
      {"tp", "strategy.tp", "divisors of the devices of a node"},
      {"cp", "strategy.cp",
       "powers of two that leave 4096 tokens of a sample to each device"},
      {"pp", "strategy.pp",
       "divisors of the devices left by tp and cp, at most the layers"},
      {"dp", "strategy.dp", "the devices that are left"},
      {"ep", "strategy.ep",
       "divisors of the experts and of dp * cp; 1 without experts"},
      {"microbatch_size", "strategy.microbatch_size",
       "powers of two up to 8 that divide the global batch over dp"},
      {"microbatches", "strategy.microbatches",
       "global batch / (dp * microbatch size)"},
      {"schedule", "schedule.name",
       "every registered one that flushes, cuts no sequence and follows a "
       "rule; planners only where they are named"},
      {"vpp", "strategy.vpp",
       "1, or 2 to 12 where the schedule is about several chunks and pp is "
       "above 1"},
      {"layout", "", "even, and fewer layers at the ends (plan_layouts.h)"},
      {"recompute", "strategy.recompute",
       "none, norm-activation, full; selective with unfused attention"},
      {"data_parallel", "strategy.data_parallel",
       "ddp, zero1, zero2, fsdp where dp * cp is above 1"},
      {"offload", "strategy.offload",
       "none, selective, full; none without PCIe"},
  };
  return *axes;
}

const std::vector<PlanVariantAxis>& PlanVariantAxes() {
  static const auto* axes = new std::vector<PlanVariantAxis>{
      {{"precision", "strategy.precision", "of linear layers"},
       [](const PlanGroup&) { return true; }},
      {{"launch", "strategy.launch", "who launches kernels"},
       [](const PlanGroup&) { return true; }},
      {{"etp", "strategy.etp", "what divides tp"},
       [](const PlanGroup&) { return true; }},
      {{"dispatch", "strategy.dispatch", "where ep is above 1"},
       [](const PlanGroup& group) { return group.ep > 1; }},
      {{"overlap_experts", "strategy.overlap_experts",
        "where ep and the microbatches are above 1"},
       [](const PlanGroup& group) {
         return group.ep > 1 && group.microbatches > 1;
       }},
      {{"overlap_tensor", "strategy.overlap_tensor", "where tp is above 1"},
       [](const PlanGroup& group) { return group.tp > 1; }},
      {{"recompute_modules", "strategy.recompute_modules",
        "of recompute selective; several at once are joined by +"},
       [](const PlanGroup& group) {
         return group.recompute == Recompute::kSelective;
       }},
  };
  return *axes;
}

bool PlanSpace::Allows(const std::string& axis,
                       const std::string& value) const {
  const auto found = request_.fixed.find(axis);
  return found == request_.fixed.end() ||
         std::find(found->second.begin(), found->second.end(), value) !=
             found->second.end();
}

bool PlanSpace::Allows(const std::string& axis, int64_t value) const {
  return Allows(axis, absl::StrCat(value));
}

// The fixed values, or those of the rule up to `most`.
std::vector<int> PlanSpace::Values(
    const std::string& axis, int64_t most,
    const std::function<bool(int64_t)>& legal) const {
  std::vector<int> values;
  const auto found = request_.fixed.find(axis);
  if (found == request_.fixed.end()) {
    for (int64_t value = 1; value <= most; ++value) {
      if (legal(value)) values.push_back(static_cast<int>(value));
    }
    return values;
  }
  for (const std::string& text : found->second) {
    int value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= 1) values.push_back(value);
  }
  return values;
}

const ScheduleFacts& PlanSpace::Facts(int schedule, int pp, int vpp,
                                      int microbatches) {
  const int reduced = Reduced(microbatches, pp);
  const auto [entry, is_new] =
      facts_.try_emplace({schedule, pp, vpp, reduced}, ScheduleFacts());
  if (!is_new) return entry->second;
  ScheduleFacts& facts = entry->second;
  ScheduleParams params = SmallParams(pp, vpp, reduced);
  params.own = request_.base.schedule.params;
  params.own.erase(PairParam().key);
  params.slices = request_.base.strategy.slices.value_or(1);
  if (model() != nullptr) {
    params.sequence.tokens = probe_.prepared_model->training.sequence;
  }
  const absl::StatusOr<Schedule> built =
      BuildSchedule(schedules_[schedule], params);
  // Ours to find out later, with a message.
  facts.legal = built.ok() || is_planner_[schedule];
  if (!built.ok()) return facts;
  facts.directions = built->directions;
  facts.unit = built->unit;
  if (built->backward != BackwardRule::kChain) return facts;
  facts.flushes = built->update_every == 0;
  facts.recomputes = built->Has(PassKind::kRecompute);
  facts.full_backward =
      !built->Has(PassKind::kBackwardInput) && !facts.recomputes;
  for (int stage = 0; stage < built->stages(); ++stage) {
    facts.rank_of_stage.push_back(built->placement.RankOf(stage));
  }
  return facts;
}

absl::Status PlanSpace::ChooseSchedules() {
  const auto fixed = request_.fixed.find("schedule");
  std::vector<const ScheduleInfo*> rows;
  if (fixed == request_.fixed.end()) {
    rows = AllSchedules();
  } else {
    for (const std::string& name : fixed->second) {
      absl::StatusOr<ScheduleMatch> match = FindSchedule(name);
      PW_RETURN_IF_ERROR(Prefix("--fix schedule", match.status()));
      rows.push_back(match->info);
    }
  }
  for (const ScheduleInfo* row : rows) {
    const bool planner = IsPlanner(row->name, row->default_vpp);
    if (fixed == request_.fixed.end()) {
      const absl::StatusOr<Schedule> built =
          BuildSchedule(row->name, SmallParams(4, row->default_vpp, 8));
      if (!built.ok() || built->slices > 1 || built->update_every > 0 ||
          built->backward != BackwardRule::kChain || row->slice_factor ||
          row->name == "seq1f1b" || planner) {
        continue;
      }
    }
    schedules_.push_back(row->name);
    is_planner_.push_back(planner);
    default_vpp_.push_back(row->default_vpp);
    is_plain_.push_back(row->name == "1f1b" || row->name == "interleaved-1f1b");
  }
  if (std::find(is_plain_.begin(), is_plain_.end(), true) == is_plain_.end()) {
    is_plain_.assign(schedules_.size(), true);
  }
  return absl::OkStatus();
}

void PlanSpace::MakeLayouts(int pp, int vpp) {
  auto [entry, is_new] = layouts_.try_emplace({pp, vpp});
  if (!is_new) return;
  std::vector<PlanLayout>& layouts = entry->second;
  const StrategyChoice& given = request_.base.strategy;
  if (model() == nullptr || !given.layers.empty() || given.layout ||
      given.split) {
    layouts.push_back({.name = "given", .given = true});
    return;
  }
  std::vector<PlanLayout> all = LayoutsOf(model()->layers, pp, vpp);
  if (!request_.base.slow.devices.empty()) {
    const std::optional<PlanLayout> slow = SlowLayout(pp, vpp);
    const auto is_same = [&](const PlanLayout& layout) {
      return layout.counts == slow->counts;
    };
    if (slow && std::none_of(all.begin(), all.end(), is_same)) {
      all.push_back(*slow);
    }
  }
  const auto fixed = request_.fixed.find("layout");
  if (fixed == request_.fixed.end()) {
    layouts = all;
    return;
  }
  for (const std::string& name : fixed->second) {
    bool known = name == "ends" || name == "even" || name == kBySpeed;
    for (const PlanLayout& layout : all) {
      known = known || layout.name == name;
      if (layout.name == name ||
          (name == "ends" && layout.name.rfind("ends", 0) == 0)) {
        layouts.push_back(layout);
      }
    }
    if (known || name.rfind("ends", 0) == 0) continue;
    const absl::StatusOr<PlanLayout> own = LayoutOfText(name);
    if (own.ok()) layouts.push_back(*own);
  }
}

const std::vector<PlanLayout>& PlanSpace::Layouts(int pp, int vpp) const {
  return layouts_.at({pp, vpp});
}

TrainingSpec PlanSpace::TrainingOf(const PlanGroup& group) const {
  TrainingSpec training;
  if (probe_.prepared_model) training = probe_.prepared_model->training;
  training.tp = group.tp;
  training.cp = group.cp;
  training.ep = group.ep;
  training.dp = group.dp;
  const StrategyChoice& given = request_.base.strategy;
  training.sequence_parallel = SequenceParallelOf(
      given, group.tp, model() != nullptr && model()->has_experts());
  if (training.sharded.shard_group > 0 && !given.shard_group) {
    training.sharded.shard_group = group.dp;
  }
  training.keeps_gathered = KeepsGatheredOf(given, training.sequence_parallel);
  training.stage_buffers = StageBuffersOf(given, group.pp);
  training.execution.context = ContextOf(given, group.cp);
  training.microbatch_size = group.microbatch_size;
  training.execution.etp = ExpertTensorOf(given, group.ep);
  if (given.expert_load) {
    training.execution.expert_load = *given.expert_load;
  }
  // The probe has one microbatch, beside which nothing else runs.
  const bool alternates = group.microbatches > 1;
  training.execution.overlap_experts =
      alternates && given.overlap_experts.value_or(false);
  training.execution.braided_tensor =
      alternates && given.braided_tensor.value_or(false);
  training.recompute = group.recompute;
  training.recompute_chunks.clear();
  training.zero = 0;
  return training;
}

int PlanSpace::NumShardings(const PlanGroup& group, int directions) const {
  if (group.dp * group.cp * directions == 1) return 1;
  if (directions == 1) return static_cast<int>(shardings_.size());
  // Lower takes no sharded optimizer where a pipeline holds a stage twice.
  return 1;
}

std::vector<PlanPoint> PlanSpace::PointsOf(const PlanGroup& group) const {
  std::vector<PlanPoint> points;
  for (int sharding = 0; sharding < group.num_shardings; ++sharding) {
    for (const OffloadMode offload : offloads_) {
      PlanPoint point = {.group = group, .offload = offload};
      const bool alone = group.dp * group.cp == 1;
      if (group.num_shardings > 1 || !alone) {
        point.data_parallel = shardings_[sharding];
      }
      // What CheckFramework refuses.
      if (request_.base.strategy.framework == Framework::kDeepSpeed &&
          group.pp > 1 && TraitsOf(point.data_parallel).shards_gradients) {
        continue;
      }
      points.push_back(point);
    }
  }
  return points;
}

bool PlanSpace::IsPlain(const PlanGroup& group) const {
  if (&Of(group) != this) return Of(group).IsPlain(group);
  if (!is_plain_[group.schedule]) return false;
  // Layouts without layers that are left over come first if none is even.
  const std::vector<PlanLayout>& layouts = Layouts(group.pp, group.vpp);
  const auto plain = [](const PlanLayout& layout) {
    return layout.name.rfind("ends", 0) != 0 ||
           std::count(layout.name.begin(), layout.name.end(), ' ') == 2;
  };
  const auto first = std::find_if(layouts.begin(), layouts.end(), plain);
  return group.layout ==
         (first == layouts.end() ? 0 : std::distance(layouts.begin(), first));
}

bool PlanSpace::IsPlain(const PlanPoint& point) const {
  const bool can_stay = std::find(offloads_.begin(), offloads_.end(),
                                  OffloadMode::kNone) != offloads_.end();
  return IsPlain(point.group) &&
         (!can_stay || point.offload == OffloadMode::kNone);
}

void PlanSpace::AddGroups(const PlanGroup& degrees, bool plain,
                          std::vector<PlanGroup>* groups) {
  const int64_t batch = request_.global_batch / degrees.dp;
  const auto sizes =
      Values("microbatch_size", kMostMicrobatchSize,
             [](int64_t size) { return (size & (size - 1)) == 0; });
  for (const int size : sizes) {
    if (batch % size != 0) continue;
    PlanGroup group = degrees;
    group.variant = variant_;
    group.microbatch_size = size;
    group.microbatches = static_cast<int>(batch / size);
    if (!Allows("microbatches", group.microbatches)) continue;
    if (model() != nullptr &&
        !CheckTraining(*model(), TrainingOf(group), 1).ok()) {
      continue;
    }
    for (size_t index = 0; index < schedules_.size(); ++index) {
      if (plain && !is_plain_[index]) continue;
      group.schedule = static_cast<int16_t>(index);
      for (const int vpp : ChunksOf(group.schedule)) {
        if (group.pp == 1 && vpp > 1) continue;
        if (model() != nullptr &&
            int64_t{group.pp} * vpp > model()->layers + 2) {
          continue;
        }
        group.vpp = static_cast<int16_t>(vpp);
        const ScheduleFacts& facts =
            Facts(group.schedule, group.pp, vpp, group.microbatches);
        if (!facts.legal) continue;
        group.num_shardings =
            static_cast<uint8_t>(NumShardings(group, facts.directions));
        MakeLayouts(group.pp, vpp);
        const size_t layouts = Layouts(group.pp, vpp).size();
        for (size_t layout = 0; layout < layouts; ++layout) {
          group.layout = static_cast<int16_t>(layout);
          if (plain && !IsPlain(group)) continue;
          for (const Recompute recompute : recomputes_) {
            group.recompute = recompute;
            if (!IsRepeated(group)) groups->push_back(group);
          }
        }
      }
    }
  }
}

bool PlanSpace::IsRepeated(const PlanGroup& group) const {
  return std::any_of(
      later_.begin(), later_.end(),
      [&](const PlanVariantAxis* axis) { return !axis->matters(group); });
}

std::vector<PlanSpace*> PlanSpace::Variants() {
  std::vector<PlanSpace*> all = {this};
  for (const auto& other : others_) all.push_back(other.get());
  return all;
}

std::vector<int> PlanSpace::ChunksOf(int schedule) const {
  const int usual = default_vpp_[schedule];
  return Values("vpp", usual == 1 ? 1 : kMostChunks,
                [&](int64_t vpp) { return usual == 1 ? vpp == 1 : vpp >= 2; });
}

std::vector<PlanGroup> PlanSpace::Groups(bool plain) {
  std::vector<PlanGroup> groups;
  const int64_t tokens =
      model() == nullptr ? 0 : probe_.prepared_model->training.sequence;
  const auto nodes = Values("nodes", nodes_, [&](int64_t value) {
    return value == nodes_ ||
           (request_.objective != PlanObjective::kTokensPerSecond &&
            (value & (value - 1)) == 0);
  });
  for (const int used : nodes) {
    const int devices = used * devices_per_node_;
    const auto tps = Values("tp", devices_per_node_, [&](int64_t tp) {
      return devices_per_node_ % tp == 0;
    });
    const auto cps = Values("cp", devices, [&](int64_t cp) {
      return (cp & (cp - 1)) == 0 &&
             (cp == 1 || tokens / cp >= kLeastContextTokens);
    });
    for (const int tp : tps) {
      for (const int cp : cps) {
        if (devices % (int64_t{tp} * cp) != 0) continue;
        const int left = devices / (tp * cp);
        const int64_t layers = model() == nullptr ? left : model()->layers;
        for (const int pp : Values("pp", std::min<int64_t>(left, layers),
                                   [](int64_t) { return true; })) {
          if (left % pp != 0) continue;
          const int dp = left / pp;
          if (!Allows("dp", dp) || request_.global_batch % dp != 0) continue;
          const int64_t experts = model() == nullptr ? 0 : model()->experts;
          // Experts go across tp where they are split over less of it.
          const int split = ExpertTensorOf(request_.base.strategy, 2);
          const int etp = split > 0 ? split : tp;
          const int64_t shards =
              int64_t{dp} * cp * (tp % etp == 0 ? tp / etp : 1);
          const auto eps =
              Values("ep", std::max<int64_t>(experts, 1), [&](int64_t ep) {
                return ep == 1 || (experts % ep == 0 && shards % ep == 0);
              });
          for (const int ep : eps) {
            if (shards % ep != 0) continue;
            AddGroups({.nodes = used,
                       .dp = dp,
                       .tp = static_cast<int16_t>(tp),
                       .cp = static_cast<int16_t>(cp),
                       .ep = static_cast<int16_t>(ep),
                       .pp = static_cast<int16_t>(pp)},
                      plain, &groups);
          }
        }
      }
    }
  }
  return groups;
}

RunConfig PlanSpace::ConfigOf(const PlanPoint& point) const {
  const PlanGroup& group = point.group;
  if (&Of(group) != this) return Of(group).ConfigOf(point);
  RunConfig config = request_.base;
  StrategyChoice& strategy = config.strategy;
  strategy.tp = group.tp;
  strategy.cp = group.cp;
  if (model() != nullptr && model()->has_experts()) strategy.ep = group.ep;
  strategy.pp = group.pp;
  strategy.dp = group.dp;
  strategy.vpp = group.vpp;
  strategy.microbatches = group.microbatches;
  strategy.microbatch_size = group.microbatch_size;
  if (model() != nullptr) strategy.recompute = group.recompute;
  strategy.zero.reset();
  strategy.data_parallel.reset();
  if (point.data_parallel != DataParallel::kNone) {
    strategy.data_parallel = point.data_parallel;
  }
  if (model() != nullptr) strategy.offload = point.offload;
  config.schedule.name = schedules_[group.schedule];
  if (NamesSystem(config.system)) {
    if (!config.system.nodes) config.defaulted.emplace_back("system.nodes");
    config.system.nodes = group.nodes;
  }
  const PlanLayout& layout = Layouts(group.pp, group.vpp)[group.layout];
  if (!layout.counts.empty()) strategy.layers = layout.counts;
  if (!layout.text.empty()) strategy.layout = layout.text;
  return config;
}

RunConfig PlanSpace::CandidateOf(const PlanPoint& point) const {
  RunConfig config = ConfigOf(point);
  config.defaulted = GivenPaths(config);
  return config;
}

std::string PlanSpace::NameOf(const PlanPoint& point) const {
  const PlanGroup& group = point.group;
  if (&Of(group) != this) return Of(group).NameOf(point);
  std::vector<std::string> parts;
  const auto add = [&](const char* name, int value, int silent) {
    if (value != silent) parts.push_back(absl::StrCat(name, " ", value));
  };
  parts.push_back(schedules_[group.schedule]);
  parts.push_back(absl::StrCat("tp ", group.tp));
  add("cp", group.cp, 1);
  parts.push_back(absl::StrCat("pp ", group.pp));
  add("vpp", group.vpp, 1);
  parts.push_back(absl::StrCat("dp ", group.dp));
  add("ep", group.ep, 1);
  parts.push_back(absl::StrCat(group.microbatches, " microbatches of ",
                               group.microbatch_size));
  const PlanLayout& layout = Layouts(group.pp, group.vpp)[group.layout];
  parts.push_back(absl::StrCat("layout ", layout.name));
  if (group.recompute != Recompute::kNone) {
    parts.push_back(absl::StrCat(
        "recompute ", ChoiceName(RecomputeChoices(), group.recompute)));
  }
  if (point.data_parallel != DataParallel::kNone) {
    parts.push_back(TraitsOf(point.data_parallel).name);
  }
  if (point.offload != OffloadMode::kNone) {
    parts.push_back(
        absl::StrCat("offload ", ChoiceName(OffloadChoices(), point.offload)));
  }
  for (const auto& [name, value] : chosen_) {
    parts.push_back(absl::StrCat(name, " ", value));
  }
  if (request_.objective != PlanObjective::kTokensPerSecond) {
    parts.push_back(absl::StrCat(group.nodes, " nodes"));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace pipewright
