// Copies of activations to the host: what they take, which there are, when.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/copy_rate.h"
#include "sim/config/copy_turns.h"
#include "sim/config/pcie_switches.h"
#include "sim/config/prepare_parts.h"
#include "sim/memory/schedule_memory.h"
#include "sim/program/network_time.h"
#include "sim/schedule/registry.h"
#include "sim/topology/node_params.h"

namespace pipewright {
namespace {

// What is asked for, and whether the schedule asks rather than the user.
struct OffloadWish {
  OffloadMode mode = OffloadMode::kNone;
  bool is_default = false;
};

absl::StatusOr<OffloadWish> WishOf(const RunConfig& config) {
  if (config.strategy.offload) return OffloadWish{*config.strategy.offload};
  if (!config.schedule.name) return OffloadWish();
  PW_ASSIGN_OR_RETURN(const ScheduleMatch match,
                      FindSchedule(*config.schedule.name));
  return OffloadWish{match.info->offload, true};
}

// Who says which activations may go wants some to go.
absl::Status CheckNotAsked(const RunConfig& config) {
  const auto missing = [&](absl::string_view field) {
    return MissingValue(
        config.Field("strategy.offload"),
        absl::StrCat("selective or full, since ", config.Field(field),
                     " says what may go; without it nothing does"));
  };
  const StrategyChoice& strategy = config.strategy;
  if (strategy.offload) return absl::OkStatus();
  if (!strategy.offload_chunks.empty()) {
    return missing("strategy.offload_chunks");
  }
  if (strategy.offload_fraction.value_or(0) > 0) {
    return missing("strategy.offload_fraction");
  }
  return absl::OkStatus();
}

absl::Status CheckOffloads(const RunConfig& config, OffloadMode mode,
                           const Schedule& schedule) {
  const std::string given = ChoiceName(OffloadChoices(), mode);
  const FieldPlace field = config.Field("strategy.offload");
  if (schedule.Has(PassKind::kOffload)) {
    return BadValue(field, given,
                    "none, since the schedule has O passes of its own");
  }
  if (schedule.backward == BackwardRule::kNone) {
    return BadValue(field, given,
                    "none, since a schedule without backward keeps no "
                    "activations");
  }
  if (schedule.update_every > 0) {
    return BadValue(field, given,
                    absl::StrCat("none: schedule ", schedule.name,
                                 " is never flushed, and copies that cross "
                                 "iterations are not planned"));
  }
  if (!config.strategy.offload_chunks.empty() &&
      config.strategy.offload_fraction) {
    return BothGiven(config.Field("strategy.offload_chunks"),
                     "strategy.offload_fraction");
  }
  for (const int64_t chunk : config.strategy.offload_chunks) {
    if (chunk < schedule.vpp()) continue;
    return BadValue(config.Field("strategy.offload_chunks"),
                    absl::StrCat(chunk),
                    absl::StrCat("chunks of a rank, 0..", schedule.vpp() - 1));
  }
  return absl::OkStatus();
}

double WorkOf(const StageCosts& stage) {
  return stage.forward_s +
         (stage.backward_full_s > 0
              ? stage.backward_full_s
              : stage.backward_input_s + stage.backward_weight_s);
}

// Activations of one microbatch, [stage], bytes.
struct ActivationBytes {
  std::vector<double> kept;
  std::vector<double> moved;         // by copies
  std::vector<double> until_weight;  // B leaves them to W
};

ActivationBytes BytesOfActivations(const PreparedModel& model,
                                   const Schedule& schedule) {
  MemoryOptions options;
  options.shared = model.shared->memories();
  const ScheduleMemory memory = BuildScheduleMemory(
      model.spec, model.training, model.layout, schedule, options);
  ActivationBytes bytes;
  for (const auto& stage : memory.stages) {
    bytes.kept.push_back(static_cast<double>(stage->kept) * schedule.slices);
    bytes.moved.push_back(static_cast<double>(stage->away) * schedule.slices);
    bytes.until_weight.push_back(static_cast<double>(stage->weight_part) *
                                 schedule.slices);
  }
  return bytes;
}

// Without a system: as the profile has them, of the bytes of each stage. False
// where it has not both directions.
bool TakeMeasuredCopies(PreparedRun* run) {
  if (!run->costs.profile) return false;
  const Profile& profile = *run->costs.profile->profile;
  const TimesBySize out = TimesOfCopies(profile, CopyDirection::kDeviceToHost);
  const TimesBySize in = TimesOfCopies(profile, CopyDirection::kHostToDevice);
  if (out.empty() || in.empty()) return false;
  const Schedule& schedule = *run->schedule.lowered;
  const std::vector<double> moved =
      BytesOfActivations(*run->prepared_model, schedule).moved;
  for (size_t stage = 0; stage < moved.size(); ++stage) {
    const double each = moved[stage] / schedule.slices;
    if (each <= 0) continue;
    StageCosts& costs = run->costs.passes.stages[stage];
    costs.offload_s = schedule.slices * AtSize(out, each).seconds;
    costs.load_s = schedule.slices * AtSize(in, each).seconds;
  }
  for (const bool to_host : {true, false}) {
    const PathLine line = LineOf(to_host ? out : in);
    const std::string name = to_host ? "d2h" : "h2d";
    const auto use = MeasuredNumber::Use::kCopies;
    run->network.measured.push_back(
        {use, name + " bandwidth", "B/s", line.bytes_per_s});
    run->network.measured.push_back(
        {use, name + " latency", "s", line.latency_s});
  }
  return true;
}

// Times of the copies in run->costs, or their bytes in run->lower where PCIe
// decides; false where nothing tells them. `sizes` of the ranks.
absl::StatusOr<bool> TakeCopyTimes(const RunConfig& config, PreparedRun* run) {
  const CostChoice& given = config.costs;
  if (given.offload_ratio && (given.offload_s || given.load_s)) {
    return BothGiven(
        config.Field("costs.offload_ratio"),
        given.offload_s ? "costs.uniform.offload" : "costs.uniform.load");
  }
  if (given.offload_ratio) {
    for (StageCosts& stage : run->costs.passes.stages) {
      stage.offload_s = stage.load_s = *given.offload_ratio / 2 * WorkOf(stage);
    }
    return true;
  }
  if (given.offload_s || given.load_s) {
    for (const bool out : {true, false}) {
      if (out ? given.offload_s : given.load_s) continue;
      return MissingValue(
          config.Field(out ? "costs.uniform.offload" : "costs.uniform.load"),
          "a time, as for the other direction");
    }
    return true;
  }
  if (!run->prepared_model) return false;
  if (run->network.links.cluster == nullptr) return TakeMeasuredCopies(run);
  const ShapeParams& shape = *run->network.shape;
  if (!shape.has_pcie()) {
    return MissingValue(config.Field("system.pcie.bandwidth"),
                        "bytes per second between a PCIe switch and its host, "
                        "since activations are copied there");
  }
  if (config.system.host_memory_bytes && shape.host_memory_bytes == 0) {
    return BadValue(config.Field("system.host_memory"), "0 B",
                    "above 0 B, since activations are kept there");
  }
  if (shape.host_memory_bytes == 0) {
    return MissingValue(config.Field("system.host_memory"),
                        "bytes of the host of a node, since activations are "
                        "kept there (--host-memory)");
  }
  run->lower.activation_bytes =
      BytesOfActivations(*run->prepared_model, *run->schedule.lowered).moved;
  return true;
}

// O and L of one device of `rank` that has its links to itself and copies both
// ways: k is about passes that never wait, of which each has both.
double AloneSeconds(const Network& network, int rank, double bytes) {
  const Cluster& cluster = *network.cluster;
  const int device = network.mapping->DeviceOf(0, rank, 0);
  const std::vector<std::vector<LinkId>> routes = {
      cluster.DeviceToHost(device), cluster.HostToDevice(device)};
  const std::vector<LinkLoad> both = cluster.Bundle(routes, {}).loads;
  double seconds = 0;
  for (const std::vector<LinkId>& route : routes) {
    double bytes_per_s = std::numeric_limits<double>::infinity();
    for (const LinkLoad& load : both) {
      if (std::find(route.begin(), route.end(), load.link) == route.end()) {
        continue;
      }
      bytes_per_s = std::min(
          bytes_per_s, cluster.links()[load.link].bytes_per_s / load.flows);
    }
    const bool to_host = &route == &routes.front();
    seconds +=
        cluster.LatencyOf(route) + bytes / bytes_per_s +
        BeyondLinks(network, to_host ? PathEnds::kToHost : PathEnds::kToDevice,
                    bytes);
  }
  return seconds;
}

LowerOptions PassesAlone(const PreparedRun& run, int replicas) {
  return {.costs = run.costs.passes,
          .network = run.network.links,
          .hop_bytes = run.lower.hop_bytes,
          .replicas = replicas,
          .activation_bytes = run.lower.activation_bytes,
          .iterations = 1};
}

// What the plan counts with: copies that have their part of a shared switch.
OffloadCosts CostsOf(const PreparedRun& run, const Program& program,
                     const ActivationBytes& bytes, PreparedOffload* offload) {
  const Schedule& schedule = *run.schedule.lowered;
  OffloadCosts costs;
  costs.weight = bytes.kept;
  costs.held_until_weight = run.costs.passes.held_until_weight;
  costs.until_weight = bytes.until_weight;
  offload->least_ratio = std::numeric_limits<double>::infinity();
  const bool by_links = !run.lower.activation_bytes.empty();
  const bool in_turn = run.lower.copies_in_turn;
  const PcieSwitches switches(program.network, by_links ? program.replicas : 0,
                              schedule.pp());
  std::map<int, double> hand_over_s;  // on a switch, from rank to rank
  if (by_links && in_turn) {
    costs.switch_of_rank.resize(schedule.pp());
    for (const auto& [link, ranks] : switches.ranks()) {
      hand_over_s[link] = HandOverSeconds(program, ranks);
      for (const int rank : ranks) costs.switch_of_rank[rank] = link;
    }
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const StageCosts& own = run.costs.passes.stages[stage];
    double both_s = own.offload_s + own.load_s;
    double out_s = own.offload_s;
    double in_s = own.load_s;
    if (by_links) {
      const int rank = schedule.placement.RankOf(stage, 0);
      const double turn_s = in_turn ? hand_over_s.at(switches.Of(rank)) : 0;
      const auto seconds = [&](PassKind kind, CopiesBeside beside) {
        const bool to_host = kind == PassKind::kOffload;
        const double times = in_turn
                                 ? switches.SharersInTurn(rank, to_host, beside)
                                 : switches.SharersOf(rank, to_host, beside);
        return turn_s + ActivationCopySeconds(run, program, stage, kind, times);
      };
      out_s = seconds(PassKind::kOffload, CopiesBeside::kBothWays);
      in_s = seconds(PassKind::kLoad, CopiesBeside::kBothWays);
      // Nobody knows what ranks copy that are not planned together.
      const bool alone =
          in_turn ? switches.ReplicasOn(rank) == 1 : !switches.IsShared(rank);
      const CopiesBeside beside =
          alone ? CopiesBeside::kSameWay : CopiesBeside::kBothWays;
      costs.out_alone_s.push_back(seconds(PassKind::kOffload, beside));
      costs.in_alone_s.push_back(seconds(PassKind::kLoad, beside));
      both_s = AloneSeconds(program.network, rank,
                            run.lower.activation_bytes[stage]);
      offload->devices_on_switch =
          std::max(offload->devices_on_switch, switches.DevicesOn(rank));
      offload->ranks_share = offload->ranks_share || switches.IsShared(rank);
    }
    costs.out_s.push_back(out_s);
    costs.in_s.push_back(in_s);
    const double work_s = WorkOf(own);
    if (work_s <= 0) continue;
    offload->has_ratio = true;
    offload->least_ratio = std::min(offload->least_ratio, both_s / work_s);
    offload->most_ratio = std::max(offload->most_ratio, both_s / work_s);
  }
  offload->least_ratio = std::min(offload->least_ratio, offload->most_ratio);
  return costs;
}

// What a plan of copies is made of.
struct CopyTask {
  Program program;
  OffloadChoice choice;
  OffloadCosts costs;
};

// `run` knows what copies take. Fills what `offload` says of them.
absl::StatusOr<CopyTask> TaskOf(const RunConfig& config, OffloadMode mode,
                                int replicas, PreparedRun* run,
                                PreparedOffload* offload) {
  const StrategyChoice& strategy = config.strategy;
  run->lower.copies_in_turn =
      strategy.offload_sharing.value_or(CopySharing::kTogether) ==
      CopySharing::kInTurn;
  CopyTask task;
  PW_ASSIGN_OR_RETURN(
      task.program, Lower(run->schedule.lowered, PassesAlone(*run, replicas)));
  ActivationBytes bytes = {
      .kept = std::vector<double>(run->costs.passes.stages.size(), 1.0)};
  if (run->prepared_model) {
    bytes = BytesOfActivations(*run->prepared_model, *run->schedule.lowered);
  }
  task.costs = CostsOf(*run, task.program, bytes, offload);
  if (run->prepared_model && !run->prepared_model->training.offloaded.all()) {
    for (size_t stage = 0; stage < bytes.kept.size(); ++stage) {
      const double kept = bytes.kept[stage];
      offload->moved_part.push_back(kept > 0 ? bytes.moved[stage] / kept : 0);
    }
    task.costs.moved = std::move(bytes.moved);
  }
  task.choice.chunks = strategy.offload_chunks;
  task.choice.fraction = strategy.offload_fraction.value_or(1);
  task.choice.half = mode == OffloadMode::kSelective &&
                     task.choice.chunks.empty() && !strategy.offload_fraction;
  return task;
}

absl::Status MissingCopyTimes(const RunConfig& config) {
  return MissingValue(
      config.Field("costs.offload_ratio"),
      "a number, or costs.uniform.offload and costs.uniform.load, or a model "
      "and a system with PCIe or a profile with copies");
}

// A hop that holds its ranks also holds back what stands behind it: an O for
// whose FREE the other rank waits may never begin.
absl::Status CheckWaiting(const RunConfig& config, const Schedule& schedule) {
  const WaitRule waiting =
      config.strategy.waiting.value_or(WaitRule::kBuffered);
  const bool copies =
      schedule.Has(PassKind::kOffload) || schedule.Has(PassKind::kLoad);
  if (waiting == WaitRule::kBuffered || schedule.pp() == 1 || !copies) {
    return absl::OkStatus();
  }
  return BadValue(config.Field("strategy.waiting"), WaitRuleName(waiting),
                  "buffered with activations that wait on the host "
                  "(strategy.offload, or O and L in a file)");
}

}  // namespace

absl::Status PrepareOffload(const RunConfig& config, const RunSizes& sizes,
                            PreparedRun* run) {
  PW_ASSIGN_OR_RETURN(const OffloadWish wish, WishOf(config));
  const bool plans = wish.mode != OffloadMode::kNone;
  const bool written = run->schedule.lowered->Has(PassKind::kOffload) ||
                       run->schedule.lowered->Has(PassKind::kLoad);
  if (!plans) PW_RETURN_IF_ERROR(CheckNotAsked(config));
  if (!plans && !written) return absl::OkStatus();
  if (plans) {
    PW_RETURN_IF_ERROR(
        CheckOffloads(config, wish.mode, *run->schedule.lowered));
  }
  PW_ASSIGN_OR_RETURN(const bool known, TakeCopyTimes(config, run));
  if (!known && wish.is_default) {
    run->warnings.push_back(absl::StrCat(
        "nothing is offloaded, since nothing tells what the copies of ",
        *config.schedule.name,
        " take: give costs.offload_ratio (--offload-ratio), or a model and a "
        "system with PCIe or a profile with copies; strategy.offload none says "
        "that the order alone is "
        "meant"));
    return absl::OkStatus();
  }
  if (!known && !written) return MissingCopyTimes(config);
  if (!known) {
    return MissingValue(
        config.Field("costs.uniform.offload"),
        "a time, since the schedule has O or L passes; or a model and a system "
        "with PCIe or a profile with copies");
  }
  const bool timed = config.costs.forward_s || config.costs.backward_s ||
                     !config.costs.stage_forward_s.empty() ||
                     !config.costs.stage_backward_s.empty() ||
                     run->costs.follow_model();
  if (plans && config.timed_by_run && !timed) {
    return MissingValue(config.Field("costs.uniform.forward"),
                        "pass times (with backward_input and backward_weight, "
                        "or a profile), since copies are planned against them");
  }
  PreparedOffload offload;
  offload.mode = wish.mode;
  PW_ASSIGN_OR_RETURN(const CopyTask task,
                      TaskOf(config, wish.mode, sizes.dp, run, &offload));
  if (plans) {
    PW_ASSIGN_OR_RETURN(OffloadPlan plan,
                        PlanOffload(run->schedule.lowered, task.program,
                                    task.choice, task.costs));
    run->schedule.lowered = std::move(plan.schedule);
    offload.ranks = std::move(plan.ranks);
    offload.turns = std::move(plan.turns);
  } else {
    PW_ASSIGN_OR_RETURN(
        run->schedule.lowered,
        WithFrees(run->schedule.lowered, task.program, task.costs));
  }
  if (plans) run->schedule.written = run->schedule.lowered;
  PW_RETURN_IF_ERROR(CheckWaiting(config, *run->schedule.lowered));
  const ShapeParams* const shape = run->network.system_shape();
  if (run->engine == "fast" && shape != nullptr &&
      (HostTreeOf(*shape).directions_meet() ||
       CopiesFillMemory(task.program.network, task.program.replicas,
                        run->schedule.lowered->pp()))) {
    run->warnings.push_back(
        "engine fast: copies to the host and from it over one link of both "
        "directions (system.host.memory_bandwidth, "
        "system.params.pcie_alone_factor) do not slow each other down; engine "
        "simgrid shares it");
  }
  if (run->engine == "fast" && offload.devices_on_switch > 1) {
    run->warnings.push_back(absl::StrCat(
        "engine fast: copies of ", offload.devices_on_switch,
        " devices over one PCIe switch do not slow each other down; engine "
        "simgrid shares it"));
  }
  if (run->engine == "fast" && shape != nullptr && shape->nodes > 1 &&
      HostTreeOf(*shape).stages_messages) {
    run->warnings.push_back(
        "engine fast: copies and messages that hosts stage "
        "(system.params.network_staging) do not slow each other down; engine "
        "simgrid shares their PCIe links");
  }
  run->offload = std::move(offload);
  return absl::OkStatus();
}

absl::Status AddCopyTimes(const RunConfig& config, const RunSizes& sizes,
                          const Placement& placement, const PreparedRun& run,
                          PlanCosts* plan) {
  const auto own = config.schedule.params.find("offload");
  if (own == config.schedule.params.end() || own->second != "choose") {
    return absl::OkStatus();
  }
  const auto chosen = [&](absl::string_view field, const std::string& value,
                          absl::string_view allowed) {
    return BadValue(config.Field(field), value,
                    absl::StrCat(allowed,
                                 ", since the schedule chooses what is copied "
                                 "(schedule.params.offload)"));
  };
  const StrategyChoice& strategy = config.strategy;
  const OffloadMode given = strategy.offload.value_or(OffloadMode::kNone);
  if (given != OffloadMode::kNone) {
    return chosen("strategy.offload", ChoiceName(OffloadChoices(), given),
                  "none");
  }
  if (strategy.offload_fraction) {
    return chosen("strategy.offload_fraction",
                  absl::StrCat(*strategy.offload_fraction), "nothing");
  }
  if (!strategy.offload_chunks.empty()) {
    return chosen("strategy.offload_chunks",
                  absl::StrJoin(strategy.offload_chunks, ","), "nothing");
  }
  PreparedRun alone = run;
  alone.schedule.lowered = OneMicrobatch(placement, 1, /*again=*/false);
  PW_ASSIGN_OR_RETURN(const bool known, TakeCopyTimes(config, &alone));
  if (!known) return MissingCopyTimes(config);
  PreparedOffload offload;
  PW_ASSIGN_OR_RETURN(const CopyTask task, TaskOf(config, OffloadMode::kFull,
                                                  sizes.dp, &alone, &offload));
  // What is bounded by them must not count on others that copy.
  const bool by_links = !alone.lower.activation_bytes.empty();
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const auto seconds = [&](PassKind kind, double given_s) {
      return by_links
                 ? ActivationCopySeconds(alone, task.program, stage, kind, 1)
                 : given_s;
    };
    plan->copy_out.push_back(
        seconds(PassKind::kOffload, task.costs.out_s[stage]));
    plan->copy_in.push_back(seconds(PassKind::kLoad, task.costs.in_s[stage]));
  }
  if (run.prepared_model) {
    plan->moved =
        BytesOfActivations(*run.prepared_model, *alone.schedule.lowered).moved;
  }
  return absl::OkStatus();
}

double MostCopiedPerSecond(PreparedRun run) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  if (!run.prepared_model || run.offload) return kUnknown;
  const absl::StatusOr<bool> known = TakeCopyTimes(run.config, &run);
  if (!known.ok() || !*known || run.lower.activation_bytes.empty()) {
    return kUnknown;
  }
  // So many that nothing but bytes takes time.
  constexpr double kMany = 1e15;
  run.lower.activation_bytes.assign(run.lower.activation_bytes.size(), kMany);
  PreparedOffload offload;
  const absl::StatusOr<CopyTask> task = TaskOf(
      run.config, OffloadMode::kFull, run.lower.replicas, &run, &offload);
  if (!task.ok()) return kUnknown;
  double least_s = kUnknown;
  for (const std::vector<double>* const each :
       {&task->costs.out_s, &task->costs.in_s, &task->costs.out_alone_s,
        &task->costs.in_alone_s}) {
    for (const double seconds : *each) least_s = std::min(least_s, seconds);
  }
  return least_s > 0 ? kMany / least_s : kUnknown;
}

}  // namespace pipewright
