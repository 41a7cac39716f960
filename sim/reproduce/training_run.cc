#include "sim/reproduce/training_run.h"

#include <vector>

#include "sim/base/status.h"
#include "sim/config/describe_costs.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"

namespace pipewright {

absl::StatusOr<Report> RunTraining(const RunConfig& config) {
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(config));
  PW_ASSIGN_OR_RETURN(const Program program, Lower(run.schedule, run.lower));
  PW_ASSIGN_OR_RETURN(const EngineInfo* engine, FindEngine(run.engine));
  PW_ASSIGN_OR_RETURN(const RunSummary summary,
                      engine->run(program, EngineOptions()));
  Report report =
      Summarize(program, summary, std::vector<double>(program.ranks.size(), 0));
  DescribeCosts(run, &report);
  return report;
}

}  // namespace pipewright
