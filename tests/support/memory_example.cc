#include "tests/support/memory_example.h"

#include <memory>
#include <utility>

namespace pipewright::testing {

MemoryRun MemoryExample() {
  ModelSpec model;
  model.layers = 4;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 256;
  model.vocabulary = 128;
  model.sequence = 64;
  TrainingSpec training;
  training.sequence = model.sequence;
  std::shared_ptr<const Schedule> schedule = ToyOneForwardOneBackward(2, 4);
  const StageLayout layout = EvenLayout(model, training, 2, 1).value();
  MemoryRun run;
  run.report.memory = std::make_shared<const ScheduleMemory>(
      BuildScheduleMemory(model, training, layout, *schedule, {}));
  run.report.schedule = schedule;
  run.toy = Replay(std::move(schedule), {});
  return run;
}

}  // namespace pipewright::testing
