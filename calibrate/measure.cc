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

struct Record {
  std::vector<Rounds> samples;  // by series
  double seconds = 0;
  bool done = false;  // nothing more to sample
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
      PW_RETURN_IF_ERROR(Prefix(
          subject.name,
          VisitSubject(subject, round, rounds, &records_[index], index)));
      if (measured_.interrupted) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status VisitSubject(const Subject& subject, int round, int rounds,
                            Record* record, size_t index) {
    if (hooks_.stop()) {
      measured_.interrupted = true;
      return absl::OkStatus();
    }
    const double start = hooks_.now();
    const double share = options_.budget_s * subject.share / shares_ / rounds;
    if (subject.begin_round != nullptr) {
      PW_RETURN_IF_ERROR(subject.begin_round(round));
    }
    std::vector<double> samples(subject.series.size());
    if (round == 0) PW_RETURN_IF_ERROR(subject.visit(&samples));
    for (Rounds& kept : record->samples) kept.emplace_back();
    int visits = 0;
    while (visits < options_.least_visits ||
           (!record->done && hooks_.now() - start < share)) {
      if (hooks_.stop()) {
        measured_.interrupted = true;
        break;
      }
      PW_RETURN_IF_ERROR(subject.visit(&samples));
      for (size_t series = 0; series < samples.size(); ++series) {
        record->samples[series].back().push_back(samples[series]);
      }
      ++visits;
      // A verdict sorts all samples: not after every visit.
      if ((visits & (visits - 1)) == 0) UpdateDone(index);
    }
    record->seconds += hooks_.now() - start;
    UpdateDone(index);
    return absl::OkStatus();
  }

  Verdict Judge(size_t index, size_t series) const {
    return Decide(options_.rule, records_[index].samples[series],
                  records_[index].seconds);
  }
  void UpdateDone(size_t index) {
    for (size_t series = 0; series < subjects_[index].series.size(); ++series) {
      if (Judge(index, series) == Verdict::kGoOn) {
        records_[index].done = false;
        return;
      }
    }
    records_[index].done = true;
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
