#include "sim/analysis/diagnose/pipeline_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Clocks of two processes differ by as much (dependency_model.py, EPS).
constexpr int64_t kClockErrorNs = 50'000;

constexpr int kForward = 0;
constexpr TableKind kComputes[] = {TableKind::kForwardCompute,
                                   TableKind::kBackwardCompute};
constexpr TableKind kSends[] = {TableKind::kForwardSend,
                                TableKind::kBackwardSend};
constexpr TableKind kReceives[] = {TableKind::kForwardReceive,
                                   TableKind::kBackwardReceive};

using Ops = std::vector<int32_t>;

class RuleMaker {
 public:
  RuleMaker(const std::vector<OpRow>& rows, int pp, const std::string& source)
      : rows_(rows), pp_(pp), source_(source), stages_(pp) {
    rules_.dependencies.resize(rows.size());
  }

  absl::StatusOr<PipelineRules> Make() {
    PW_RETURN_IF_ERROR(Sort());
    for (int stage = 0; stage < pp_; ++stage) {
      Chain(stages_[stage].computes);
      for (int direction = 0; direction < 2; ++direction) {
        PW_RETURN_IF_ERROR(Transfers(stage, direction, true));
        PW_RETURN_IF_ERROR(Transfers(stage, direction, false));
      }
      FirstBackward(stage);
      DataParallel(stage);
      AfterCompute(stage);
    }
    PW_RETURN_IF_ERROR(PairTransfers());
    PW_RETURN_IF_ERROR(PairEmbeddings());
    MakeGroups();
    return std::move(rules_);
  }

 private:
  struct StageOps {
    std::array<Ops, kNumTableKinds> by_number;
    Ops computes;  // by start
    Ops& of(TableKind kind) { return by_number[static_cast<int>(kind)]; }
  };

  int64_t End(int32_t op) const {
    return rows_[op].start_ns + rows_[op].duration_ns;
  }

  void Wait(int32_t op, int32_t before) {
    rules_.dependencies[op].push_back(before);
  }

  void Chain(const Ops& ops) {
    for (size_t next = 1; next < ops.size(); ++next) {
      Wait(ops[next], ops[next - 1]);
    }
  }

  void SortByStart(Ops* ops) const {
    std::sort(ops->begin(), ops->end(), [this](int32_t a, int32_t b) {
      const OpRow& one = rows_[a];
      const OpRow& other = rows_[b];
      // If starts are equal, by number, then by name.
      return std::make_tuple(one.start_ns, one.number,
                             TableKindName(one.kind)) <
             std::make_tuple(other.start_ns, other.number,
                             TableKindName(other.kind));
    });
  }

  absl::Status Sort() {
    for (size_t op = 0; op < rows_.size(); ++op) {
      StageOps& stage = stages_[rows_[op].stage];
      stage.of(rows_[op].kind).push_back(static_cast<int32_t>(op));
      for (const TableKind kind : kComputes) {
        if (rows_[op].kind != kind) continue;
        stage.computes.push_back(static_cast<int32_t>(op));
        vpp_ = std::max(vpp_, rows_[op].chunk + 1);
      }
      overlapped_ |= rows_[op].kind == TableKind::kSeparateAllReduce;
    }
    for (StageOps& stage : stages_) {
      SortByStart(&stage.computes);
      for (Ops& ops : stage.by_number) {
        std::sort(ops.begin(), ops.end(), [this](int32_t a, int32_t b) {
          return rows_[a].number < rows_[b].number;
        });
        for (size_t number = 0; number < ops.size(); ++number) {
          const OpRow& row = rows_[ops[number]];
          if (row.number == static_cast<int>(number)) continue;
          return BadValue(
              FieldPlace::InFile(source_, row.line, "seq"),
              absl::StrCat(row.number),
              absl::StrCat(number, ", the next ", TableKindName(row.kind),
                           " of stage ", row.stage));
        }
      }
    }
    return absl::OkStatus();
  }

  // Recorded, but of no pass: before the first or after the last one.
  bool IsOutside(int32_t op, const Ops& computes, bool sends) const {
    if (computes.empty()) return true;
    if (sends) {
      int64_t first_end = End(computes[0]);
      for (const int32_t each : computes) {
        first_end = std::min(first_end, End(each));
      }
      return End(op) < first_end - kClockErrorNs;
    }
    int64_t last_start = 0;
    for (const int32_t each : computes) {
      last_start = std::max(last_start, rows_[each].start_ns);
    }
    return rows_[op].start_ns > last_start + kClockErrorNs;
  }

  absl::Status Transfers(int stage, int direction, bool sends) {
    const TableKind kind = sends ? kSends[direction] : kReceives[direction];
    const Ops& all = stages_[stage].of(kind);
    const Ops& computes = stages_[stage].of(kComputes[direction]);
    Chain(all);
    Ops used;
    for (const int32_t op : all) {
      if (all.size() == computes.size() || !IsOutside(op, computes, sends)) {
        used.push_back(op);
      }
    }
    const bool downwards = (direction == kForward) == sends;
    const int step = downwards ? 1 : -1;
    const bool at_end = stage == (downwards ? pp_ - 1 : 0);
    // With chunks the very first receive may not have been recorded.
    const size_t skipped =
        vpp_ > 1 && !sends && used.size() + 1 == computes.size() ? 1 : 0;
    if (used.size() + skipped != computes.size() && !(at_end && used.empty())) {
      const int32_t shown = !used.empty() ? used.back() : computes.back();
      return BadValue(FieldPlace::InFile(source_, rows_[shown].line, "optype"),
                      absl::StrCat(used.size(), " ", TableKindName(kind),
                                   " on stage ", stage),
                      absl::StrCat(computes.size(), ", one for each ",
                                   TableKindName(kComputes[direction])));
    }
    int32_t paired = 0;
    for (size_t index = 0; index < used.size(); ++index) {
      const int32_t op = used[index];
      const size_t place = index + skipped;
      const int32_t compute = computes[place];
      if (sends) {
        Wait(op, compute);
      } else {
        Wait(compute, op);
        if (place > 0) Wait(op, computes[place - 1]);
      }
      const int model_chunk = rows_[compute].chunk * pp_ + stage + step;
      if (model_chunk < 0 || model_chunk >= vpp_ * pp_) continue;
      const int sender = sends ? stage : (stage + step + pp_) % pp_;
      pairs_[{direction, sender, paired++}][sends ? 0 : 1] = op;
    }
    return absl::OkStatus();
  }

  void FirstBackward(int stage) {
    StageOps& ops = stages_[stage];
    size_t first = 0;
    while (first < ops.computes.size() &&
           rows_[ops.computes[first]].kind != TableKind::kBackwardCompute) {
      ++first;
    }
    if (first < 2 || first == ops.computes.size()) return;
    for (const TableKind kind :
         {TableKind::kBackwardReceive, TableKind::kBackwardSend}) {
      if (!ops.of(kind).empty()) {
        Wait(ops.of(kind)[0], ops.computes[first - 2]);
      }
    }
  }

  void DataParallel(int stage) {
    StageOps& ops = stages_[stage];
    Ops chain = ops.of(TableKind::kParamsAllGather);
    const Ops& scatters = ops.of(TableKind::kGradsReduceScatter);
    chain.insert(chain.end(), scatters.begin(), scatters.end());
    SortByStart(&chain);
    Chain(chain);
    std::map<int, int32_t> gathers;  // the last of each chunk
    for (const int32_t op : ops.of(TableKind::kParamsAllGather)) {
      gathers[rows_[op].chunk] = op;
    }
    for (const auto& [chunk, gather] : gathers) {
      for (const int32_t op : ops.computes) {
        if (rows_[op].kind != TableKind::kForwardCompute ||
            rows_[op].chunk != chunk) {
          continue;
        }
        Wait(op, gather);
        break;
      }
    }
    if (!overlapped_) return;
    std::set<int> seen;
    for (const int32_t scatter : scatters) {
      if (!seen.insert(rows_[scatter].chunk).second) continue;
      int32_t last = -1;
      for (const int32_t op : ops.of(TableKind::kBackwardCompute)) {
        if (rows_[op].chunk == rows_[scatter].chunk &&
            (last < 0 || End(op) > End(last))) {
          last = op;
        }
      }
      if (last >= 0) Wait(scatter, last);
    }
  }

  void AfterCompute(int stage) {
    StageOps& ops = stages_[stage];
    Ops chain;
    if (!ops.computes.empty()) {
      chain.push_back(*std::max_element(
          ops.computes.begin(), ops.computes.end(),
          [this](int32_t a, int32_t b) { return End(a) < End(b); }));
    }
    const auto add = [&](TableKind kind) {
      chain.insert(chain.end(), ops.of(kind).begin(), ops.of(kind).end());
    };
    add(TableKind::kGc);
    const size_t before = chain.size();
    add(TableKind::kLayernormAllReduce);
    add(TableKind::kEmbeddingAllReduce);
    add(overlapped_ ? TableKind::kSeparateAllReduce
                    : TableKind::kGradsReduceScatter);
    add(TableKind::kClipGrad);
    add(TableKind::kOptimizer);
    Chain(chain);
    const Ops& scatters = ops.of(TableKind::kGradsReduceScatter);
    if (overlapped_ && !scatters.empty() && chain.size() > before) {
      Wait(chain[before], scatters.back());
    }
  }

  absl::Status PairTransfers() {
    for (const auto& [key, pair] : pairs_) {
      const auto& [direction, sender, number] = key;
      if (pair[0] >= 0 && pair[1] >= 0) {
        Join({pair[0], pair[1]}, false);
        continue;
      }
      const bool has_send = pair[0] >= 0;
      const OpRow& row = rows_[has_send ? pair[0] : pair[1]];
      return BadValue(FieldPlace::InFile(source_, row.line, "optype"),
                      absl::StrCat(TableKindName(row.kind), " ", row.number,
                                   " of stage ", row.stage, " alone"),
                      absl::StrCat("with its ",
                                   TableKindName(has_send ? kReceives[direction]
                                                          : kSends[direction]),
                                   " on the neighbour"));
    }
    return absl::OkStatus();
  }

  absl::Status PairEmbeddings() {
    const Ops& first = stages_[0].of(TableKind::kEmbeddingAllReduce);
    const Ops& last = stages_[pp_ - 1].of(TableKind::kEmbeddingAllReduce);
    if (pp_ == 1) return absl::OkStatus();
    if (first.size() != last.size()) {
      const bool more = first.size() > last.size();
      const OpRow& row = rows_[more ? first.back() : last.back()];
      return BadValue(FieldPlace::InFile(source_, row.line, "optype"),
                      absl::StrCat(TableKindName(row.kind), " ", row.number,
                                   " of stage ", row.stage, " alone"),
                      "as many on the first as on the last stage");
    }
    for (size_t index = 0; index < first.size(); ++index) {
      Join({first[index], last[index]}, false);
    }
    return absl::OkStatus();
  }

  void Join(Ops ops, bool all_replicas) {
    for (const int32_t op : ops) grouped_.insert(op);
    rules_.groups.push_back({std::move(ops), all_replicas});
  }

  void MakeGroups() {
    std::map<int32_t, Ops> clips;
    for (StageOps& stage : stages_) {
      for (const int32_t op : stage.of(TableKind::kClipGrad)) {
        clips[rows_[op].number].push_back(op);
      }
    }
    for (auto& [number, ops] : clips) Join(std::move(ops), true);
    for (size_t index = 0; index < rows_.size(); ++index) {
      const auto op = static_cast<int32_t>(index);
      if (grouped_.count(op) > 0) continue;
      const TableKind kind = rows_[op].kind;
      Join({op}, kind == TableKind::kParamsAllGather ||
                     kind == TableKind::kGradsReduceScatter ||
                     kind == TableKind::kSeparateAllReduce);
    }
  }

  const std::vector<OpRow>& rows_;
  const int pp_;
  const std::string& source_;
  int vpp_ = 1;
  bool overlapped_ = false;
  std::vector<StageOps> stages_;
  // Direction, sender's stage, number -> send, receive.
  struct Pair : std::array<int32_t, 2> {
    Pair() : std::array<int32_t, 2>{-1, -1} {}
  };
  std::map<std::tuple<int, int, int32_t>, Pair> pairs_;
  std::set<int32_t> grouped_;
  PipelineRules rules_;
};

}  // namespace

absl::StatusOr<PipelineRules> RulesOfPipeline(const std::vector<OpRow>& rows,
                                              int pp,
                                              const std::string& source) {
  return RuleMaker(rows, pp, source).Make();
}

}  // namespace pipewright
