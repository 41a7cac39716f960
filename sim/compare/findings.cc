#include "sim/compare/findings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/compare/factors.h"

namespace pipewright {
namespace {

constexpr size_t kMostFindings = 20;
// A single operation has to be this many standard deviations from the others,
// for the same reason as kErrorsAway.
constexpr double kDeviationsAway = 8;
// A single operation has to matter too: this part of the step.
constexpr double kSmallestShare = 0.005;
// Shorter than this is rounding of the trace's nanoseconds.
constexpr double kShortest_s = 20e-9;

// One family of operations: what it is called, which parts of an operation
// are its time, and how an operation is sorted into rows and columns.
struct Family {
  const char* what;
  Part part;
  const char* all;  // "all passes"
  std::function<bool(const PairedOp&)> has;
  std::function<std::string(const PairedOp&)> row;
  std::function<std::pair<int, int>(const PairedOp&)> column;  // rank, peer
};

class Finder {
 public:
  Finder(const PairedRun& run, const PairReplay& replay, int iteration)
      : run_(run), replay_(replay), iteration_(iteration) {
    step_s_ = replay.StepSeconds(replay.Nothing(), iteration);
  }

  void Search(const Family& family) {
    std::vector<Cell> cells = Collect(family);
    const std::vector<std::pair<Candidate, double>> named =
        Explain(kMostFindings, &cells);
    for (const auto& [candidate, log] : named) {
      NameGroup(family, candidate, log, cells);
    }
    NameSingles(family, cells, named);
  }

  // Gaps on the compute stream: those that come again and again on a rank, as
  // launches do, and single ones.
  void SearchGaps(const Family& family) {
    std::vector<Cell> cells = Collect(family);
    for (Cell& cell : cells) {
      std::vector<double> more;
      std::vector<size_t> ops;
      for (const size_t op : cell.ops) {
        if (run_.ops[op].op.iteration != iteration_) continue;
        more.push_back(Seconds(family, kMeasured, op) -
                       Seconds(family, kSimulated, op));
        ops.push_back(op);
      }
      const double usual_s = Median(more);
      if (std::abs(usual_s) * static_cast<double>(more.size()) <
              kSmallestFactor * step_s_ ||
          std::abs(usual_s) * std::sqrt(static_cast<double>(more.size())) <
              kErrorsAway * Deviation(more)) {
        continue;
      }
      Finding finding;
      finding.what = family.what;
      finding.rank = cell.column.first;
      finding.late_s = usual_s;
      finding.effect_s = Effect(family, ops, iteration_);
      finding.text = absl::StrFormat(
          "rank %d: %s %s before every operation (%s)", finding.rank,
          FormatSeconds(std::abs(usual_s)), usual_s > 0 ? "more" : "less",
          Signed(finding.effect_s));
      findings_.push_back(std::move(finding));
    }
    NameSingles(family, cells, {});
  }

  std::vector<Finding> Finish() {
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) {
                       return std::abs(a.effect_s) > std::abs(b.effect_s);
                     });
    if (findings_.size() > kMostFindings) findings_.resize(kMostFindings);
    return std::move(findings_);
  }

 private:
  double Seconds(const Family& family, Side side, size_t op) const {
    double seconds = 0;
    if ((family.part & kSeconds) != 0) seconds += run_.ops[op].seconds(side);
    if ((family.part & kGap) != 0) seconds += replay_.gap_s(side, op);
    return seconds;
  }

  std::vector<Cell> Collect(const Family& family) const {
    std::map<std::pair<std::string, Column>, Cell> cells;
    for (size_t op = 0; op < run_.ops.size(); ++op) {
      const PairedOp& paired = run_.ops[op];
      if (!family.has(paired)) continue;
      if (!paired.present[kSimulated] || !paired.present[kMeasured]) continue;
      Cell& cell = cells[{family.row(paired), family.column(paired)}];
      cell.row = family.row(paired);
      cell.column = family.column(paired);
      cell.ops.push_back(op);
      const double simulated_s = Seconds(family, kSimulated, op);
      const double measured_s = Seconds(family, kMeasured, op);
      cell.weight += simulated_s;
      if (simulated_s > kShortest_s && measured_s > kShortest_s) {
        cell.logs.push_back(std::log(measured_s / simulated_s));
      }
    }
    std::vector<Cell> list;
    for (auto& [key, cell] : cells) {
      cell.log = Median(cell.logs);
      cell.error = ErrorOfMedian(cell.logs);
      list.push_back(std::move(cell));
    }
    // One value tells nothing of noise: the others do.
    std::vector<double> errors;
    for (const Cell& cell : list) errors.push_back(cell.error);
    const double usual = Median(errors);
    for (Cell& cell : list) cell.error = std::max(cell.error, usual);
    return list;
  }

  double Effect(const Family& family, const std::vector<size_t>& ops,
                int iteration) const {
    PairReplay::Choice choice = replay_.Nothing();
    for (const size_t op : ops) choice[op] = static_cast<uint8_t>(family.part);
    const PairReplay::Choice nothing = replay_.Nothing();
    return replay_.StepSeconds(choice, iteration) -
           replay_.StepSeconds(nothing, iteration);
  }

  static std::string Place(const Column& column) {
    if (column.second >= 0) {
      return absl::StrCat("rank ", column.first, " -> ", column.second);
    }
    return absl::StrCat("on rank ", column.first);
  }

  void NameGroup(const Family& family, const Candidate& candidate, double log,
                 const std::vector<Cell>& cells) {
    Finding finding;
    finding.what = family.what;
    finding.factor = std::exp(log);
    std::vector<size_t> ops;
    for (const Cell& cell : cells) {
      if (!candidate.Has(cell)) continue;
      ops.insert(ops.end(), cell.ops.begin(), cell.ops.end());
    }
    finding.effect_s = Effect(family, ops, iteration_);
    if (candidate.row) finding.label = *candidate.row;
    if (candidate.column) {
      finding.rank = candidate.column->first;
      finding.peer = candidate.column->second;
    }
    const std::string what = candidate.row ? *candidate.row : family.all;
    std::string subject;
    const char* separator = ": ";
    if (candidate.row && candidate.column) {
      subject = absl::StrCat(what, " ", Place(*candidate.column));
    } else if (candidate.column && finding.peer < 0) {
      subject = absl::StrCat("rank ", finding.rank, ": ", what);
      separator = " ";
    } else if (candidate.column) {
      subject = absl::StrCat(what, " ", Place(*candidate.column));
    } else {
      subject = absl::StrCat(what, " on all ranks");
    }
    finding.text =
        absl::StrFormat("%s%s%.2f times as long (%s)", subject, separator,
                        finding.factor, Signed(finding.effect_s));
    findings_.push_back(std::move(finding));
  }

  static std::string Signed(double seconds) {
    return absl::StrCat(seconds < 0 ? "-" : "+",
                        FormatSeconds(std::abs(seconds)));
  }

  void NameSingles(const Family& family, const std::vector<Cell>& cells,
                   const std::vector<std::pair<Candidate, double>>& named) {
    struct Rest {
      size_t op;
      double late_s;
    };
    std::vector<Rest> rests;
    std::vector<double> relative;
    std::vector<double> absolute;  // of those that should take no time
    for (const Cell& cell : cells) {
      double log = 0;
      for (const auto& [candidate, value] : named) {
        if (candidate.Has(cell)) log += value;
      }
      for (const size_t op : cell.ops) {
        const double expected_s =
            Seconds(family, kSimulated, op) * std::exp(log);
        const double late_s = Seconds(family, kMeasured, op) - expected_s;
        rests.push_back({op, late_s});
        if (expected_s > kShortest_s) {
          relative.push_back(late_s / expected_s);
        } else {
          absolute.push_back(late_s);
        }
      }
    }
    const double deviation = Deviation(relative);
    const double deviation_s = Deviation(absolute) + kShortest_s;
    for (const Rest& rest : rests) {
      const PairedOp& paired = run_.ops[rest.op];
      const double expected_s =
          Seconds(family, kMeasured, rest.op) - rest.late_s;
      if (std::abs(rest.late_s) < kSmallestShare * step_s_ ||
          std::abs(rest.late_s) <
              kDeviationsAway *
                  (deviation * std::max(0.0, expected_s) + deviation_s)) {
        continue;
      }
      Finding finding;
      finding.what = family.what;
      finding.label = paired.op.stage >= 0
                          ? PassLabel(paired.op.pass)
                          : std::string(OpKindName(paired.op.kind));
      finding.rank = paired.op.rank;
      finding.peer = paired.peer;
      finding.iteration = paired.op.iteration;
      finding.late_s = rest.late_s;
      finding.effect_s = Effect(family, {rest.op}, finding.iteration);
      finding.text =
          absl::StrCat(OpLabel(paired), " in iteration ", finding.iteration,
                       ": ", FormatSeconds(std::abs(rest.late_s)),
                       paired.op.kind == OpKind::kSend || family.part == kGap
                           ? (rest.late_s > 0 ? " late" : " early")
                           : (rest.late_s > 0 ? " longer" : " shorter"),
                       " (", Signed(finding.effect_s), ")");
      findings_.push_back(std::move(finding));
    }
  }

  const PairedRun& run_;
  const PairReplay& replay_;
  const int iteration_;
  double step_s_ = 0;
  std::vector<Finding> findings_;
};

std::string KindOf(const PairedOp& paired) {
  return std::string(OpKindName(paired.op.kind));
}
std::string PassKindOf(const PairedOp& paired) {
  return std::string(PassKindName(paired.op.pass.kind()));
}
Column RankOf(const PairedOp& paired) { return {paired.op.rank, -1}; }

}  // namespace

std::vector<Finding> FindCauses(const PairedRun& run, const PairReplay& replay,
                                int iteration) {
  Finder finder(run, replay, iteration);
  const auto is = [](std::initializer_list<OpKind> kinds) {
    return [list = std::vector<OpKind>(kinds)](const PairedOp& paired) {
      return std::find(list.begin(), list.end(), paired.op.kind) != list.end();
    };
  };
  finder.Search({"kernel", kSeconds, "all passes", is({OpKind::kPass}),
                 PassKindOf, RankOf});
  finder.Search({"message", kBoth, "messages", is({OpKind::kSend}),
                 [](const PairedOp&) { return std::string("messages"); },
                 [](const PairedOp& paired) {
                   return Column(paired.op.rank, paired.peer);
                 }});
  finder.Search({"copy", kSeconds, "copies",
                 is({OpKind::kOffload, OpKind::kLoad}), PassKindOf, RankOf});
  // All members of a collective have its times: one of them tells.
  finder.Search({"synchronisation", kSeconds, "collectives",
                 [](const PairedOp& paired) {
                   return IsCollective(paired.op.kind) ||
                          IsOneSided(paired.op.kind);
                 },
                 KindOf, [](const PairedOp&) { return Column(-1, -1); }});
  finder.Search({"optimizer", kSeconds, "optimizer steps",
                 is({OpKind::kOptimizer, OpKind::kValidate, OpKind::kRollback,
                     OpKind::kPredict, OpKind::kCpu}),
                 KindOf, RankOf});
  finder.SearchGaps({"gap", kGap, "gaps",
                     [](const PairedOp& paired) {
                       return paired.op.stream == Stream::kCompute;
                     },
                     [](const PairedOp&) { return std::string("gap"); },
                     RankOf});
  return finder.Finish();
}

}  // namespace pipewright
