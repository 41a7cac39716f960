#include "sim/analysis/diagnose/read_table.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/diagnose/pipeline_rules.h"
#include "sim/analysis/diagnose/table_rows.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kNanosecondsOfSecond = 1e9;

class TableJob {
 public:
  TableJob(const std::deque<OpRow>& rows, const std::string& source)
      : rows_(rows), source_(source) {}

  absl::StatusOr<MeasuredJob> Make() {
    PW_RETURN_IF_ERROR(FindSizes());
    FindModel();
    PW_RETURN_IF_ERROR(FindStages());
    PW_RETURN_IF_ERROR(CheckCount());
    PW_ASSIGN_OR_RETURN(const PipelineRules rules,
                        RulesOfPipeline(model_, pp_, source_));
    MakeDraft(rules);
    PW_RETURN_IF_ERROR(Fill());
    std::vector<int32_t> circle;
    absl::StatusOr<MeasuredJob> job = SortJob(draft_, &circle);
    if (job.ok()) return job;
    const OpRow& row = model_[circle[0] % model_.size()];
    return WithValue(
        InFile(source_, row.line,
               InField("start_ns",
                       Reworded(job.status(),
                                absl::StrCat(job.status().message(),
                                             "; allowed: an order of each "
                                             "stage that can run")))),
        absl::StrCat(row.start_ns), "an order of each stage that can run");
  }

 private:
  using OpKey = std::tuple<int32_t, TableKind, int32_t>;  // stage, kind, seq

  absl::Status FindSizes() {
    absl::flat_hash_set<int32_t> replicas;
    for (const OpRow& row : rows_) {
      steps_.emplace(row.step, 0);
      replicas.insert(row.replica);
      dp_ = std::max(dp_, row.replica + 1);
      pp_ = std::max(pp_, row.stage + 1);
    }
    size_t next = 0;
    for (auto& [step, place] : steps_) place = next++;
    return AllThere(replicas, dp_, "dp_rank");
  }

  absl::Status AllThere(const absl::flat_hash_set<int32_t>& found, int count,
                        const char* column) const {
    for (int32_t number = 0; number < count; ++number) {
      if (found.contains(number)) continue;
      return BadValue(FieldPlace::InFile(source_, 0, column),
                      absl::StrCat(number, " missing"),
                      absl::StrCat("every number from 0 to ", count - 1));
    }
    return absl::OkStatus();
  }

  void FindModel() {
    const int64_t first = steps_.begin()->first;
    for (const OpRow& row : rows_) {
      if (row.step == first && row.replica == 0) model_.push_back(row);
    }
  }

  absl::Status FindStages() {
    absl::flat_hash_set<int32_t> stages;
    for (size_t op = 0; op < model_.size(); ++op) {
      const OpRow& row = model_[op];
      stages.insert(row.stage);
      if (!places_.try_emplace(KeyOf(row), static_cast<int32_t>(op)).second) {
        return Twice(row);
      }
    }
    return AllThere(stages, pp_, "stage");
  }

  // Before anything is made for each of them: numbers in a file may lie.
  absl::Status CheckCount() const {
    const auto wanted = static_cast<double>(model_.size()) * dp_ *
                        static_cast<double>(steps_.size());
    if (wanted > std::numeric_limits<int32_t>::max()) {
      return InFile(source_, 0,
                    absl::InvalidArgumentError(absl::StrCat(
                        "dp_rank 0 has ", model_.size(),
                        " operations in the first step, which with ", dp_,
                        " replicas and ", steps_.size(), " steps makes ",
                        wanted, "; allowed: at most 2147483647")));
    }
    if (wanted <= static_cast<double>(rows_.size())) return absl::OkStatus();
    std::map<std::pair<int64_t, int32_t>, size_t> counts;
    std::map<std::pair<int64_t, int32_t>, int64_t> lines;
    for (const OpRow& row : rows_) {
      ++counts[{row.step, row.replica}];
      lines[{row.step, row.replica}] = row.line;
    }
    for (const auto& [step, place] : steps_) {
      for (int32_t replica = 0; replica < dp_; ++replica) {
        const auto found = counts.find({step, replica});
        const size_t count = found == counts.end() ? 0 : found->second;
        if (count >= model_.size()) continue;
        return Short(step, replica, count,
                     count == 0 ? 0 : lines[{step, replica}]);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Short(int64_t step, int32_t replica, size_t count,
                     int64_t line) const {
    std::string missing;
    absl::flat_hash_set<OpKey> there;
    for (const OpRow& row : rows_) {
      if (row.step == step && row.replica == replica) there.insert(KeyOf(row));
    }
    for (const OpRow& row : model_) {
      if (there.contains(KeyOf(row))) continue;
      missing = absl::StrCat("; ", TableKindName(row.kind), " ", row.number,
                             " of stage ", row.stage, " is missing");
      break;
    }
    return BadValue(FieldPlace::InFile(source_, line, "optype"),
                    absl::StrCat(count, " operations of dp_rank ", replica,
                                 " in step ", step),
                    absl::StrCat(model_.size(), ", as dp_rank 0 has in step ",
                                 steps_.begin()->first, missing));
  }

  static OpKey KeyOf(const OpRow& row) {
    return {row.stage, row.kind, row.number};
  }

  absl::Status Twice(const OpRow& row) const {
    return BadValue(
        FieldPlace::InFile(source_, row.line, "seq"), absl::StrCat(row.number),
        absl::StrCat("a number of its own for each ", TableKindName(row.kind),
                     " of stage ", row.stage, ", dp_rank ", row.replica,
                     ", step ", row.step));
  }

  void MakeDraft(const PipelineRules& rules) {
    const auto count = static_cast<int32_t>(model_.size());
    draft_.source = source_;
    draft_.form = "table";
    draft_.pp = pp_;
    draft_.dp = dp_;
    for (int kind = 0; kind < kNumTableKinds; ++kind) {
      const auto each = static_cast<TableKind>(kind);
      draft_.kinds.push_back({std::string(TableKindName(each)),
                              std::string(TableKindFamily(each)),
                              IsCommunication(each)});
    }
    for (const auto& [step, place] : steps_) draft_.steps.push_back(step);
    for (int32_t replica = 0; replica < dp_; ++replica) {
      const int32_t base = replica * count;
      for (int32_t op = 0; op < count; ++op) {
        const OpRow& row = model_[op];
        draft_.ops.push_back(
            {static_cast<int32_t>(row.kind), row.stage, replica, row.number});
        std::vector<int32_t> before = rules.dependencies[op];
        for (int32_t& each : before) each += base;
        draft_.dependencies.push_back(std::move(before));
      }
    }
    for (const RuleGroup& group : rules.groups) {
      std::vector<int32_t> all;
      for (int32_t replica = 0; replica < dp_; ++replica) {
        for (const int32_t op : group.ops) all.push_back(op + replica * count);
        if (group.all_replicas) continue;
        draft_.groups.push_back(std::move(all));
        all.clear();
      }
      if (!all.empty()) draft_.groups.push_back(std::move(all));
    }
  }

  absl::Status Fill() {
    const size_t steps = steps_.size();
    std::vector<int64_t> zero(steps, std::numeric_limits<int64_t>::max());
    for (const OpRow& row : rows_) {
      int64_t& first = zero[steps_.at(row.step)];
      first = std::min(first, row.start_ns);
    }
    draft_.start_s.assign(draft_.ops.size() * steps, -1);
    draft_.duration_s.resize(draft_.start_s.size());
    for (const OpRow& row : rows_) {
      const auto place = places_.find(KeyOf(row));
      if (place == places_.end()) {
        return BadValue(
            FieldPlace::InFile(source_, row.line, "optype"),
            absl::StrCat(TableKindName(row.kind), " ", row.number, " of stage ",
                         row.stage),
            absl::StrCat("the operations that dp_rank 0 has in step ",
                         steps_.begin()->first));
      }
      const size_t op = row.replica * model_.size() + place->second;
      const size_t step = steps_.at(row.step);
      double& start = draft_.start_s[op * steps + step];
      if (start >= 0) return Twice(row);
      start =
          static_cast<double>(row.start_ns - zero[step]) / kNanosecondsOfSecond;
      draft_.duration_s[op * steps + step] =
          static_cast<double>(row.duration_ns) / kNanosecondsOfSecond;
    }
    // As many rows as places, none twice: every place has one.
    return absl::OkStatus();
  }

  const std::deque<OpRow>& rows_;
  const std::string& source_;
  std::map<int64_t, size_t> steps_;
  std::vector<OpRow> model_;  // dp_rank 0 in the first step
  absl::flat_hash_map<OpKey, int32_t> places_;
  int dp_ = 1;
  int pp_ = 1;
  JobDraft draft_;
};

}  // namespace

absl::StatusOr<MeasuredJob> ReadJobTable(std::istream& in,
                                         const std::string& source) {
  PW_ASSIGN_OR_RETURN(const std::deque<OpRow> rows, ReadTableRows(in, source));
  return TableJob(rows, source).Make();
}

}  // namespace pipewright
