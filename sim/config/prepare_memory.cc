#include <algorithm>
#include <utility>

#include "sim/config/framework_memory.h"
#include "sim/config/prepare_parts.h"
#include "sim/schedule/builder.h"

namespace pipewright {
namespace {

// `context_bytes` where the configuration says nothing.
std::shared_ptr<const ScheduleMemory> BuildMemory(
    const RunConfig& config, const PreparedModel& model,
    const Schedule& schedule, double context_bytes,
    std::shared_ptr<const MemoryFramework> framework,
    std::vector<OffloadedStates> optimizer) {
  MemoryOptions options;
  options.optimizer = std::move(optimizer);
  options.context_bytes =
      config.strategy.memory_context_bytes.value_or(context_bytes);
  options.fragmentation =
      config.strategy.fragmentation.value_or(options.fragmentation);
  options.framework = std::move(framework);
  options.shared = model.shared->memories();
  return std::make_shared<const ScheduleMemory>(BuildScheduleMemory(
      model.spec, model.training, model.layout, schedule, options));
}

// `report` gets the limit of a device and where it is from.
void TakeLimit(const RunConfig& config, const PreparedNetwork& network,
               const PreparedCosts& costs, MemoryReport* report) {
  const ShapeParams* shape = network.system_shape();
  const bool named = config.costs.analytic_device.value_or("auto") != "auto";
  if (config.system.memory_bytes) {
    report->limit_bytes = config.system.memory_bytes;
    report->limit_source = "system.memory";
  } else if (costs.analytic && (named || shape == nullptr)) {
    report->limit_bytes = costs.analytic->device.memory_bytes;
    report->limit_source = costs.analytic->device.device_name;
  } else if (shape != nullptr && shape->memory_bytes > 0) {
    report->limit_bytes = shape->memory_bytes;
    report->limit_source =
        shape->device_name.empty() ? shape->name : shape->device_name;
  } else if (costs.profile) {
    TakeProfileMemory(*costs.profile, report);
  }
}

}  // namespace

std::shared_ptr<const Schedule> OneMicrobatch(const Placement& placement,
                                              int of, bool again) {
  ScheduleBuilder builder("one microbatch", placement, 1);
  for (int rank = 0; rank < placement.pp(); ++rank) {
    for (int chunk = 0; chunk < placement.vpp(); ++chunk) {
      builder.Add(rank, PassKind::kForward, 0, chunk);
    }
    for (int chunk = placement.vpp() - 1; chunk >= 0; --chunk) {
      if (again) builder.Add(rank, PassKind::kRecompute, 0, chunk);
      builder.Add(rank, PassKind::kBackwardInput, 0, chunk);
      builder.Add(rank, PassKind::kBackwardWeight, 0, chunk);
    }
  }
  Schedule schedule = std::move(builder).Finish();
  schedule.microbatches = of;
  return std::make_shared<const Schedule>(std::move(schedule));
}

void AddRoom(const RunConfig& config, const PreparedModel& model,
             const PreparedNetwork& network, const PreparedCosts& costs,
             const Placement& placement, PlanCosts* plan) {
  const int of = config.strategy.microbatches.value_or(1);
  const MemoryReport report =
      PrepareMemory(config, model, network, costs,
                    OneMicrobatch(placement, of, /*again=*/false));
  if (!report.limit_bytes) return;
  // Laid out with R only for who asks for it.
  const auto recompute = config.schedule.params.find("recompute");
  const bool recomputes =
      recompute != config.schedule.params.end() && recompute->second != "none";
  MemoryReport again;
  if (recomputes) {
    again = PrepareMemory(config, model, network, costs,
                          OneMicrobatch(placement, of, /*again=*/true));
  }
  for (size_t stage = 0; stage < report.memory->stages.size(); ++stage) {
    const StageMemory& own = *report.memory->stages[stage];
    plan->kept.push_back(static_cast<double>(own.kept));
    plan->left.push_back(static_cast<double>(own.weight_part));
    if (!recomputes) continue;
    plan->dropped.push_back(
        static_cast<double>(own.kept - again.memory->again[stage]->kept));
  }
  for (int rank = 0; rank < placement.pp(); ++rank) {
    // Fragmentation goes with the peak, which grows.
    const RankMemory& own = report.memory->ranks[rank];
    const auto peak = static_cast<double>(own.peak());
    const double with_fragments =
        1 + static_cast<double>(own.fragmentation) / peak;
    double room = (*report.limit_bytes - static_cast<double>(own.context)) /
                      with_fragments -
                  peak;
    for (int chunk = 0; chunk < placement.vpp(); ++chunk) {
      const int stage = placement.StageOf(rank, chunk);
      room += std::max(plan->kept[stage], plan->left[stage]);
    }
    plan->room.push_back(room);
  }
}

void TakeMemoryFramework(std::shared_ptr<const MemoryFramework> framework,
                         std::vector<OffloadedStates> states,
                         PreparedRun* run) {
  if (!run->memory) return;
  const double context_bytes =
      framework->has_context ? MemoryOptions().context_bytes : 0;
  run->memory->memory =
      BuildMemory(run->config, *run->prepared_model, *run->schedule.lowered,
                  context_bytes, std::move(framework), std::move(states));
}

void TakeMemoryFramework(std::shared_ptr<const MemoryFramework> framework,
                         PreparedRun* run) {
  TakeMemoryFramework(std::move(framework), OffloadedStatesOf(*run), run);
}

void TakeOffloadedStates(PreparedRun* run) {
  if (!run->memory) return;
  const auto context =
      static_cast<double>(run->memory->memory->ranks[0].context);
  run->memory->memory =
      BuildMemory(run->config, *run->prepared_model, *run->schedule.lowered,
                  context, nullptr, OffloadedStatesOf(*run));
}

// What is on the host is that of all devices of a node.
void LimitHostMemory(const RunConfig& config, PreparedRun* run) {
  if (!run->memory) return;
  MemoryReport& report = *run->memory;
  const std::vector<RankMemory>& ranks = report.memory->ranks;
  if (std::all_of(ranks.begin(), ranks.end(), [](const RankMemory& rank) {
        return rank.peak_host() == 0;
      })) {
    return;
  }
  const Network& links = run->network.links;
  const RankMapping* mapping = links.mapping.get();
  for (int replica = 0; mapping != nullptr && replica < mapping->dp();
       ++replica) {
    for (int rank = 0; rank < mapping->pp(); ++rank) {
      for (int index = 0; index < mapping->devices_per_rank(); ++index) {
        const int device = mapping->DeviceOf(replica, rank, index);
        const auto node =
            static_cast<size_t>(links.cluster->devices()[device].node);
        if (report.devices_on_node.size() <= node) {
          report.devices_on_node.resize(node + 1,
                                        std::vector<int>(mapping->pp()));
        }
        ++report.devices_on_node[node][rank];
      }
    }
  }
  const ShapeParams* shape = run->network.system_shape();
  if (shape != nullptr && shape->host_memory_bytes > 0) {
    report.host_limit_bytes = shape->host_memory_bytes;
  }
  if (config.system.host_memory_bytes) {
    report.host_limit_bytes = config.system.host_memory_bytes;
  }
}

MemoryReport PrepareMemory(const RunConfig& config, const PreparedModel& model,
                           const PreparedNetwork& network,
                           const PreparedCosts& costs,
                           std::shared_ptr<const Schedule> schedule) {
  const ShapeParams* shape = network.system_shape();
  double context_bytes = MemoryOptions().context_bytes;
  // A process on a CPU has no context of CUDA.
  const bool gpu = shape != nullptr && shape->memory_bytes > 0;
  if (!gpu && costs.profile && MeasuredOnCpu(*costs.profile->profile)) {
    context_bytes = 0;
  }
  MemoryReport report;
  report.memory =
      BuildMemory(config, model, *schedule, context_bytes, nullptr, {});
  report.schedule = std::move(schedule);
  TakeLimit(config, network, costs, &report);
  return report;
}

}  // namespace pipewright
