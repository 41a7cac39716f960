// A replay of a table of measured operations that shares nothing with
// sim/analysis/diagnose: it asks backwards, from the end of a step, when each operation
// ended, and finds what it waited for by name when it is asked. Pipelines
// without chunks and without overlapped reduction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace pipewright::testing {

// What somebody may get wrong.
enum class NaiveFault {
  kNone,
  kWaitIsTransfer,  // takes a message's whole duration
  kMeanIsMedian,    // takes the median of what computes
  kNoGather,        // the first forward does not wait for the parameters
  kReceiveFree,     // a receive does not wait for the compute before
  kBackwardAtOnce,  // no rule 4
  kOwnClip,         // the clip of each replica alone
};

class NaiveStragglers {
 public:
  explicit NaiveStragglers(const std::string& csv,
                           NaiveFault fault = NaiveFault::kNone);

  // Replica, stage, type.
  using Keep = std::function<bool(int, int, const std::string&)>;
  // Seconds by step, everything ideal but what is kept.
  std::map<int64_t, double> Steps(const Keep& keep) const;

 private:
  using Name = std::tuple<int, int, std::string, int>;  // and number
  struct Times {
    double start = 0;
    double duration = 0;
  };
  using Step = std::map<Name, Times>;
  using Ends = std::map<Name, double>;

  bool Has(const Name& name) const;
  std::vector<Name> Before(const Name& name) const;
  std::vector<Name> Partners(const Name& name) const;
  double Own(const Step& step, const Name& name) const;
  double End(const Step& step, const Name& name, const Keep& keep,
             Ends* ends) const;
  double Ready(const Step& step, const Name& name, const Keep& keep,
               Ends* ends) const;

  const NaiveFault fault_;
  std::map<int64_t, Step> steps_;
  int replicas_ = 0;
  int stages_ = 0;
  std::vector<std::vector<std::pair<std::string, int>>> computes_;
  std::map<std::string, double> ideal_;
};

}  // namespace pipewright::testing
