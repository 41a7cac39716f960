// Runs whose data-parallel replicas do not all run the same: a run for each
// class, prepared as if all replicas were of it.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/offload_turns.h"
#include "sim/config/prepare_draws.h"
#include "sim/config/prepare_parts.h"
#include "sim/config/refuse_slow.h"
#include "sim/program/dp_classes.h"
#include "sim/program/program.h"
#include "sim/program/slow_devices.h"

namespace pipewright {
namespace {

constexpr char kSection[] = "strategy.dp_classes.";
constexpr int64_t kMostDpReplicas = int64_t{1} << 20;  // as of strategy.dp

template <class List>
absl::Status OneAClass(const RunConfig& config, absl::string_view field,
                       const List& values) {
  const size_t classes = config.strategy.dp_classes.replicas.size();
  if (values.empty() || values.size() == classes) return absl::OkStatus();
  return BadValue(config.Field(absl::StrCat(kSection, field)),
                  absl::StrCat("a list of ", values.size()),
                  absl::StrCat("one value a class, ", classes));
}

int64_t CountReplicas(const DpClassChoice& classes) {
  return std::accumulate(classes.replicas.begin(), classes.replicas.end(),
                         int64_t{0});
}

absl::Status CheckLists(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  const DpClassChoice& classes = strategy.dp_classes;
  if (classes.replicas.empty()) {
    return MissingValue(
        config.Field("strategy.dp_classes.replicas"),
        "the replicas of each class (--dp-classes 3,1), which the other lists "
        "of strategy.dp_classes need");
  }
  PW_RETURN_IF_ERROR(OneAClass(config, "microbatches", classes.microbatches));
  PW_RETURN_IF_ERROR(OneAClass(config, "slower", classes.slower));
  PW_RETURN_IF_ERROR(OneAClass(config, "slow_rank", classes.slow_rank));
  PW_RETURN_IF_ERROR(OneAClass(config, "schedule", classes.schedule));
  const int64_t replicas = CountReplicas(classes);
  if (strategy.dp && *strategy.dp != replicas) {
    return BadValue(
        config.Field("strategy.dp"), absl::StrCat(*strategy.dp),
        absl::StrCat(replicas, ", the sum of strategy.dp_classes.replicas (",
                     absl::StrJoin(classes.replicas, " + "), ")"));
  }
  if (replicas > kMostDpReplicas) {
    return BadValue(config.Field("strategy.dp_classes.replicas"),
                    absl::StrCat(replicas, " replicas"),
                    absl::StrCat("at most ", kMostDpReplicas));
  }
  if (!classes.microbatches.empty() && strategy.microbatches) {
    return BothGiven(config.Field("strategy.microbatches"),
                     config.Field("strategy.dp_classes.microbatches"));
  }
  if (!classes.schedule.empty() && config.schedule.name) {
    return BothGiven(config.Field("schedule.name"),
                     config.Field("strategy.dp_classes.schedule"));
  }
  if (!classes.schedule.empty() && config.schedule.file) {
    return BothGiven(config.Field("schedule.file"),
                     config.Field("strategy.dp_classes.schedule"));
  }
  if (!classes.microbatch_factor.empty() &&
      !config.costs.microbatch_factor.empty()) {
    return BothGiven(config.Field("costs.microbatch_factor"),
                     config.Field("strategy.dp_classes.microbatch_factor"));
  }
  if (!classes.slow_rank.empty() && classes.slower.empty()) {
    return MissingValue(config.Field("strategy.dp_classes.slower"),
                        "a factor for each class (--dp-slower 1,1.2), which "
                        "strategy.dp_classes.slow_rank needs");
  }
  return absl::OkStatus();
}

// What a run of replicas of class `index` alone is configured with, factors
// aside.
RunConfig ConfigOf(const RunConfig& config, size_t index) {
  const DpClassChoice& classes = config.strategy.dp_classes;
  RunConfig own = config;
  own.strategy.dp_classes = DpClassChoice();
  own.strategy.dp = static_cast<int>(CountReplicas(classes));
  if (!classes.microbatches.empty()) {
    own.strategy.microbatches = static_cast<int>(classes.microbatches[index]);
  }
  if (!classes.schedule.empty()) own.schedule.name = classes.schedule[index];
  return own;
}

// Factors of one replica of the run, which begin at *begin of the list.
void TakeFactors(const RunConfig& config, size_t* begin, PreparedRun* own) {
  const std::vector<double>& all = config.strategy.dp_classes.microbatch_factor;
  if (all.empty()) return;
  const auto count =
      static_cast<size_t>(own->schedule.lowered->microbatches_per_direction());
  if (*begin + count <= all.size()) {
    const std::vector<double> mine(all.begin() + *begin,
                                   all.begin() + *begin + count);
    own->costs.passes.microbatch_factor = mine;
    own->lower.costs.microbatch_factor = mine;
  }
  *begin += count;
}

absl::Status CheckClass(const RunConfig& config, const PreparedClass& first,
                        const PreparedClass& other) {
  const Schedule& one = *first.run->schedule.lowered;
  const Schedule& two = *other.run->schedule.lowered;
  if (other.slow_rank >= two.pp()) {
    return BadValue(config.Field("strategy.dp_classes.slow_rank"),
                    absl::StrCat(other.slow_rank),
                    absl::StrCat("-1, or a rank: 0 to ", two.pp() - 1));
  }
  bool alike = one.pp() == two.pp() && one.stages() == two.stages() &&
               one.directions == two.directions;
  for (int stage = 0; stage < one.stages() && alike; ++stage) {
    alike = one.placement.RankOf(stage) == two.placement.RankOf(stage);
  }
  if (alike) return absl::OkStatus();
  return BadValue(
      config.Field("strategy.dp_classes.schedule"), two.name,
      absl::StrCat("a schedule that has its stages on the ranks where ",
                   one.name,
                   " has them: replicas reduce the gradients of a stage rank "
                   "by rank"));
}

double MostMemory(const PreparedRun& run) {
  double most = 0;
  for (const RankMemory& rank : run.memory->memory->ranks) {
    most = std::max(most, static_cast<double>(rank.peak()));
  }
  return most;
}

// Times of a class that is slower: those of its passes and steps.
void SlowDown(const PreparedClass& own, Program* program) {
  for (int rank = 0; rank < program->pp(); ++rank) {
    if (own.slow_rank >= 0 && own.slow_rank != rank) continue;
    ScaleRank({.device = own.slower}, rank, program);
  }
}

absl::StatusOr<Program> LowerHealthy(const PreparedRun& run, DrawPlan* plan) {
  if (run.sequences) return LowerSequences(run, plan);
  if (run.classes.empty()) return Lower(run.schedule.lowered, run.lower);
  std::vector<Program> programs;
  std::vector<int> class_of_replica;
  for (size_t index = 0; index < run.classes.size(); ++index) {
    const PreparedClass& own = run.classes[index];
    PW_ASSIGN_OR_RETURN(Program program,
                        Lower(own.run->schedule.lowered, own.run->lower));
    SlowDown(own, &program);
    // All microbatches have as many tokens.
    program.gradient_weight = program.schedule->microbatches;
    programs.push_back(std::move(program));
    class_of_replica.insert(class_of_replica.end(), own.replicas,
                            static_cast<int>(index));
  }
  absl::StatusOr<Program> joined =
      JoinClasses(std::move(programs), std::move(class_of_replica));
  return joined.ok() ? std::move(joined)
                     : Prefix("strategy.dp_classes", joined.status());
}

bool OrdersDiffer(const std::vector<PreparedClass>& classes) {
  const Schedule& first = *classes[0].run->schedule.lowered;
  for (const PreparedClass& each : classes) {
    const Schedule& own = *each.run->schedule.lowered;
    for (int rank = 0; rank < first.pp(); ++rank) {
      if (own.order(rank) != first.order(rank)) return true;
    }
  }
  return false;
}

}  // namespace

absl::Status RefuseSlow(const RunConfig& config, absl::string_view verb) {
  for (const std::string& path : GivenPaths(config)) {
    if (!absl::StartsWith(path, "slow.")) continue;
    return FieldError(
        config.Field(path),
        absl::StrCat("not with ", verb,
                     ", which takes devices and links as they are; allowed: "
                     "with simulate"));
  }
  return absl::OkStatus();
}

absl::Status RefuseClasses(const RunConfig& config, absl::string_view verb) {
  if (GivesLengths(config.sequences)) {
    const bool named = config.sequences.lengths.has_value();
    return FieldError(
        config.Field(named ? "sequences.lengths" : "sequences.histogram"),
        absl::StrCat("not with ", verb,
                     ", which takes microbatches of equal length; allowed: "
                     "with simulate, execute"));
  }
  PW_RETURN_IF_ERROR(RefuseSlow(config, verb));
  const DpClassChoice& classes = config.strategy.dp_classes;
  if (!HasClasses(classes)) return absl::OkStatus();
  return BadValue(config.Field("strategy.dp_classes.replicas"),
                  absl::StrCat("[", absl::StrJoin(classes.replicas, ", "), "]"),
                  absl::StrCat("no classes of replicas with ", verb,
                               ", which takes one order of passes (simulate "
                               "and execute take several)"));
}

absl::StatusOr<PreparedRun> PrepareClasses(
    const RunConfig& config,
    const std::function<absl::StatusOr<PreparedRun>(const RunConfig&)>&
        prepare_one) {
  PW_RETURN_IF_ERROR(CheckLists(config));
  const DpClassChoice& given = config.strategy.dp_classes;
  const double all = static_cast<double>(CountReplicas(given));
  std::vector<PreparedClass> classes;
  std::vector<std::string> warnings;
  size_t factors = 0;
  double tokens = 0;
  size_t hungriest = 0;
  for (size_t index = 0; index < given.replicas.size(); ++index) {
    PW_ASSIGN_OR_RETURN(PreparedRun own, prepare_one(ConfigOf(config, index)));
    TakeFactors(config, &factors, &own);
    if (index > 0) {
      // Not only alike, but the same for all.
      const LowerOptions& first = classes[0].run->lower;
      own.lower.network = first.network;
      own.lower.jitter = first.jitter;
      own.lower.interference = first.interference;
    }
    for (const std::string& warning : own.warnings) {
      if (std::find(warnings.begin(), warnings.end(), warning) ==
          warnings.end()) {
        warnings.push_back(warning);
      }
    }
    tokens += own.tokens.value_or(0) / all *
              static_cast<double>(given.replicas[index]);
    classes.push_back(
        {.replicas = static_cast<int>(given.replicas[index]),
         .slower = given.slower.empty() ? 1 : given.slower[index],
         .slow_rank = given.slow_rank.empty()
                          ? -1
                          : static_cast<int>(given.slow_rank[index]),
         .run = std::make_shared<const PreparedRun>(std::move(own))});
    PW_RETURN_IF_ERROR(CheckClass(config, classes[0], classes.back()));
    const PreparedRun& most = *classes[hungriest].run;
    if (most.memory && MostMemory(*classes.back().run) > MostMemory(most)) {
      hungriest = index;
    }
  }
  const std::vector<double>& listed = given.microbatch_factor;
  if (!listed.empty() && factors != listed.size()) {
    return BadValue(
        config.Field("strategy.dp_classes.microbatch_factor"),
        absl::StrCat("a list of ", listed.size()),
        absl::StrCat("one factor a microbatch, class after class: ", factors));
  }
  PreparedRun run = *classes[0].run;
  // So that it can be prepared again.
  run.config.strategy.dp_classes = given;
  run.config.strategy.microbatches = config.strategy.microbatches;
  run.config.schedule.name = config.schedule.name;
  run.memory = classes[hungriest].run->memory;
  for (const PreparedClass& each : classes) {
    const std::optional<absl::Status>& limit = each.run->schedule.limit;
    if (limit && !limit->ok()) run.schedule.limit = limit;
  }
  if (run.tokens) run.tokens = tokens;
  if (run.lower.copies_in_turn && run.offload && run.offload->ranks_share) {
    warnings.push_back(absl::StrCat(
        "strategy.offload_sharing in-turn: ",
        OrdersDiffer(classes) ? "replicas have different orders of passes"
                              : "passes of replicas take different times",
        " (strategy.dp_classes), so turns on a PCIe switch are not settled "
        "before the run: the copy that could begin first goes first, and "
        "passes can wait that the plan would not let wait"));
  }
  run.warnings = std::move(warnings);
  run.classes = std::move(classes);
  return run;
}

absl::StatusOr<Program> LowerRun(const PreparedRun& run) {
  return LowerRun(run, nullptr);
}

absl::StatusOr<Program> LowerRun(const PreparedRun& run, DrawPlan* plan) {
  PW_ASSIGN_OR_RETURN(Program program, LowerHealthy(run, plan));
  program.in_units = run.costs.in_units;
  // A draw has links of its own.
  if (run.network.slow) program.network.cluster = run.network.links.cluster;
  std::vector<SlowPaths> paths;
  if (run.network.slow && run.prepared_model &&
      !run.costs.passes.exchanges.empty()) {
    paths = SlowPathsOf(program.network, *run.network.slow->healthy,
                        MembersOf(run.prepared_model->training));
    // Classes that the configuration names stay those that it names.
    if (!paths.empty() && !run.classes.empty()) {
      MakeReplicasAlike(program.pp(), &paths);
    }
  }
  if (run.slow || !paths.empty()) {
    ScaleDevices(run.slow ? run.slow->OfRanks() : DeviceFactors(), paths,
                 &program);
  }
  PW_RETURN_IF_ERROR(SettleCopyTurns(run, &program));
  return program;
}

}  // namespace pipewright
