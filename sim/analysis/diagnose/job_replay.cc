#include "sim/analysis/diagnose/job_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/base/statistics.h"

namespace pipewright {
namespace {

// analyzer/wia.py, EPS.
constexpr double kClockError = 0.010;
constexpr double kNever = -std::numeric_limits<double>::infinity();

void RaiseTo(const double* values, size_t count, double* most) {
  for (size_t step = 0; step < count; ++step) {
    most[step] = std::max(most[step], values[step]);
  }
}

}  // namespace

JobReplay::JobReplay(const MeasuredJob& job, ComputeIdeal ideal)
    : job_(job),
      time_s_(job.start_s.size()),
      gap_s_(job.start_s.size()),
      end_s_(job.start_s.size()) {
  FindTimes();
  FindGaps();
  FindIdeals(ideal);
}

void JobReplay::FindTimes() {
  const size_t steps = job_.num_steps();
  std::vector<double> latest(steps);
  for (size_t group = 0; group + 1 < job_.group_begin.size(); ++group) {
    const size_t begin = job_.group_begin[group];
    const size_t end = job_.group_begin[group + 1];
    if (end == begin + 1) {
      std::copy_n(&job_.duration_s[begin * steps], steps,
                  &time_s_[begin * steps]);
      continue;
    }
    std::fill(latest.begin(), latest.end(), kNever);
    for (size_t op = begin; op < end; ++op) {
      RaiseTo(&job_.start_s[op * steps], steps, latest.data());
    }
    for (size_t op = begin; op < end; ++op) {
      for (size_t step = 0; step < steps; ++step) {
        const size_t at = op * steps + step;
        time_s_[at] = job_.start_s[at] + job_.duration_s[at] - latest[step];
        if (time_s_[at] > -kClockError) continue;
        time_s_[at] = 0;
        ++cut_times_;
      }
    }
  }
}

void JobReplay::FindGaps() {
  const size_t steps = job_.num_steps();
  for (size_t op = 0; op < job_.num_ops(); ++op) {
    for (size_t step = 0; step < steps; ++step) {
      double ready = kNever;
      for (int32_t each = job_.dependency_begin[op];
           each < job_.dependency_begin[op + 1]; ++each) {
        const size_t at = job_.dependencies[each] * steps + step;
        ready = std::max(ready, job_.start_s[at] + job_.duration_s[at]);
      }
      if (ready == kNever) ready = 0;
      double& gap = gap_s_[op * steps + step];
      gap = job_.start_s[op * steps + step] - ready;
      if (gap > -kClockError) continue;
      gap = 0;
      ++cut_gaps_;
    }
  }
}

void JobReplay::FindIdeals(ComputeIdeal ideal) {
  const size_t steps = job_.num_steps();
  std::vector<std::vector<double>> values(job_.kinds.size());
  for (size_t op = 0; op < job_.num_ops(); ++op) {
    std::vector<double>& all = values[job_.ops[op].kind];
    all.insert(all.end(), &time_s_[op * steps], &time_s_[op * steps] + steps);
  }
  for (size_t kind = 0; kind < values.size(); ++kind) {
    const bool median =
        job_.kinds[kind].communication || ideal == ComputeIdeal::kMedian;
    ideal_s_.push_back(median ? Median(std::move(values[kind]))
                              : MeanOf(values[kind]));
  }
}

// The same as Run, without the loops over steps: traces of our own have one.
double JobReplay::RunOneStep(const std::vector<uint8_t>* own) {
  double span = 0;
  for (size_t group = 0; group + 1 < job_.group_begin.size(); ++group) {
    const int32_t begin = job_.group_begin[group];
    const int32_t end = job_.group_begin[group + 1];
    double ready = kNever;
    for (int32_t op = begin; op < end; ++op) {
      const int32_t first = job_.dependency_begin[op];
      const int32_t last = job_.dependency_begin[op + 1];
      if (first == last) ready = std::max(ready, 0.0);
      for (int32_t each = first; each < last; ++each) {
        ready = std::max(ready, end_s_[job_.dependencies[each]]);
      }
    }
    for (int32_t op = begin; op < end; ++op) {
      const bool keeps = own == nullptr || (*own)[op] != 0;
      end_s_[op] = ready + (keeps ? time_s_[op] : ideal_s_[job_.ops[op].kind]);
      span = std::max(span, end_s_[op]);
    }
  }
  return span;
}

std::vector<double> JobReplay::Run(const JobTimes& times,
                                   std::vector<double>* start_s,
                                   std::vector<double>* end_s) {
  const size_t steps = job_.num_steps();
  if (steps == 1 && times.gaps == nullptr && start_s == nullptr &&
      end_s == nullptr) {
    return {RunOneStep(times.own)};
  }
  std::vector<double> span(steps, 0);
  std::vector<double> ready(steps);
  std::vector<double> own(steps);
  if (start_s != nullptr) start_s->resize(end_s_.size());
  for (size_t group = 0; group + 1 < job_.group_begin.size(); ++group) {
    const size_t begin = job_.group_begin[group];
    const size_t end = job_.group_begin[group + 1];
    std::fill(ready.begin(), ready.end(), kNever);
    for (size_t op = begin; op < end; ++op) {
      const int32_t first = job_.dependency_begin[op];
      const int32_t last = job_.dependency_begin[op + 1];
      std::fill(own.begin(), own.end(), first == last ? 0 : kNever);
      for (int32_t each = first; each < last; ++each) {
        RaiseTo(&end_s_[job_.dependencies[each] * steps], steps, own.data());
      }
      if (times.gaps != nullptr && (*times.gaps)[op] != 0) {
        const double* const gap = &gap_s_[op * steps];
        for (size_t step = 0; step < steps; ++step) own[step] += gap[step];
      }
      if (start_s != nullptr) {
        std::copy(own.begin(), own.end(), start_s->begin() + op * steps);
      }
      RaiseTo(own.data(), steps, ready.data());
    }
    // A receive that nothing holds up is there when the others are.
    for (size_t op = begin; start_s != nullptr && op < end; ++op) {
      if (job_.dependency_begin[op] != job_.dependency_begin[op + 1]) continue;
      std::copy(ready.begin(), ready.end(), start_s->begin() + op * steps);
    }
    for (size_t op = begin; op < end; ++op) {
      double* const ends = &end_s_[op * steps];
      if (times.own == nullptr || (*times.own)[op] != 0) {
        const double* const time = &time_s_[op * steps];
        for (size_t step = 0; step < steps; ++step) {
          ends[step] = ready[step] + time[step];
        }
      } else {
        const double time = ideal_s_[job_.ops[op].kind];
        for (size_t step = 0; step < steps; ++step) {
          ends[step] = ready[step] + time;
        }
      }
      RaiseTo(ends, steps, span.data());
    }
  }
  if (end_s != nullptr) *end_s = end_s_;
  return span;
}

std::vector<double> JobReplay::Recorded() const {
  const size_t steps = job_.num_steps();
  std::vector<double> first(steps, std::numeric_limits<double>::infinity());
  std::vector<double> last(steps, kNever);
  for (size_t at = 0; at < job_.start_s.size(); ++at) {
    const size_t step = at % steps;
    first[step] = std::min(first[step], job_.start_s[at]);
    last[step] = std::max(last[step], job_.start_s[at] + job_.duration_s[at]);
  }
  for (size_t step = 0; step < steps; ++step) last[step] -= first[step];
  return last;
}

double MeanOf(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

}  // namespace pipewright
