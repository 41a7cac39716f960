#include "schedules/slice_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
// A root that is a whole token but for rounding is that token.
constexpr double kWholeToken = 1e-9;

// The inverse of PrefixWork.
double PrefixOfWork(double attention, double work) {
  if (attention == 0) return work;
  const double linear = 1 - attention;
  return 2 * work /
         (linear +
          std::sqrt(linear * linear + 4 * attention * std::max(work, 0.0)));
}

// least[slices][end]: the least sum of times that reaches `end`, with no time
// above `bound`; index 0 stands for any number of slices where they are free.
class SliceTable {
 public:
  SliceTable(int units, int slices, const SliceTime& time)
      : units_(units), slices_(slices), time_(Index(units, 0) + 1) {
    for (int length = 1; length <= units; ++length) {
      for (int context = 0; context + length <= units; ++context) {
        time_[Index(length, context)] = time(length, context);
      }
    }
  }

  std::vector<double> Bounds() const {
    std::vector<double> bounds;
    for (int length = 1; length <= units_; ++length) {
      for (int context = 0; context + length <= units_; ++context) {
        bounds.push_back(time_[Index(length, context)]);
      }
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    return bounds;
  }

  // The least sum under `bound`, infinity where none fits.
  double Solve(double bound) {
    const int rows = slices_ == 0 ? 1 : slices_;
    steps_.assign(static_cast<size_t>(rows) * (units_ + 1), 0);
    std::vector<double> before(units_ + 1, kUnbounded);
    std::vector<int> count(units_ + 1, 0);
    before[0] = 0;
    for (int row = 0; row < rows; ++row) {
      std::vector<double> least(units_ + 1, kUnbounded);
      if (slices_ == 0) least[0] = 0;
      for (int end = 1; end <= units_; ++end) {
        for (int length = 1; length <= end; ++length) {
          const double time = time_[Index(length, end - length)];
          if (time > bound) continue;
          const std::vector<double>& from = slices_ == 0 ? least : before;
          const double sum = from[end - length] + time;
          const int slices = count[end - length] + 1;
          const bool fewer = slices_ == 0 && slices < count[end];
          if (sum > least[end] * (1 - kWholeToken) &&
              !(fewer && sum <= least[end] * (1 + kWholeToken))) {
            continue;
          }
          least[end] = sum;
          if (slices_ == 0) count[end] = slices;
          steps_[static_cast<size_t>(row) * (units_ + 1) + end] = length;
        }
      }
      before = std::move(least);
    }
    return before[units_];
  }

  // Lengths by the last Solve.
  std::vector<int> Lengths() const {
    std::vector<int> lengths;
    int row = slices_ == 0 ? 0 : slices_ - 1;
    for (int end = units_; end > 0;) {
      lengths.push_back(steps_[static_cast<size_t>(row) * (units_ + 1) + end]);
      end -= lengths.back();
      if (slices_ > 0) --row;
    }
    std::reverse(lengths.begin(), lengths.end());
    return lengths;
  }

 private:
  size_t Index(int length, int context) const {
    return static_cast<size_t>(length) * (units_ + 1) + context;
  }

  int units_, slices_;
  std::vector<double> time_;
  std::vector<int> steps_;
};

}  // namespace

std::vector<int64_t> EqualSlices(int64_t tokens, int slices) {
  PW_CHECK(slices >= 1 && slices <= tokens);
  std::vector<int64_t> lengths;
  for (int slice = 0; slice < slices; ++slice) {
    lengths.push_back(tokens / slices + (slice < tokens % slices ? 1 : 0));
  }
  return lengths;
}

std::vector<int64_t> BalancedSlices(const SequenceShape& sequence, int slices) {
  PW_CHECK(slices >= 1 && slices <= sequence.tokens);
  const auto tokens = static_cast<double>(sequence.tokens);
  std::vector<int64_t> lengths;
  int64_t end = sequence.tokens;
  for (int left = slices; left > 1; --left) {
    const double begin =
        tokens * PrefixOfWork(sequence.attention,
                              PrefixWork(sequence.attention,
                                         static_cast<double>(end) / tokens) -
                                  1.0 / slices);
    const auto length = static_cast<int64_t>(static_cast<double>(end) - begin +
                                             kWholeToken * tokens);
    // The slices in front need a token each.
    lengths.push_back(std::clamp<int64_t>(length, 1, end - (left - 1)));
    end -= lengths.back();
  }
  lengths.push_back(end);
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

std::vector<int> PlanSlices(int units, int slices, int ranks, int microbatches,
                            const SliceTime& time) {
  PW_CHECK(units >= 1 && slices <= units);
  SliceTable table(units, slices, time);
  const std::vector<double> bounds = table.Bounds();
  // The tightest bound that leaves any way to cut.
  auto bound = std::partition_point(
      bounds.begin(), bounds.end(),
      [&](double value) { return table.Solve(value) == kUnbounded; });
  const double least = microbatches * table.Solve(kUnbounded);
  double best = kUnbounded;
  std::vector<int> lengths;
  for (; bound != bounds.end(); ++bound) {
    const double fill = (ranks - 1) * *bound;
    if (least + fill >= best * (1 - kWholeToken)) break;
    const double total = microbatches * table.Solve(*bound) + fill;
    if (total >= best * (1 - kWholeToken)) continue;
    best = total;
    lengths = table.Lengths();
  }
  return lengths;
}

absl::StatusOr<std::vector<double>> BalanceFactors(
    const ScheduleParams& params) {
  PW_ASSIGN_OR_RETURN(const std::string balance,
                      ChoiceParam(params, "balance", "uniform",
                                  {"uniform", "tokens", "flops"}));
  SequenceShape sequence;
  PW_ASSIGN_OR_RETURN(
      sequence.tokens,
      IntParam(params, "tokens", static_cast<int>(params.sequence.tokens), 1,
               std::numeric_limits<int>::max()));
  PW_ASSIGN_OR_RETURN(
      sequence.attention,
      RealParam(params, "attention", params.sequence.attention, 0, 1));
  if (balance == "uniform") return std::vector<double>();
  if (sequence.tokens == 0) {
    return BadValue("schedule.params.balance", balance,
                    "uniform, or a sequence (--model, or --param tokens=N "
                    "--param attention=PART)");
  }
  if (params.slices > sequence.tokens) {
    return BadValue("strategy.slices", absl::StrCat(params.slices),
                    absl::StrCat("1..", sequence.tokens, ", one token each"));
  }
  return SliceFactors(sequence,
                      balance == "tokens"
                          ? EqualSlices(sequence.tokens, params.slices)
                          : BalancedSlices(sequence, params.slices));
}

}  // namespace pipewright
