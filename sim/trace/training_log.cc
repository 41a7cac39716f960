#include "sim/trace/training_log.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"
#include "sim/trace/log_lines.h"

namespace pipewright {
namespace {

constexpr absl::string_view kElapsed = "elapsed time per iteration (ms):";
constexpr absl::string_view kIteration = "iteration ";
constexpr absl::string_view kStep = "step:";
constexpr absl::string_view kDots = " ....";

// "iteration       10/    1000 |", not "validation loss at iteration 1000 |".
bool IsMegatronStep(absl::string_view line, double* step) {
  const size_t at = line.find(kIteration);
  if (at == absl::string_view::npos ||
      !NumberBehind(line.substr(at), kIteration, step)) {
    return false;
  }
  const absl::string_view rest = line.substr(at);
  const size_t slash = rest.find('/');
  return slash != absl::string_view::npos && slash < rest.find('|') &&
         rest.find('|') != absl::string_view::npos;
}

// "step: 10  loss: ...", not "validate step: 10  loss: ...".
bool IsTitanStep(absl::string_view line, double* step) {
  const size_t at = line.find(kStep);
  return at != absl::string_view::npos &&
         !absl::EndsWith(line.substr(0, at), "validate ") &&
         absl::StrContains(line.substr(at), " loss:") &&
         NumberBehind(line, kStep, step);
}

// Milliseconds of the first "2026-02-24 19:46:17,508" in a line; Megatron
// prints none behind the second.
std::optional<int64_t> TimeOfLine(const std::string& line) {
  for (size_t at = line.find('-'); at != std::string::npos;
       at = line.find('-', at + 1)) {
    int year = 0;
    unsigned month = 0;
    unsigned day = 0;
    int hour = 0;
    int minute = 0;
    int second = 0;
    int millis = 0;
    if (at < 4 ||
        std::sscanf(line.c_str() + at - 4, "%4d-%2u-%2u %2d:%2d:%2d,%3d", &year,
                    &month, &day, &hour, &minute, &second, &millis) < 6) {
      continue;
    }
    const std::chrono::year_month_day date((std::chrono::year(year)),
                                           (std::chrono::month(month)),
                                           (std::chrono::day(day)));
    if (!date.ok()) continue;
    const auto days = std::chrono::sys_days(date).time_since_epoch().count();
    return 86'400'000LL * days + 3'600'000LL * hour + 60'000LL * minute +
           1'000LL * second + millis;
  }
  return {};
}

struct StepLine {
  LoggedStep step;
  std::optional<int64_t> millis;  // TimeOfLine
  int lines = 1;  // of the same step; one more than of the next if it came late
};

// What one process has printed.
struct Writer {
  std::string program;
  std::vector<StepLine> steps;  // by their numbers
  std::vector<std::string> warnings;
  std::optional<double> tflops;  // of Megatron-Bridge's line before
};

// Steps that ranks without marks lie apart at most.
constexpr size_t kMostApart = 16;

// Is a line about the step `at`, or the one in front of it that is missing,
// another rank's, though later steps have been printed? It lies near them and
// comes within a step's time. Without times a rank prints all steps again, from
// the first one on, a restart those behind a checkpoint alone.
bool IsOfAnotherRank(const std::vector<StepLine>& steps, size_t at,
                     bool is_missing, std::optional<int64_t> millis) {
  if (at + kMostApart < steps.size()) return false;
  const bool is_end = is_missing || at + 1 == steps.size();
  const size_t from = at > 0 && is_end ? at - 1 : at;
  if (millis && from + 1 < steps.size() && steps[from].millis &&
      steps[from + 1].millis) {
    const int64_t span = *steps[from + 1].millis - *steps[from].millis;
    if (span > 0) return std::abs(*millis - *steps[at].millis) <= span;
  }
  if (is_missing || at == 0) return true;
  const size_t first = at > kMostApart ? at - kMostApart : 0;
  return std::any_of(
      steps.begin() + static_cast<std::ptrdiff_t>(first),
      steps.begin() + static_cast<std::ptrdiff_t>(at),
      [&](const StepLine& before) { return before.lines > steps[at].lines; });
}

// The line ends within a number, whose end may be missing.
bool EndsInNumber(absl::string_view line) {
  return !line.empty() && (absl::ascii_isdigit(line.back()) ||
                           line.back() == '.' || line.back() == ',');
}

void Raise(double value, std::optional<double>* most) {
  *most = std::max(most->value_or(0), value);
}

class LogReader {
 public:
  explicit LogReader(std::string source) { log_.source = std::move(source); }

  // `is_last`: the log may still be written; `is_open`: within this line.
  absl::Status Take(LogLine line, bool is_last, bool is_open) {
    const bool is_cut = is_open && EndsInNumber(line.text);
    while (is_open && EndsInNumber(line.text)) line.text.pop_back();
    ReadMemory(line.text);
    ReadArgument(line.text);
    Writer& writer = writers_[line.writer];
    double tflops = 0;
    if (absl::StrContains(line.text, "Step Time :") &&
        NumberBehind(line.text, "GPU utilization:", &tflops)) {
      writer.tflops = tflops;
    }
    double number = 0;
    LoggedStep step = {.line = line.number};
    absl::Status status;
    if (IsMegatronStep(line.text, &number)) {
      writer.program = "Megatron-LM";
      status = ReadMegatron(line.text, &writer, &step);
    } else if (IsTitanStep(line.text, &number)) {
      writer.program = "torchtitan";
      status = ReadTitan(line.text, &step);
    } else {
      return absl::OkStatus();
    }
    const bool is_whole =
        !is_open ||
        (writer.program == "torchtitan"
             ? !is_cut
             : absl::EndsWith(absl::StripAsciiWhitespace(line.text), "|"));
    if (is_last && (!status.ok() || !is_whole)) {
      writer.warnings.push_back(absl::StrCat(
          "line ", line.number, " is cut off; its step is left out"));
      return absl::OkStatus();
    }
    PW_RETURN_IF_ERROR(InFile(log_.source, line.number, status));
    if (number < 0 || number > kMostSteps) {
      return BadValue(FieldPlace::InFile(log_.source, line.number, "step"),
                      absl::StrCat(number), absl::StrCat("0 to ", kMostSteps));
    }
    step.step = static_cast<int64_t>(number);
    Add(step, line.text, &writer);
    return absl::OkStatus();
  }

  absl::StatusOr<TrainingLog> Finish() {
    Writer* most = nullptr;
    for (auto& [name, writer] : writers_) {
      if (writer.steps.empty()) continue;
      if (most == nullptr || writer.steps.size() > most->steps.size()) {
        most = &writer;
      }
    }
    if (most == nullptr) {
      return InFile(log_.source, 0,
                    WithValue(absl::InvalidArgumentError(absl::StrCat(
                                  "reports no step; allowed: ", kAllowed)),
                              "", kAllowed));
    }
    log_.program = most->program;
    for (const StepLine& line : most->steps) log_.steps.push_back(line.step);
    // torchtitan prints no times of steps.
    for (size_t at = 1; log_.program == "torchtitan" && at < log_.steps.size();
         ++at) {
      const StepLine& before = most->steps[at - 1];
      const StepLine& line = most->steps[at];
      if (!line.millis || !before.millis || *line.millis <= *before.millis) {
        continue;
      }
      log_.steps[at].seconds =
          1e-3 * static_cast<double>(*line.millis - *before.millis) /
          static_cast<double>(line.step.step - before.step.step);
    }
    log_.warnings = std::move(most->warnings);
    return std::move(log_);
  }

 private:
  static constexpr double kMostSteps = 1e15;
  static constexpr char kAllowed[] =
      "a trace (JSON), for diagnose a table (CSV with dp_rank, optype and "
      "start_ns), or a log of Megatron-LM or Megatron-Bridge (\"iteration N/ M "
      "| ... | elapsed time per iteration (ms): T\"), or of torchtitan "
      "(\"step: N  loss: ...  tps: ...\")";

  // "[Rank 0] (after 2 iterations) memory (MB) | ... | max allocated: 34.5 |";
  // launchers put several of them into one line.
  void ReadMemory(absl::string_view line) {
    constexpr double kMegabyte = 1 << 20;
    const struct {
      absl::string_view key;
      double unit;
      std::optional<double>* most;
    } amounts[] = {{"| max allocated:", kMegabyte, &log_.allocated_bytes},
                   {"| max reserved:", kMegabyte, &log_.reserved_bytes},
                   {"mem-max-allocated-gigabytes:", 1e9, &log_.allocated_bytes},
                   {"mem-max-reserved-gigabytes:", 1e9, &log_.reserved_bytes}};
    for (const auto& amount : amounts) {
      for (size_t at = line.find(amount.key); at != absl::string_view::npos;
           at = line.find(amount.key, at + 1)) {
        double value = 0;
        if (NumberBehind(line.substr(at), amount.key, &value)) {
          Raise(value * amount.unit, amount.most);
        }
      }
    }
  }

  // Megatron-LM lists its arguments: "  seq_length ........ 4096".
  void ReadArgument(absl::string_view line) {
    const size_t dots = line.find(kDots);
    if (dots == absl::string_view::npos) return;
    const absl::string_view name =
        absl::StripAsciiWhitespace(line.substr(0, dots));
    double* const into = name == "seq_length"   ? &sequence_
                         : name == "world_size" ? &world_size_
                                                : nullptr;
    const size_t value = line.find_last_of('.') + 1;
    if (into != nullptr) NumberBehind(line.substr(value), "", into);
  }

  absl::Status ReadMegatron(absl::string_view line, Writer* writer,
                            LoggedStep* step) const {
    double millis = 0;
    if (!NumberBehind(line, kElapsed, &millis) || millis <= 0) {
      return BadValue(std::string(kElapsed), "missing or not above 0",
                      "milliseconds above 0 in each line of an iteration");
    }
    step->seconds = millis * 1e-3;
    double value = 0;
    if (NumberBehind(line, "throughput per GPU (TFLOP/s/GPU):", &value)) {
      step->tflops = value;
    } else {
      step->tflops = writer->tflops;
    }
    writer->tflops.reset();
    if (sequence_ > 0 && world_size_ > 0 &&
        NumberBehind(line, "global batch size:", &value)) {
      step->tokens_per_s = value * sequence_ / world_size_ / *step->seconds;
    }
    return absl::OkStatus();
  }

  absl::Status ReadTitan(absl::string_view line, LoggedStep* step) {
    double value = 0;
    // Called "wps" until 2025.
    if ((!NumberBehind(line, " tps:", &value) &&
         !NumberBehind(line, " wps:", &value)) ||
        value < 0) {
      return BadValue("tps", "missing or below 0",
                      "tokens per second in each line of a step");
    }
    step->tokens_per_s = value;
    if (NumberBehind(line, "tflops:", &value)) step->tflops = value;
    if (NumberBehind(line, "memory:", &value)) {
      Raise(value * (1 << 30), &log_.reserved_bytes);
    }
    return absl::OkStatus();
  }

  static void Add(const LoggedStep& step, const std::string& text,
                  Writer* writer) {
    std::vector<StepLine>& steps = writer->steps;
    const StepLine line = {.step = step, .millis = TimeOfLine(text)};
    auto at = std::lower_bound(steps.begin(), steps.end(), step.step,
                               [](const StepLine& other, int64_t number) {
                                 return other.step.step < number;
                               });
    if (at != steps.end()) {
      const bool is_missing = at->step.step != step.step;
      if ((at != steps.begin() || !is_missing) &&
          IsOfAnotherRank(steps, static_cast<size_t>(at - steps.begin()),
                          is_missing, line.millis)) {
        if (is_missing) {
          const int lines = at->lines + 1;
          steps.insert(at, line)->lines = lines;
        } else {
          ++at->lines;
        }
        return;
      }
      writer->warnings.push_back(absl::StrCat(
          "line ", step.line, ": step ", step.step, " follows step ",
          steps.back().step.step, ", so the run was started again; the ",
          steps.size(), " lines before are left out"));
      steps.clear();
    }
    steps.push_back(line);
  }

  TrainingLog log_;
  std::map<std::string, Writer> writers_;
  double sequence_ = 0;
  double world_size_ = 0;
};

std::optional<LogSpread> SpreadOf(const std::vector<LoggedStep>& steps,
                                  std::optional<double> LoggedStep::*value) {
  std::vector<double> values;
  for (const LoggedStep& step : steps) {
    if (step.*value) values.push_back(*(step.*value));
  }
  if (values.empty()) return {};
  LogSpread spread;
  spread.count = values.size();
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double each : values) sum += each;
  spread.mean = sum / count;
  double squares = 0;
  for (const double each : values) {
    squares += (each - spread.mean) * (each - spread.mean);
  }
  if (values.size() > 1) spread.deviation = std::sqrt(squares / (count - 1));
  spread.least = *std::min_element(values.begin(), values.end());
  spread.most = *std::max_element(values.begin(), values.end());
  spread.median = Median(std::move(values));
  return spread;
}

}  // namespace

absl::StatusOr<TrainingLog> ReadTrainingLog(absl::string_view text,
                                            const std::string& source) {
  std::vector<LogLine> lines = LogLines(text);
  while (!lines.empty() &&
         absl::StripAsciiWhitespace(lines.back().text).empty()) {
    lines.pop_back();
  }
  LogReader reader(source);
  for (LogLine& line : lines) {
    const bool is_last = line.number == lines.back().number;
    PW_RETURN_IF_ERROR(reader.Take(std::move(line), is_last,
                                   is_last && !absl::EndsWith(text, "\n")));
  }
  return reader.Finish();
}

absl::StatusOr<LogSummary> SummarizeLog(const TrainingLog& log, int64_t skip) {
  LogSummary out;
  size_t first = 0;
  const auto all = SpreadOf(log.steps, &LoggedStep::seconds);
  if (!all) {
    constexpr char kTwo[] = "at least two lines are needed, with date and time";
    return InFile(log.source, 0,
                  WithValue(absl::InvalidArgumentError(
                                absl::StrCat("no step has a time: ", kTwo)),
                            "", kTwo));
  }
  if (skip >= 0) {
    first = std::min(static_cast<size_t>(skip), log.steps.size());
  } else {
    while (first < log.steps.size() &&
           log.steps[first].seconds.value_or(HUGE_VAL) >
               kSlowStep * all->median) {
      ++first;
    }
  }
  for (size_t at = 0; at < first; ++at) {
    out.warm_up.push_back(log.steps[at].step);
  }
  const std::vector<LoggedStep> left(
      log.steps.begin() + static_cast<std::ptrdiff_t>(first), log.steps.end());
  out.steps = left.size();
  out.step_s = SpreadOf(left, &LoggedStep::seconds);
  if (!out.step_s) {
    return InFile(
        log.source, 0,
        BadValue("--skip", absl::StrCat(first, " of ", log.steps.size()),
                 "fewer than the lines with a step, and a time in one behind "
                 "them"));
  }
  out.tokens_per_s = SpreadOf(left, &LoggedStep::tokens_per_s);
  out.tflops = SpreadOf(left, &LoggedStep::tflops);
  for (const LoggedStep& step : left) {
    if (step.seconds.value_or(0) > kSlowStep * out.step_s->median) {
      out.slow.push_back(step);
    }
  }
  return out;
}

}  // namespace pipewright
