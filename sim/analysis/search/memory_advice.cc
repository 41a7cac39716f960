#include "sim/analysis/search/memory_advice.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/config/config_fields.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

// Planners take seconds beyond that.
constexpr int64_t kMostPasses = 400'000;

struct Candidate {
  std::string kind;  // one change of each kind is named
  std::string change;
  RunConfig config;
};

class Candidates {
 public:
  explicit Candidates(const PreparedRun& run)
      : run_(run),
        given_(run.config.strategy),
        training_(run.prepared_model->training) {}

  std::vector<Candidate> Take() && {
    AddRecompute();
    AddTensor();
    AddPipeline();
    AddZero();
    AddMicrobatchSize();
    AddSchedules();
    return std::move(candidates_);
  }

 private:
  // The configuration as it stands, to be changed.
  RunConfig& Add(std::string kind, std::string change) {
    candidates_.push_back({std::move(kind), std::move(change), run_.config});
    RunConfig& config = candidates_.back().config;
    // What follows from it is filled in.
    config.strategy.global_batch.reset();
    return config;
  }

  bool IsReadFromFile() const { return run_.config.schedule.file.has_value(); }
  bool HasOwnLayout() const {
    return !given_.layers.empty() || given_.layout.has_value();
  }

  void AddRecompute() {
    for (const Recompute recompute :
         {Recompute::kSelective, Recompute::kNormActivation,
          Recompute::kFull}) {
      if (recompute <= training_.recompute) continue;
      // Nothing to gain: flash attention keeps no scores.
      if (recompute == Recompute::kSelective && training_.flash_attention) {
        continue;
      }
      Add("recompute", absl::StrCat("strategy.recompute ",
                                    ChoiceName(RecomputeChoices(), recompute)))
          .strategy.recompute = recompute;
    }
  }

  // Twice the degree, half the replicas where there are that many.
  void Double(const char* kind, const char* field, int degree,
              std::optional<int> StrategyChoice::*member) {
    if (given_.mapping.size() > 1) return;  // devices named one by one
    const int dp = training_.dp;
    const bool same = dp % 2 == 0;
    RunConfig& config =
        Add(kind, absl::StrCat(field, " ", 2 * degree,
                               same ? absl::StrCat(", dp ", dp / 2)
                                    : ", twice the devices"));
    config.strategy.*member = 2 * degree;
    if (same) {
      config.strategy.dp = dp / 2;
    } else {
      config.system.nodes.reset();
    }
  }

  void AddTensor() {
    if (training_.tp > 1 && !training_.sequence_parallel) {
      Add("tensor", "strategy.sequence_parallel true")
          .strategy.sequence_parallel = true;
    }
    Double("tensor", "strategy.tp", training_.tp, &StrategyChoice::tp);
    Double("tensor", "strategy.cp", training_.cp, &StrategyChoice::cp);
  }

  void AddPipeline() {
    if (IsReadFromFile() || HasOwnLayout()) return;
    Double("pipeline", "strategy.pp", *given_.pp, &StrategyChoice::pp);
    const int vpp = *given_.vpp;
    for (const int other : {2 * vpp, vpp / 2}) {
      if (other < 1) continue;
      Add("pipeline", absl::StrCat("strategy.vpp ", other)).strategy.vpp =
          other;
    }
  }

  void AddZero() {
    if (training_.shards() == 1) return;
    // Lower takes no sharded optimizer where a pipeline holds a stage twice, or
    // where ranks step by themselves.
    if (run_.schedule.lowered->directions > 1 ||
        run_.schedule.lowered->update_every > 0) {
      return;
    }
    for (const DataParallelTraits& mode : kDataParallelModes) {
      if (mode.zero_stage() <= training_.zero) continue;
      RunConfig& config =
          Add("zero", absl::StrCat("strategy.data_parallel ", mode.name));
      config.strategy.data_parallel = mode.mode;
      config.strategy.zero.reset();
    }
  }

  void AddMicrobatchSize() {
    const int size = training_.microbatch_size;
    if (size % 2 != 0 || IsReadFromFile()) return;
    RunConfig& config =
        Add("microbatch", absl::StrCat("strategy.microbatch_size ", size / 2,
                                       ", twice the microbatches"));
    config.strategy.microbatch_size = size / 2;
    config.strategy.microbatches = 2 * *given_.microbatches;
  }

  void AddSchedules() {
    if (IsReadFromFile()) return;
    for (const ScheduleInfo* info : AllSchedules()) {
      // A search takes too long for an advice.
      if (info->name == run_.schedule.lowered->name || info->asks_for_room) {
        continue;
      }
      if (HasOwnLayout() && info->default_vpp != *given_.vpp) continue;
      RunConfig& config =
          Add("schedule", absl::StrCat("schedule.name ", info->name));
      config.schedule.name = info->name;
      config.schedule.params.clear();
      config.strategy.vpp = info->default_vpp;
    }
  }

  const PreparedRun& run_;
  const StrategyChoice& given_;
  const TrainingSpec& training_;
  std::vector<Candidate> candidates_;
};

double Needed(const MemoryReport& report) {
  return static_cast<double>(
      report.memory->ranks[report.memory->WorstRank()].needed());
}

// Is `other` better than `best`, which is of the same kind and was tried
// earlier?
bool IsBetter(const MemoryChange& other, const MemoryChange& best) {
  if (best.fits) return false;
  return other.fits || other.saved_bytes > best.saved_bytes;
}

}  // namespace

std::vector<MemoryChange> AdviseMemory(const PreparedRun& run, size_t most,
                                       RunContext* context) {
  if (!run.memory || run.schedule.lowered->num_passes() > kMostPasses)
    return {};
  const double before = Needed(*run.memory);
  std::map<std::string, MemoryChange> best;
  for (const Candidate& candidate : Candidates(run).Take()) {
    const absl::StatusOr<PreparedRun> tried =
        Prepare(candidate.config, context);
    if (!tried.ok() || !tried->memory) continue;
    if (tried->schedule.limit && !tried->schedule.limit->ok()) continue;
    MemoryChange change;
    change.change = candidate.change;
    change.needed_bytes = Needed(*tried->memory);
    change.saved_bytes = before - change.needed_bytes;
    change.fits = tried->memory->fits();
    if (change.saved_bytes <= 0) continue;
    const auto [known, is_new] = best.emplace(candidate.kind, change);
    if (!is_new && IsBetter(change, known->second)) known->second = change;
  }
  std::vector<MemoryChange> changes;
  for (auto& [kind, change] : best) changes.push_back(std::move(change));
  std::stable_sort(changes.begin(), changes.end(),
                   [](const MemoryChange& one, const MemoryChange& other) {
                     return one.saved_bytes > other.saved_bytes;
                   });
  if (changes.size() > most) changes.resize(most);
  return changes;
}

}  // namespace pipewright
