#include "sim/cli/figure_files.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/config/run_config.h"
#include "sim/report/format.h"
#include "sim/report/limits.h"
#include "sim/report/memory_report.h"

namespace pipewright {
namespace {

constexpr char kMemory[] = "peak_memory_bytes.max";
constexpr char kTokens[] = "tokens_per_s";

// "268,319 tokens/s" or "1.31 s", and the memory.
std::string NumbersOf(const FigurePoint& point, const FigureAxis& y,
                      bool in_units, bool has_memory) {
  AxisUnit unit = UnitOf(y.path, point.y);
  if (in_units && y.path != kTokens) unit = {"units", 1};
  std::string out = absl::StrCat(
      y.path == kTokens ? "" : absl::StrCat(AxisWords(y.path), " "),
      WithSeparators(point.y / unit.size), " ",
      y.path == kTokens ? "tokens/s" : unit.name);
  if (has_memory) absl::StrAppend(&out, ", ", FormatBytes(point.x));
  return out;
}

// Rows stand as their workers ended; colours and marks follow the series.
void SortBySeries(std::vector<FigurePoint>* points) {
  const auto place = [](const FigurePoint& point) {
    double number = 0;
    const bool is_number =
        absl::SimpleAtod(point.series, &number) && std::isfinite(number);
    return std::tuple(!is_number, is_number ? number : 0, point.series);
  };
  std::stable_sort(points->begin(), points->end(),
                   [&](const FigurePoint& one, const FigurePoint& other) {
                     return place(one) < place(other);
                   });
}

// What a plan's name says behind the degrees: "even, zero1".
std::string LayoutOf(const std::string& name) {
  const std::string mark = "layout ";
  const size_t at = name.find(mark);
  return at == std::string::npos ? name : name.substr(at + mark.size());
}

// The ends of the front, and what no point is.
std::vector<std::string> VerdictOf(const Figure& figure, int64_t misfits) {
  const auto best = [&](bool by_x) {
    const FigureAxis& axis = by_x ? figure.x : figure.y;
    return *std::min_element(
        figure.points.begin(), figure.points.end(),
        [&](const FigurePoint& one, const FigurePoint& other) {
          const double a = by_x ? one.x : one.y;
          const double b = by_x ? other.x : other.y;
          return axis.more_is_better ? a > b : a < b;
        });
  };
  const bool has_memory = figure.x.path == kMemory;
  const auto line = [&](const char* what, const FigurePoint& point) {
    return absl::StrCat(what, ": ",
                        NumbersOf(point, figure.y, figure.in_units, has_memory),
                        ": ", point.name);
  };
  const size_t count = figure.points.size();
  std::vector<std::string> lines = {absl::StrCat(
      WithSeparators(static_cast<double>(count)), count == 1 ? " run" : " runs",
      misfits == 0 ? ""
                   : absl::StrCat("; ", misfits,
                                  " more need more memory than there is and "
                                  "are left out"))};
  lines.push_back(line("Fastest", best(/*by_x=*/false)));
  if (has_memory) lines.push_back(line("Least memory", best(/*by_x=*/true)));
  return lines;
}

}  // namespace

absl::StatusOr<FileFormat> FigureFormat(absl::string_view flag,
                                        const std::string& path) {
  const std::string lower = absl::AsciiStrToLower(path);
  for (const auto& [ending, format] : {std::pair(".svg", FileFormat::kSvg),
                                       std::pair(".pdf", FileFormat::kPdf),
                                       std::pair(".png", FileFormat::kPng),
                                       std::pair(".csv", FileFormat::kCsv),
                                       std::pair(".html", FileFormat::kHtml)}) {
    if (absl::EndsWith(lower, ending)) return format;
  }
  return BadValue(flag, path,
                  absl::StrCat("a name that ends in ", kFigureEndings));
}

absl::StatusOr<std::string> DrawFigure(const Figure& figure,
                                       FileFormat format) {
  switch (format) {
    case FileFormat::kPdf:
      return PdfOf(FigureSvg(figure), figure.width_mm, figure.height_mm);
    case FileFormat::kPng:
      return PngOf(FigureSvg(figure), figure.width_mm, figure.height_mm);
    case FileFormat::kHtml:
      return FigureHtml(figure);
    case FileFormat::kSvg:
      return FigureSvg(figure);
    default:
      return FigureCsv(figure);
  }
}

absl::StatusOr<Figure> FigureOfSweep(const std::string& database,
                                     const std::string& flag,
                                     FileFormat format) {
  // What most rows have decides: no memory without a model, no throughput
  // without its tokens.
  const bool is_page = format == FileFormat::kHtml;
  absl::Status last;
  std::optional<Figure> figure;
  ReadPoints chosen;
  for (const char* x : {kMemory, "peak_activations.max"}) {
    for (const char* y :
         {is_page ? kTokens : "bubble_fraction.per_rank", "iteration_s"}) {
      // All rows are in it: to read them again finds no more.
      if (figure && chosen.without == 0) break;
      PointPaths paths = {x, y, ""};
      paths.columns = is_page;
      RunContext context;
      absl::StatusOr<ReadPoints> read =
          ReadPointsOf({database}, paths, &context);
      if (!read.ok()) {
        last = read.status();
        continue;
      }
      if (figure && read->points.size() <= chosen.points.size()) continue;
      chosen = *std::move(read);
      figure.emplace();
      figure->x = {x, MoreIsBetter(x)};
      figure->y = {y, MoreIsBetter(y)};
    }
  }
  if (!figure) {
    return Reworded(last, absl::StrCat(flag, ": nothing to draw in ", database,
                                       ": ", last.message()));
  }
  if (chosen.without > 0) {
    chosen.warnings.push_back(
        absl::StrCat(chosen.without, " rows have no ", figure->x.path,
                     " or no ", figure->y.path, " and are not drawn"));
  }
  for (std::string& warning : chosen.warnings) {
    warning = absl::StrCat(flag, ": ", warning);
  }
  PrintWarnings(chosen.warnings);
  figure->points = std::move(chosen.points);
  SortBySeries(&figure->points);
  figure->in_units = chosen.in_units;
  figure->series_path = chosen.series_path;
  figure->verdict = VerdictOf(*figure, chosen.misfits);
  if (chosen.without > 0) {
    figure->verdict.push_back(absl::StrCat("Not here: ", chosen.without,
                                           " rows without ", figure->x.path,
                                           " or ", figure->y.path));
  }
  if (is_page) figure->title = absl::StrCat("Sweep ", database);
  return *std::move(figure);
}

Figure FigureOfPlan(const PlanOutcome& outcome) {
  const PlanSpace& space = *outcome.space;
  const bool has_tokens =
      !outcome.ranked.empty() && outcome.ranked[0].tokens_per_s > 0;
  Figure figure;
  figure.title = "Plan";
  figure.x = {kMemory, false};
  figure.y = {has_tokens ? kTokens : "iteration_s", has_tokens};
  figure.series_path = "schedule.name";
  figure.report = PlanToText(outcome);
  for (const PlanResult& result : outcome.ranked) {
    const PlanGroup& group = result.point.group;
    FigurePoint& point = figure.points.emplace_back();
    point.name = space.NameOf(result.point);
    point.series = space.schedules()[group.schedule];
    point.x = result.peak_bytes;
    point.y = has_tokens ? result.tokens_per_s : result.iteration_s;
    point.words = {{"schedule.name", point.series},
                   {"layout", LayoutOf(point.name)}};
    point.numbers = {{"strategy.tp", group.tp},
                     {"strategy.cp", group.cp},
                     {"strategy.ep", group.ep},
                     {"strategy.pp", group.pp},
                     {"strategy.vpp", group.vpp},
                     {"strategy.dp", group.dp},
                     {"strategy.microbatches", group.microbatches},
                     {"strategy.microbatch_size", group.microbatch_size},
                     {"iteration_s", result.iteration_s}};
    if (result.confirmed_s) {
      point.numbers.emplace_back("confirmed_s", *result.confirmed_s);
    }
    if (result.energy) {
      point.numbers.emplace_back("joules_per_token",
                                 1 / result.energy->tokens_per_joule);
    }
    if (result.is_near_limit) point.words.emplace_back("memory", "at risk");
    point.command = SimulateCommand(ToString(space.ConfigOf(result.point)), {});
  }
  if (figure.points.empty()) return figure;
  // The first is the best on fluid too, where the fastest need not be.
  figure.verdict = {
      absl::StrCat("Best: ", NumbersOf(figure.points[0], figure.y, false, true),
                   ": ", figure.points[0].name)};
  if (outcome.report && outcome.report->memory) {
    figure.verdict.push_back(
        absl::StrCat("Memory: ", MemoryVerdictLine(*outcome.report->memory)));
  }
  if (outcome.report) {
    figure.verdict.push_back(
        absl::StrCat("What limits it: ", LimitsText(*outcome.report)));
  }
  figure.verdict.push_back(absl::StrCat("How sure: ", PlanConfidence(outcome)));
  figure.verdict.push_back(absl::StrCat(
      "Below: the ", WithSeparators(static_cast<double>(figure.points.size())),
      " layouts that were simulated and fit, of ",
      WithSeparators(static_cast<double>(outcome.counts.legal)),
      " legal ones"));
  return figure;
}

}  // namespace pipewright
