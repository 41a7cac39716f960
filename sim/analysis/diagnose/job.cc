#include "sim/analysis/diagnose/job.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kMostNamed = 8;

class JobSorter {
 public:
  explicit JobSorter(const JobDraft& draft)
      : draft_(draft), group_of_(draft.ops.size(), -1) {
    for (size_t group = 0; group < draft.groups.size(); ++group) {
      for (const int32_t op : draft.groups[group]) {
        group_of_[op] = static_cast<int32_t>(group);
      }
    }
  }

  // Groups, each behind those that it waits for; fewer than there are where
  // some wait for each other.
  std::vector<int32_t> Order() {
    const size_t count = draft_.groups.size();
    std::vector<std::vector<int32_t>> later(count);
    waits_.assign(count, 0);
    for (size_t op = 0; op < draft_.ops.size(); ++op) {
      for (const int32_t before : draft_.dependencies[op]) {
        later[group_of_[before]].push_back(group_of_[op]);
        ++waits_[group_of_[op]];
      }
    }
    std::vector<int32_t> order;
    order.reserve(count);
    for (size_t group = 0; group < count; ++group) {
      if (waits_[group] == 0) order.push_back(static_cast<int32_t>(group));
    }
    for (size_t next = 0; next < order.size(); ++next) {
      for (const int32_t group : later[order[next]]) {
        if (--waits_[group] == 0) order.push_back(group);
      }
    }
    return order;
  }

  // One operation of each group of a circle, each waiting for the next.
  std::vector<int32_t> Circle() const {
    std::vector<int32_t> path;
    std::vector<int64_t> place(draft_.groups.size(), -1);
    int32_t group = 0;
    while (waits_[group] == 0) ++group;
    while (place[group] < 0) {
      place[group] = static_cast<int64_t>(path.size());
      const auto [op, before] = Blocked(group);
      path.push_back(op);
      group = group_of_[before];
    }
    return {path.begin() + place[group], path.end()};
  }

 private:
  struct Wait {
    int32_t op;
    int32_t before;
  };
  // Every group that is left waits for one that is left.
  Wait Blocked(int32_t group) const {
    for (const int32_t op : draft_.groups[group]) {
      for (const int32_t before : draft_.dependencies[op]) {
        if (waits_[group_of_[before]] > 0) return {op, before};
      }
    }
    return {draft_.groups[group][0], draft_.groups[group][0]};
  }

  const JobDraft& draft_;
  std::vector<int32_t> group_of_;
  std::vector<int32_t> waits_;
};

}  // namespace

std::string JobOpName(const std::vector<JobKind>& kinds, const JobOp& op) {
  return absl::StrCat(kinds[op.kind].name, " ", op.number, " (stage ", op.stage,
                      ", replica ", op.replica, ")");
}

absl::StatusOr<MeasuredJob> SortJob(const JobDraft& draft,
                                    std::vector<int32_t>* circle) {
  JobSorter sorter(draft);
  const std::vector<int32_t> order = sorter.Order();
  if (order.size() < draft.groups.size()) {
    *circle = sorter.Circle();
    std::vector<std::string> names;
    for (const int32_t op : *circle) {
      if (names.size() < kMostNamed) {
        names.push_back(JobOpName(draft.kinds, draft.ops[op]));
      }
    }
    if (circle->size() > kMostNamed) names.push_back("...");
    return absl::InvalidArgumentError(
        absl::StrCat("operations wait for each other: ",
                     absl::StrJoin(names, " waits for ")));
  }
  MeasuredJob job;
  job.source = draft.source;
  job.form = draft.form;
  job.pp = draft.pp;
  job.dp = draft.dp;
  job.iterations = draft.iterations;
  job.place = draft.place;
  job.kinds = draft.kinds;
  job.steps = draft.steps;
  job.warnings = draft.warnings;
  const size_t count = draft.ops.size();
  const size_t steps = draft.steps.size();
  std::vector<int32_t> old_of;
  std::vector<int32_t> new_of(count);
  old_of.reserve(count);
  job.group_begin.push_back(0);
  for (const int32_t group : order) {
    for (const int32_t op : draft.groups[group]) {
      new_of[op] = static_cast<int32_t>(old_of.size());
      old_of.push_back(op);
    }
    job.group_begin.push_back(static_cast<int32_t>(old_of.size()));
  }
  job.ops.reserve(count);
  job.start_s.resize(count * steps);
  job.duration_s.resize(count * steps);
  job.dependency_begin.push_back(0);
  for (size_t op = 0; op < count; ++op) {
    const size_t old = old_of[op];
    job.ops.push_back(draft.ops[old]);
    std::set<int32_t> before;
    for (const int32_t each : draft.dependencies[old]) {
      before.insert(new_of[each]);
    }
    job.dependencies.insert(job.dependencies.end(), before.begin(),
                            before.end());
    job.dependency_begin.push_back(
        static_cast<int32_t>(job.dependencies.size()));
    std::copy_n(&draft.start_s[old * steps], steps, &job.start_s[op * steps]);
    std::copy_n(&draft.duration_s[old * steps], steps,
                &job.duration_s[op * steps]);
  }
  return job;
}

}  // namespace pipewright
