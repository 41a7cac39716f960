// Engines: rows of (name, Run), all with one signature. Each runs a Program
// and reports the same numbers into the same sink.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/trace/trace.h"

namespace pipewright {

// Hears how far a run has come, for whoever waits for it. Calls come often and
// from the thread that runs, also in a forked child of it: At() must be cheap,
// and must not take locks that another thread may hold.
class Progress {
 public:
  virtual ~Progress() = default;
  // `part` is done, 0 to 1; it never falls within a run. 1: the run is over.
  virtual void At(double part) = 0;
};

// A stretch of a longer run: its 0 and 1 are `from` and `to` of `whole`, which
// may be null.
class PartOfProgress : public Progress {
 public:
  PartOfProgress(Progress* whole, double from, double to)
      : whole_(whole), from_(from), to_(to) {}
  void At(double part) override {
    if (whole_ != nullptr) whole_->At(from_ + (to_ - from_) * part);
  }

 private:
  Progress* const whole_;
  const double from_;
  const double to_;
};

struct Program;

// One rank of one replica, first iteration, passes only.
struct RankTimes {
  double first_start_s = 0;
  double last_end_s = 0;
  double busy_s = 0;  // sum of its pass times
  // The compute stream had nothing to wait for but copies: an L that came late,
  // a FREE whose O had not ended. The latter may cost nothing, where what
  // follows would have waited for its input.
  double late_load_s = 0;
  double late_free_s = 0;
  double span_s() const { return last_end_s - first_start_s; }
};

struct RunSummary {
  // [replica][rank]; replicas that are exactly alike may share one row.
  std::vector<std::vector<RankTimes>> times;
  std::vector<int> row_of_replica;      // replica -> row of `times`
  std::vector<double> iteration_end_s;  // last end of anything, [iteration]
  bool steady = false;                  // the last two periods agree
  bool measured = false;                // by a clock: no two periods are alike
  int64_t passes = 0;  // in one iteration of one replica of the first class
  int64_t simulated_ops = 0;  // operations really run, all replicas
  int64_t flows = 0;          // transfers that went through a solver
  int64_t timers = 0;         // events that did not
  int64_t apart = 0;          // stretches that parts ran one after the other
  int64_t folded = 0;         // replicas that did not run, as others did it
  // Activities that SimGrid ran; both 0: another engine did.
  int64_t execs = 0;
  int64_t comms = 0;
  // Between ranks by one device of each, one iteration, all replicas.
  double bytes_sent = 0;

  int iterations() const { return static_cast<int>(iteration_end_s.size()); }
  // Steady-state period: the last difference of iteration ends, of measured
  // ones their median; with one iteration its end.
  double iteration_s() const;
};

struct EngineOptions {
  TraceSink* trace = nullptr;    // may be null
  Progress* progress = nullptr;  // may be null
  // A transfer that could meet others but is alone on its links is timed, and
  // becomes a flow only when another one comes. Same times; false makes each
  // a flow from the start, for tests and benchmarks.
  bool time_lone_transfers = true;
  // A device runs its passes as soon as it is known when they begin, before
  // that time has come: its transfers are timers of the future. Same times;
  // false makes the end of each pass an event, for tests.
  bool run_ahead = true;
  // With so many devices or more, replicas that cannot meet for a while run it
  // one after the other (EventRun::Horizon): what runs then fits the cache. Of
  // parts that do the same in lock-step only the first one runs. Same times.
  // Not where a trace is wanted.
  int least_in_parts = 512;
  // False: every transfer takes what it takes alone, as in the fast engine.
  bool share_links = true;
  // Whatever takes time is an activity of the transport, which also says when
  // it ends: no device runs ahead, and all bytes between devices are flows. So
  // engine `simgrid` runs, and no other; it overrides most of the above.
  bool as_activities = false;
};

struct EngineInfo {
  std::string name;
  std::string summary;
  // Error: kFailedPrecondition with the blocked operations marked, when the
  // program deadlocks.
  absl::StatusOr<RunSummary> (*run)(const Program&, const EngineOptions&);
};

// "fast", "fluid", "simgrid".
const std::vector<EngineInfo>& AllEngines();
// "simgrid", or "fluid" in a build without SimGrid.
absl::string_view DefaultEngine();
absl::StatusOr<const EngineInfo*> FindEngine(absl::string_view name);

// True when the two last periods of `iteration_end_s` agree to 1e-9, and no
// later iteration begins falsely.
bool IsSteady(const Program& program,
              const std::vector<double>& iteration_end_s);

// True when what decides the next iteration is nothing but when the compute
// stream of every rank ends this one: no other stream is used, no token
// crosses from one iteration to the next.
bool EndsDecide(const Program& program);

// True when two iterations ended alike: every rank the same time later, to
// 1e-9 of it. Where EndsDecide, all that follow are then alike too.
bool EndAlike(const std::vector<double>& before_s,
              const std::vector<double>& after_s);

}  // namespace pipewright
