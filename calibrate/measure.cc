#include "calibrate/measure.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Fewer tell nothing of the drift.
constexpr int kLeastRounds = 3;
// Longer visits warm up themselves.
constexpr double kShortVisit = 0.02;

struct Record {
  std::vector<Rounds> samples;  // by series
  double seconds = 0;
  bool warm_up = true;  // the very first visit is never kept
};

class Measurer {
 public:
  Measurer(const std::vector<Subject>& subjects, const MeasureOptions& options,
           const MeasureHooks& hooks, Profile start)
      : subjects_(subjects), options_(options), hooks_(hooks) {
    measured_.profile = std::move(start);
    records_.resize(subjects.size());
    for (size_t index = 0; index < subjects.size(); ++index) {
      records_[index].samples.resize(subjects[index].series.size());
      shares_ += subjects[index].share;
    }
  }

  absl::StatusOr<Measured> Run() {
    const double start = hooks_.now();
    const int rounds = std::max(options_.rounds, kLeastRounds);
    for (int round = 0; round < rounds && !measured_.interrupted; ++round) {
      if (round >= kLeastRounds && hooks_.now() - start >= options_.budget_s) {
        break;
      }
      PW_RETURN_IF_ERROR(Round(round, rounds));
      if (!measured_.interrupted) ++measured_.rounds;
      PutAll();
      if (hooks_.round_done != nullptr) {
        PW_RETURN_IF_ERROR(hooks_.round_done(measured_.profile));
      }
    }
    for (size_t index = 0; index < subjects_.size(); ++index) {
      for (size_t series = 0; series < subjects_[index].series.size();
           ++series) {
        if (Judge(index, series) != Verdict::kPrecise) {
          measured_.imprecise.push_back(subjects_[index].series[series].key);
        }
      }
    }
    return std::move(measured_);
  }

 private:
  absl::Status Round(int round, int rounds) {
    for (size_t step = 0; step < subjects_.size(); ++step) {
      const size_t index = round % 2 == 0 ? step : subjects_.size() - 1 - step;
      const Subject& subject = subjects_[index];
      if (hooks_.progress != nullptr) {
        hooks_.progress(round, rounds, subject.name);
      }
      if (hooks_.stop()) measured_.interrupted = true;
      if (measured_.interrupted) return absl::OkStatus();
      if (round >= kLeastRounds && IsDone(index)) continue;
      if (subject.begin_round != nullptr) {
        PW_RETURN_IF_ERROR(Prefix(subject.name, subject.begin_round(round)));
      }
      PW_RETURN_IF_ERROR(Prefix(
          subject.name, VisitSubject(subject, rounds, &records_[index])));
    }
    return absl::OkStatus();
  }

  absl::Status VisitSubject(const Subject& subject, int rounds,
                            Record* record) {
    const double start = hooks_.now();
    const double share = options_.budget_s * subject.share / shares_ / rounds;
    std::vector<double> samples(subject.series.size());
    PW_RETURN_IF_ERROR(subject.visit(&samples));
    const bool keep_first =
        !record->warm_up && hooks_.now() - start > kShortVisit;
    record->warm_up = false;
    for (Rounds& kept : record->samples) kept.emplace_back();
    int visits = 0;
    if (keep_first) Keep(samples, &visits, record);
    while (visits < options_.least_visits ||
           (visits < options_.most_visits && hooks_.now() - start < share)) {
      if (hooks_.stop()) {
        measured_.interrupted = true;
        break;
      }
      PW_RETURN_IF_ERROR(subject.visit(&samples));
      Keep(samples, &visits, record);
    }
    record->seconds += hooks_.now() - start;
    return absl::OkStatus();
  }

  static void Keep(const std::vector<double>& samples, int* visits,
                   Record* record) {
    for (size_t series = 0; series < samples.size(); ++series) {
      record->samples[series].back().push_back(samples[series]);
    }
    ++*visits;
  }

  Verdict Judge(size_t index, size_t series) const {
    return Decide(options_.rule, records_[index].samples[series],
                  records_[index].seconds);
  }
  bool IsDone(size_t index) const {
    for (size_t series = 0; series < subjects_[index].series.size(); ++series) {
      if (Judge(index, series) == Verdict::kGoOn) return false;
    }
    return true;
  }

  void PutAll() {
    for (size_t index = 0; index < subjects_.size(); ++index) {
      for (size_t series = 0; series < subjects_[index].series.size();
           ++series) {
        const Rounds& rounds = records_[index].samples[series];
        if (std::all_of(rounds.begin(), rounds.end(),
                        [](const auto& round) { return round.empty(); })) {
          continue;
        }
        subjects_[index].series[series].put(
            Summarize(rounds, options_.resolution), &measured_.profile);
      }
    }
  }

  const std::vector<Subject>& subjects_;
  const MeasureOptions& options_;
  const MeasureHooks& hooks_;
  Measured measured_;
  std::vector<Record> records_;
  double shares_ = 0;
};

}  // namespace

absl::StatusOr<Measured> MeasureAll(const std::vector<Subject>& subjects,
                                    const MeasureOptions& options,
                                    const MeasureHooks& hooks, Profile start) {
  for (const Subject& subject : subjects) {
    PW_CHECK(subject.visit != nullptr && !subject.series.empty());
  }
  return Measurer(subjects, options, hooks, std::move(start)).Run();
}

}  // namespace pipewright
