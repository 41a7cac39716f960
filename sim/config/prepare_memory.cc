#include <utility>

#include "sim/config/prepare_parts.h"

namespace pipewright {

MemoryReport PrepareMemory(const RunConfig& config, const PreparedModel& model,
                           std::shared_ptr<const Schedule> schedule,
                           const ShapeParams* shape,
                           const DeviceSpec* estimated,
                           const PreparedProfile* profile) {
  const bool named = config.costs.analytic_device.value_or("auto") != "auto";
  MemoryOptions options;
  // A process on a CPU has no context of CUDA.
  const bool gpu = shape != nullptr && shape->memory_bytes > 0;
  if (!gpu && profile != nullptr && MeasuredOnCpu(*profile->profile)) {
    options.context_bytes = 0;
  }
  options.context_bytes =
      config.strategy.memory_context_bytes.value_or(options.context_bytes);
  options.fragmentation =
      config.strategy.fragmentation.value_or(options.fragmentation);
  MemoryReport report;
  report.memory = std::make_shared<const ScheduleMemory>(BuildScheduleMemory(
      model.spec, model.training, model.layout, *schedule, options));
  report.schedule = std::move(schedule);
  if (config.system.memory_bytes) {
    report.limit_bytes = config.system.memory_bytes;
    report.limit_source = "system.memory";
  } else if (estimated != nullptr && (named || shape == nullptr)) {
    report.limit_bytes = estimated->memory_bytes;
    report.limit_source = estimated->device_name;
  } else if (shape != nullptr && shape->memory_bytes > 0) {
    report.limit_bytes = shape->memory_bytes;
    report.limit_source =
        shape->device_name.empty() ? shape->name : shape->device_name;
  }
  return report;
}

}  // namespace pipewright
