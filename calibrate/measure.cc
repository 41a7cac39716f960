#include "calibrate/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Fewer rounds say nothing about the drift.
constexpr int kLeastRounds = 3;
// A lost visit takes as long as a hold: a few show that the next is lost too.
constexpr int kMostLost = 3;
// Longer visits warm up themselves.
constexpr double kShortVisit = 0.02;
// Whole visits are made where the budget has room for so many times the least
// that brief ones take: they take two to three times as long.
constexpr double kForWhole = 3;
// Visits may take a little longer than the first ones did.
constexpr double kMostOfBudget = 1.1;

struct Record {
  std::vector<Rounds> samples;  // by series
  std::vector<double> first;    // by a first visit that counts; empty: none
  double begin_s = 0;           // that the last begin of a round took
  double visit_s = 0;           // and a visit since then
  double seconds = 0;
  int made = 0;  // visits
  int lost = 0;
  std::string reason;  // why the last one was lost
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
    const double start = hooks_.now() - options_.spent_s;
    const double end = start + options_.budget_s;
    const int rounds = std::max(options_.rounds, kLeastRounds);
    PW_RETURN_IF_ERROR(FirstVisits(start, rounds));
    for (int round = 0; round < rounds && !measured_.interrupted; ++round) {
      const double left = end - hooks_.now();
      if (round >= kLeastRounds && left < LeastRound()) break;
      PW_RETURN_IF_ERROR(
          Round(round, rounds, left / (rounds - round) - Begins()));
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
      const Record& record = records_[index];
      if (record.lost == 0) continue;
      measured_.lost.push_back(absl::StrCat(
          subjects_[index].name, ": ", record.lost, " of ",
          record.lost + record.made, " timings were lost: ", record.reason));
    }
    return std::move(measured_);
  }

 private:
  // False once it is interrupted.
  bool GoOn(const Subject& subject, int round, int rounds) {
    if (hooks_.progress != nullptr) {
      hooks_.progress(round, rounds, subject.name);
    }
    if (hooks_.stop()) measured_.interrupted = true;
    return !measured_.interrupted;
  }

  absl::Status FirstVisits(double start, int rounds) {
    double counted = 0;
    for (size_t index = 0; index < subjects_.size(); ++index) {
      const Subject& subject = subjects_[index];
      Record& record = records_[index];
      if (!GoOn(subject, 0, rounds)) return absl::OkStatus();
      PW_RETURN_IF_ERROR(BeginRound(subject, 0, &record));
      const double visit = hooks_.now();
      std::vector<double> samples(subject.series.size());
      const absl::StatusOr<bool> made = Visit(subject, &record, &samples);
      PW_RETURN_IF_ERROR(Prefix(subject.name, made.status()));
      record.visit_s = hooks_.now() - visit;
      if (!*made || record.visit_s <= kShortVisit) continue;
      record.first = std::move(samples);
      counted += record.visit_s;
    }
    const double spent = hooks_.now() - start;
    const bool brief =
        hooks_.go_whole != nullptr &&
        options_.budget_s - spent < kForWhole * kLeastRounds * LeastRound();
    if (!brief) {
      for (Record& record : records_) record.first.clear();
      counted = 0;
      if (hooks_.go_whole != nullptr) hooks_.go_whole();
    }
    const double most =
        options_.refuses && options_.budget_s > 0
            ? kMostOfBudget * options_.budget_s
            : std::numeric_limits<double>::infinity();
    measured_.minimum_s = spent + kLeastRounds * LeastRound() - counted;
    if (measured_.minimum_s > most) {
      PW_RETURN_IF_ERROR(VisitAgain());
      if (measured_.interrupted) return absl::OkStatus();
      measured_.minimum_s = spent + kLeastRounds * LeastRound() - counted;
    }
    if (measured_.minimum_s > most) {
      const std::string given = FormatSeconds(options_.budget_s);
      const std::string allowed =
          absl::StrCat(std::ceil(measured_.minimum_s),
                       "s or more here, or 0s for as little as it takes");
      return InField(
          "--budget",
          WithValue(absl::ResourceExhaustedError(absl::StrCat(
                        given,
                        " is not enough: three rounds of everything take "
                        "about ",
                        FormatSeconds(measured_.minimum_s),
                        " (setting up and one visit of each thing took ",
                        FormatSeconds(spent), "); allowed: ", allowed)),
                    given, allowed));
    }
    if (hooks_.estimated != nullptr) hooks_.estimated(measured_.minimum_s);
    return absl::OkStatus();
  }

  // A first visit loads kernels and touches memory for the first time: before
  // a budget is refused for it, a second one says what a visit takes.
  absl::Status VisitAgain() {
    for (size_t index = 0; index < subjects_.size(); ++index) {
      const Subject& subject = subjects_[index];
      Record& record = records_[index];
      if (!GoOn(subject, 0, kLeastRounds)) return absl::OkStatus();
      const double visit = hooks_.now();
      std::vector<double> samples(subject.series.size());
      PW_RETURN_IF_ERROR(
          Prefix(subject.name, Visit(subject, &record, &samples).status()));
      record.visit_s = std::min(record.visit_s, hooks_.now() - visit);
    }
    return absl::OkStatus();
  }

  // What the least visits of a round take, by those of before.
  double LeastRound() const {
    double seconds = 0;
    for (const Record& record : records_) {
      const int visits =
          options_.least_visits + (record.visit_s > kShortVisit ? 0 : 1);
      seconds += record.begin_s + visits * record.visit_s;
    }
    return seconds;
  }
  double Begins() const {
    double seconds = 0;
    for (const Record& record : records_) seconds += record.begin_s;
    return seconds;
  }

  // False where the visit is lost. A clock that fails must not become a median:
  // what is not a number has no place in an order.
  static absl::StatusOr<bool> Visit(const Subject& subject, Record* record,
                                    std::vector<double>* samples) {
    const absl::Status status = subject.visit(samples);
    if (absl::IsDeadlineExceeded(status)) {
      ++record->lost;
      record->reason = std::string(status.message());
      if (record->made == 0 && record->lost >= kMostLost) return status;
      return false;
    }
    PW_RETURN_IF_ERROR(status);
    ++record->made;
    for (size_t series = 0; series < samples->size(); ++series) {
      if (std::isfinite((*samples)[series])) continue;
      return absl::InternalError(
          absl::StrCat(subject.series[series].key, ": measured as ",
                       (*samples)[series], ", which is no time"));
    }
    return true;
  }

  absl::Status BeginRound(const Subject& subject, int round, Record* record) {
    if (subject.begin_round == nullptr) return absl::OkStatus();
    const double start = hooks_.now();
    PW_RETURN_IF_ERROR(Prefix(subject.name, subject.begin_round(round)));
    record->begin_s = hooks_.now() - start;
    return absl::OkStatus();
  }

  absl::Status Round(int round, int rounds, double seconds) {
    for (size_t index = 0; index < subjects_.size(); ++index) {
      const Subject& subject = subjects_[index];
      if (!GoOn(subject, round, rounds)) return absl::OkStatus();
      const bool enough = round >= kLeastRounds && IsDone(index);
      if (round > 0 || records_[index].first.empty()) {
        PW_RETURN_IF_ERROR(BeginRound(subject, round, &records_[index]));
      }
      PW_RETURN_IF_ERROR(Prefix(
          subject.name,
          VisitSubject(subject, enough ? 0 : seconds * subject.share / shares_,
                       &records_[index])));
    }
    return absl::OkStatus();
  }

  absl::Status VisitSubject(const Subject& subject, double share,
                            Record* record) {
    const double start = hooks_.now();
    std::vector<double> samples(subject.series.size());
    for (Rounds& kept : record->samples) kept.emplace_back();
    int visits = 0;
    int lost = 0;
    bool made = false;
    int tries = 0;
    if (!record->first.empty()) {
      Keep(record->first, &visits, record);
      record->first.clear();
    } else {
      ++tries;
      PW_ASSIGN_OR_RETURN(made, Visit(subject, record, &samples));
      lost = made ? 0 : 1;
      if (made && hooks_.now() - start > kShortVisit) {
        Keep(samples, &visits, record);
      }
    }
    while (visits < options_.least_visits ||
           (visits < options_.most_visits && hooks_.now() - start < share)) {
      if (hooks_.stop()) {
        measured_.interrupted = true;
        break;
      }
      ++tries;
      PW_ASSIGN_OR_RETURN(made, Visit(subject, record, &samples));
      if (made) {
        Keep(samples, &visits, record);
      } else if (++lost >= kMostLost) {
        break;
      }
    }
    const double seconds = hooks_.now() - start;
    if (tries > 0) record->visit_s = seconds / tries;
    record->seconds += seconds;
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
