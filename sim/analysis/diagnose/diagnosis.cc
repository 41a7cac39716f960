#include "sim/analysis/diagnose/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

// Operations of all steps that the replays of single workers may take: some
// ten seconds.
constexpr double kMostWorkerWork = 2e9;

class Diagnoser {
 public:
  Diagnoser(const MeasuredJob& job, ComputeIdeal ideal)
      : job_(job), replay_(job, ideal) {
    answer_.ideal = ideal;
  }

  Diagnosis Run() {
    Steps();
    Kinds();
    Places();
    Workers();
    Warn();
    return std::move(answer_);
  }

 private:
  using Marks = std::vector<uint8_t>;
  using Choose = std::function<bool(const JobOp&)>;

  Marks MarksOf(const Choose& choose, int64_t* count) const {
    Marks marks(job_.num_ops());
    for (size_t op = 0; op < marks.size(); ++op) {
      marks[op] = choose(job_.ops[op]) ? 1 : 0;
      *count += marks[op];
    }
    return marks;
  }

  double Mean(const Marks* own, const Marks* gaps) {
    return MeanOf(replay_.Run({.own = own, .gaps = gaps}));
  }

  void Steps() {
    const std::vector<double> recorded = replay_.Recorded();
    const std::vector<double> no_gap = replay_.Run({});
    const Marks all(job_.num_ops(), 1);
    const std::vector<double> with_gaps = replay_.Run({.gaps = &all});
    for (size_t step = 0; step < job_.num_steps(); ++step) {
      StepAnswer each;
      each.step = job_.steps[step];
      each.recorded_s = recorded[step];
      each.with_gaps_s = with_gaps[step];
      each.no_gap_s = no_gap[step];
      if (each.recorded_s > 0) {
        each.gap_error = each.no_gap_s / each.recorded_s - 1;
      }
      if (std::abs(each.gap_error) > std::abs(answer_.worst_gap_error)) {
        answer_.worst_gap_error = each.gap_error;
      }
      answer_.gap_error +=
          each.gap_error / static_cast<double>(job_.num_steps());
      answer_.steps.push_back(each);
    }
    answer_.recorded_s = MeanOf(recorded);
    answer_.no_gap_s = MeanOf(no_gap);
    const Marks none(job_.num_ops(), 0);
    std::vector<double> start;
    std::vector<double> end;
    answer_.ideal_s = MeanOf(replay_.Run({.own = &none}, &start, &end));
    // All steps have the same ideal one.
    for (size_t op = 0; op < job_.num_ops(); ++op) {
      answer_.timeline.start_s.push_back(start[op * job_.num_steps()]);
      answer_.timeline.end_s.push_back(end[op * job_.num_steps()]);
    }
    answer_.gap_slowdown = Over(answer_.recorded_s, answer_.no_gap_s);
    answer_.straggler_slowdown = Over(answer_.no_gap_s, answer_.ideal_s);
  }

  static double Over(double one, double other) {
    return other > 0 ? one / other : 1;
  }

  JobWhatIf Ask(std::string name, const Choose& choose) {
    JobWhatIf what;
    what.name = std::move(name);
    Marks marks = MarksOf(choose, &what.operations);
    what.slowdown_keep = Over(Mean(&marks, nullptr), answer_.ideal_s);
    for (uint8_t& mark : marks) mark = 1 - mark;
    what.speedup_fix = Over(answer_.no_gap_s, Mean(&marks, nullptr));
    return what;
  }

  void Kinds() {
    std::vector<std::string> families;
    const size_t steps = job_.num_steps();
    std::vector<int64_t> counts(job_.kinds.size());
    std::vector<double> largest(job_.kinds.size());
    for (size_t op = 0; op < job_.num_ops(); ++op) {
      const int32_t kind = job_.ops[op].kind;
      ++counts[kind];
      const double* const times = &replay_.time_s()[op * steps];
      largest[kind] =
          std::max(largest[kind], *std::max_element(times, times + steps));
    }
    for (size_t kind = 0; kind < job_.kinds.size(); ++kind) {
      if (counts[kind] == 0) continue;
      const JobKind& row = job_.kinds[kind];
      answer_.kind_ideals.push_back({row.name, row.communication, counts[kind],
                                     replay_.ideal_s()[kind], largest[kind]});
      if (std::find(families.begin(), families.end(), row.family) ==
          families.end()) {
        families.push_back(row.family);
      }
    }
    for (const std::string& family : families) {
      const Choose choose = [&](const JobOp& op) {
        return job_.kinds[op.kind].family == family;
      };
      JobWhatIf what = Ask(family, choose);
      int64_t count = 0;
      const Marks marks = MarksOf(choose, &count);
      what.gap_s = Mean(nullptr, &marks) - answer_.no_gap_s;
      answer_.kinds.push_back(std::move(what));
    }
  }

  void Places() {
    for (int stage = 0; stage < job_.pp; ++stage) {
      JobWhatIf what = Ask(absl::StrCat(job_.place, " ", stage),
                           [&](const JobOp& op) { return op.stage == stage; });
      what.stage = stage;
      answer_.stages.push_back(std::move(what));
    }
    for (int replica = 0; replica < job_.dp; ++replica) {
      JobWhatIf what =
          Ask(absl::StrCat("replica ", replica),
              [&](const JobOp& op) { return op.replica == replica; });
      what.replica = replica;
      answer_.replicas.push_back(std::move(what));
    }
  }

  void Workers() {
    const double workers = static_cast<double>(job_.pp) * job_.dp;
    answer_.workers_estimated =
        2 * workers * static_cast<double>(job_.start_s.size()) >
        kMostWorkerWork;
    for (int replica = 0; replica < job_.dp; ++replica) {
      for (int stage = 0; stage < job_.pp; ++stage) {
        const std::string name =
            absl::StrCat(job_.place, " ", stage, ", replica ", replica);
        JobWhatIf what;
        if (answer_.workers_estimated) {
          const JobWhatIf& of_stage = answer_.stages[stage];
          const JobWhatIf& of_replica = answer_.replicas[replica];
          what.name = name;
          what.slowdown_keep =
              std::min(of_stage.slowdown_keep, of_replica.slowdown_keep);
          what.speedup_fix =
              std::min(of_stage.speedup_fix, of_replica.speedup_fix);
        } else {
          what = Ask(name, [&](const JobOp& op) {
            return op.replica == replica && op.stage == stage;
          });
        }
        what.stage = stage;
        what.replica = replica;
        answer_.workers.push_back(std::move(what));
      }
    }
  }

  void Warn() {
    answer_.warnings = job_.warnings;
    if (replay_.cut_times() > 0) {
      answer_.warnings.push_back(
          absl::StrCat(replay_.cut_times(),
                       " transfers end 10 ms or more before their partner "
                       "starts; their time is read as 0"));
    }
    if (replay_.cut_gaps() > 0) {
      answer_.warnings.push_back(absl::StrCat(
          replay_.cut_gaps(),
          " operations start 10 ms or more before what they wait for has "
          "ended; their gap is read as 0"));
    }
    if (answer_.workers_estimated) {
      answer_.warnings.push_back(
          "too many workers to try one by one: each has the smaller slowdown "
          "of its stage or rank and its replica");
    }
  }

  const MeasuredJob& job_;
  JobReplay replay_;
  Diagnosis answer_;
};

}  // namespace

Diagnosis Diagnose(const MeasuredJob& job, ComputeIdeal ideal) {
  return Diagnoser(job, ideal).Run();
}

}  // namespace pipewright
