#include "sim/analysis/compare/findings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/compare/factors.h"
#include "sim/base/quantity.h"
#include "sim/base/statistics.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

constexpr size_t kMostFindings = 20;
// So many are replayed, those that change the most seconds.
constexpr size_t kMostReplayed = 100;
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
  std::function<Column(const PairedOp&)> column;  // rank, peer
};

// A finding with what it does to the simulated run: lengths times a factor,
// and seconds more.
struct Cause {
  Finding finding;
  std::vector<size_t> ops;
  Part part = kSeconds;
  double changed_s = 0;  // all its operations together
};

std::string Signed(double seconds) {
  return absl::StrCat(seconds < 0 ? "-" : "+",
                      FormatSeconds(std::abs(seconds)));
}

class Finder {
 public:
  Finder(const PairedRun& run, const PairReplay& replay, int iteration)
      : run_(run),
        replay_(replay),
        iteration_(iteration),
        simulated_(replay.TimesOf(replay.Nothing())),
        ends_(replay.IterationEnds(simulated_)) {
    step_s_ = StepOf(ends_, iteration);
  }

  // With `in_seconds` all differences are named in seconds, as for gaps that
  // come again and again on a rank. Otherwise only those of operations that
  // should take no time.
  void Search(const Family& family, bool in_seconds) {
    const std::vector<Cell> cells = Collect(family);
    if (!in_seconds) {
      for (const Factor& factor : Explain(cells)) {
        NameFactor(family, factor, cells);
      }
    }
    std::vector<double> usual_s(cells.size());
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      if (in_seconds || cells[cell].logs.empty()) {
        usual_s[cell] = NameSeconds(family, cells[cell], cells);
      }
    }
    NameSingles(family, cells, usual_s);
  }

  Findings Finish() {
    Findings out;
    std::stable_sort(causes_.begin(), causes_.end(),
                     [](const Cause& a, const Cause& b) {
                       return std::abs(a.changed_s) > std::abs(b.changed_s);
                     });
    out.left_out = causes_.size() - std::min(causes_.size(), kMostFindings);
    if (causes_.size() > kMostReplayed) causes_.resize(kMostReplayed);
    for (Cause& cause : causes_) {
      Finding& finding = cause.finding;
      PairReplay::Times times = simulated_;
      Apply(cause, &times);
      finding.effect_s =
          Effect(times, finding.iteration < 0 ? iteration_ : finding.iteration);
      absl::StrAppend(&finding.text, " (", Signed(finding.effect_s), ")");
    }
    std::stable_sort(
        causes_.begin(), causes_.end(), [](const Cause& a, const Cause& b) {
          return std::abs(a.finding.effect_s) > std::abs(b.finding.effect_s);
        });
    if (causes_.size() > kMostFindings) causes_.resize(kMostFindings);
    PairReplay::Times together = simulated_;
    // Factors first: seconds are on top of what they make of a length.
    for (const bool factors : {true, false}) {
      for (const Cause& cause : causes_) {
        if ((cause.finding.late_s == 0) == factors) Apply(cause, &together);
      }
    }
    out.effect_s = Effect(together, iteration_);
    for (Cause& cause : causes_) out.list.push_back(std::move(cause.finding));
    return out;
  }

 private:
  static double StepOf(const std::vector<double>& ends, int iteration) {
    return iteration == 0 ? ends[0] : ends[iteration] - ends[iteration - 1];
  }

  double Effect(const PairReplay::Times& times, int iteration) const {
    return replay_.StepSeconds(times, iteration) - StepOf(ends_, iteration);
  }

  static void Apply(const Cause& cause, PairReplay::Times* times) {
    const Finding& finding = cause.finding;
    for (const size_t op : cause.ops) {
      if ((cause.part & kSeconds) != 0) {
        times->seconds[op] *= finding.factor;
      }
      if ((cause.part & kGap) != 0) times->gap_s[op] *= finding.factor;
      double& more =
          (cause.part & kSeconds) != 0 ? times->seconds[op] : times->gap_s[op];
      more = std::max(0.0, more + finding.late_s);
    }
  }

  double Seconds(const Family& family, Side side, size_t op) const {
    double seconds = 0;
    if ((family.part & kSeconds) != 0) seconds += run_.ops[op].seconds(side);
    if ((family.part & kGap) != 0) seconds += replay_.gap_s(side, op);
    return seconds;
  }
  double More(const Family& family, size_t op) const {
    return Seconds(family, kMeasured, op) - Seconds(family, kSimulated, op);
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

  // Says in the finding which cells it is of; what they are called.
  static std::string Describe(const Family& family,
                              const std::vector<std::string>& rows,
                              const std::vector<Column>& columns,
                              const std::vector<Cell>& cells,
                              Finding* finding) {
    CellNames names = NameCells(family.all, rows, columns, cells);
    finding->label = absl::StrJoin(names.kinds, ", ");
    if (names.places.size() == 1) {
      std::tie(finding->rank, finding->peer) = names.places[0];
    }
    finding->kinds = std::move(names.kinds);
    finding->places = std::move(names.places);
    return names.text;
  }

  void NameFactor(const Family& family, const Factor& factor,
                  const std::vector<Cell>& cells) {
    Cause cause = {.part = family.part};
    Finding& finding = cause.finding;
    finding.what = family.what;
    finding.factor = std::exp(factor.log);
    for (const Cell& cell : cells) {
      if (!factor.Has(cell)) continue;
      cause.ops.insert(cause.ops.end(), cell.ops.begin(), cell.ops.end());
      cause.changed_s += cell.weight * (finding.factor - 1);
    }
    const std::string subject =
        Describe(family, factor.rows, factor.columns, cells, &finding);
    finding.text = absl::StrFormat("%s%s %.2f times as long", subject,
                                   absl::StrContains(subject, ": ") ? "" : ":",
                                   finding.factor);
    causes_.push_back(std::move(cause));
  }

  // How much longer each operation of the cell takes, where that matters; else
  // 0.
  double NameSeconds(const Family& family, const Cell& cell,
                     const std::vector<Cell>& cells) {
    std::vector<double> more;
    for (const size_t op : cell.ops) {
      if (run_.ops[op].op.iteration == iteration_) {
        more.push_back(More(family, op));
      }
    }
    const double usual_s = Median(more);
    const auto count = static_cast<double>(more.size());
    if (std::abs(usual_s) * count < kSmallestFactor * step_s_ ||
        std::abs(usual_s) * std::sqrt(count) < kErrorsAway * Deviation(more)) {
      return 0;
    }
    Cause cause = {.ops = cell.ops,
                   .part = family.part,
                   .changed_s = usual_s * static_cast<double>(cell.ops.size())};
    Finding& finding = cause.finding;
    finding.what = family.what;
    finding.late_s = usual_s;
    const std::string subject =
        Describe(family, {cell.row}, {cell.column}, cells, &finding);
    const std::string text = absl::StrCat(FormatSeconds(std::abs(usual_s)),
                                          usual_s > 0 ? " more" : " less");
    finding.text = family.part == kGap
                       ? absl::StrCat("rank ", finding.rank, ": ", text,
                                      " before every operation")
                       : absl::StrCat(subject, ": ", text, " each");
    causes_.push_back(std::move(cause));
    return usual_s;
  }

  // Operations that differ from the others of their cell.
  void NameSingles(const Family& family, const std::vector<Cell>& cells,
                   const std::vector<double>& usual_s) {
    struct Rest {
      size_t op;
      double late_s;
    };
    std::vector<Rest> rests;
    std::vector<double> relative;
    std::vector<double> absolute;  // for those that should take no time
    for (size_t index = 0; index < cells.size(); ++index) {
      const Cell& cell = cells[index];
      for (const size_t op : cell.ops) {
        const double expected_s =
            Seconds(family, kSimulated, op) * std::exp(cell.log) +
            usual_s[index];
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
      const double expected_s =
          Seconds(family, kMeasured, rest.op) - rest.late_s;
      if (std::abs(rest.late_s) < kSmallestShare * step_s_ ||
          std::abs(rest.late_s) <
              kDeviationsAway *
                  (deviation * std::max(0.0, expected_s) + deviation_s)) {
        continue;
      }
      NameSingle(family, rest.op, rest.late_s);
    }
  }

  void NameSingle(const Family& family, size_t op, double late_s) {
    const PairedOp& paired = run_.ops[op];
    Cause cause = {.ops = {op}, .part = family.part, .changed_s = late_s};
    Finding& finding = cause.finding;
    finding.what = family.what;
    finding.label = paired.op.stage >= 0
                        ? PassLabel(paired.op.pass)
                        : std::string(OpKindName(paired.op.kind));
    finding.rank = paired.op.rank;
    finding.peer = paired.peer;
    finding.iteration = paired.op.iteration;
    finding.late_s = late_s;
    const bool comes = paired.op.kind == OpKind::kSend || family.part == kGap;
    finding.text =
        absl::StrCat(OpLabel(paired), " in iteration ", finding.iteration, ": ",
                     FormatSeconds(std::abs(late_s)),
                     comes ? (late_s > 0 ? " late" : " early")
                           : (late_s > 0 ? " longer" : " shorter"));
    causes_.push_back(std::move(cause));
  }

  const PairedRun& run_;
  const PairReplay& replay_;
  const int iteration_;
  const PairReplay::Times simulated_;
  const std::vector<double> ends_;  // ends of the simulated run
  double step_s_ = 0;
  std::vector<Cause> causes_;
};

std::string KindOf(const PairedOp& paired) {
  return std::string(OpKindName(paired.op.kind));
}
std::string PassKindOf(const PairedOp& paired) {
  return std::string(PassKindName(paired.op.pass.kind()));
}
Column RankOf(const PairedOp& paired) { return {paired.op.rank, -1}; }

}  // namespace

Findings FindCauses(const PairedRun& run, const PairReplay& replay,
                    int iteration) {
  Finder finder(run, replay, iteration);
  const auto is = [](std::initializer_list<OpKind> kinds) {
    return [list = std::vector<OpKind>(kinds)](const PairedOp& paired) {
      return std::find(list.begin(), list.end(), paired.op.kind) != list.end();
    };
  };
  const std::vector<Family> families = {
      {"kernel", kSeconds, "all passes", is({OpKind::kPass}), PassKindOf,
       RankOf},
      {"message", kBoth, "messages", is({OpKind::kSend}),
       [](const PairedOp&) { return std::string("messages"); },
       [](const PairedOp& paired) {
         return Column(paired.op.rank, paired.peer);
       }},
      {"copy", kSeconds, "copies", is({OpKind::kOffload, OpKind::kLoad}),
       PassKindOf, RankOf},
      // All members of a collective have its times: one of them tells.
      {"synchronisation", kSeconds, "collectives",
       [](const PairedOp& paired) {
         return IsCollective(paired.op.kind) || IsOneSided(paired.op.kind);
       },
       KindOf, [](const PairedOp&) { return Column(-1, -1); }},
      {"optimizer", kSeconds, "optimizer steps",
       is({OpKind::kOptimizer, OpKind::kValidate, OpKind::kRollback,
           OpKind::kPredict, OpKind::kCpu, OpKind::kHostAdam, OpKind::kHostCast,
           OpKind::kHostUndo, OpKind::kFlush, OpKind::kCast, OpKind::kCopyOut,
           OpKind::kCopyIn}),
       KindOf, RankOf}};
  for (const Family& family : families) finder.Search(family, false);
  finder.Search({"gap", kGap, "gaps",
                 [](const PairedOp& paired) {
                   return paired.op.stream == Stream::kCompute;
                 },
                 [](const PairedOp&) { return std::string("gap"); }, RankOf},
                true);
  return finder.Finish();
}

}  // namespace pipewright
