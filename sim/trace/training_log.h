// Step times, rates and memory from the log that a training run prints:
// Megatron-LM's and Megatron-Bridge's "iteration N/ M | ... | elapsed time per
// iteration (ms): T | ..." and torchtitan's "step: N  loss: ...  tps: ...".
//
// Facts of the formats: NVIDIA/Megatron-LM, megatron/training/training.py and
// utils.py (MB of memory are 2^20 bytes); NVIDIA-NeMo/Megatron-Bridge,
// training/utils/train_utils.py (gigabytes are 1e9 bytes); pytorch/torchtitan,
// components/metrics.py (tps is by device; memory is what is reserved).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct LoggedStep {
  int64_t step = 0;
  int64_t line = 0;
  // A step. Megatron's is the mean since the line before; torchtitan's is the
  // difference of the times of two lines, which the first one does not have.
  std::optional<double> seconds;
  std::optional<double> tokens_per_s;  // of a device
  std::optional<double> tflops;        // of a device
};

struct TrainingLog {
  std::string source;
  std::string program;  // "Megatron-LM" (of Megatron-Bridge too), "torchtitan"
  std::vector<LoggedStep> steps;
  // The largest of all lines. Reserved memory includes fragmentation.
  std::optional<double> allocated_bytes;
  std::optional<double> reserved_bytes;
  std::vector<std::string> warnings;
};

// Lines of other kinds are passed over. Lines that several ranks print about
// one step count once, if they lie near each other; if the number of the step
// goes back otherwise, the run was started again, and what is before is left
// out with a warning, as is a last line that is cut. Error: kInvalidArgument
// with file and line, for a step whose time is missing or no number above 0,
// and for a log without steps.
absl::StatusOr<TrainingLog> ReadTrainingLog(absl::string_view text,
                                            const std::string& source);

// Spread of one value over the steps that count.
struct LogSpread {
  size_t count = 0;
  double mean = 0;
  double median = 0;
  double deviation = 0;  // standard, of a sample; 0 with one value
  double least = 0;
  double most = 0;
};

struct LogSummary {
  std::vector<int64_t> warm_up;  // steps that are left out
  size_t steps = 0;              // that count
  std::optional<LogSpread> step_s;
  std::optional<LogSpread> tokens_per_s;
  std::optional<LogSpread> tflops;
  std::vector<LoggedStep> slow;  // over kSlowStep times the median
};

inline constexpr double kSlowStep = 1.2;

// Leaves out the first `skip` lines with a step; below 0 those at the start
// that have no time or take more than kSlowStep times the median of all.
// Error: kInvalidArgument if there is no step with a time, or none is left.
absl::StatusOr<LogSummary> SummarizeLog(const TrainingLog& log, int64_t skip);

}  // namespace pipewright
