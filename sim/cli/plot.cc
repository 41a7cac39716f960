#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/plot/figure.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/cli/figure_files.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

constexpr double kLeastFigureMm = 20;
constexpr double kMostFigureMm = 1000;

struct PlotVerb {
  std::vector<std::string> inputs;
  PointPaths paths = {"peak_memory_bytes.max", "bubble_fraction.per_rank", ""};
  std::string size = "120x80";
  double font_pt = 8;
  std::string kind = "scatter";
  std::string title;
  std::string x_label;
  std::string y_label;
  bool no_front = false;
  OutputFiles files;

  absl::Status Run();
};

absl::Status ReadSize(const std::string& text, Figure* figure) {
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  const auto good = [](double mm) {
    return mm >= kLeastFigureMm && mm <= kMostFigureMm;
  };
  // A width alone has a height in the proportion of the default.
  if (parts.size() == 1 && absl::SimpleAtod(parts[0], &figure->width_mm) &&
      good(figure->width_mm)) {
    figure->height_mm = std::max(kLeastFigureMm, figure->width_mm * 2 / 3);
    return absl::OkStatus();
  }
  if (parts.size() == 2 && absl::SimpleAtod(parts[0], &figure->width_mm) &&
      absl::SimpleAtod(parts[1], &figure->height_mm) &&
      good(figure->width_mm) && good(figure->height_mm)) {
    return absl::OkStatus();
  }
  return BadValue(
      "--size", text,
      absl::StrCat("WIDTH or WIDTHxHEIGHT in mm, each ", kLeastFigureMm, " to ",
                   kMostFigureMm, ", as 85 or 120x80"));
}

absl::Status PlotVerb::Run() {
  FileFormat format = FileFormat::kCsv;
  for (const std::string& path : inputs) files.Reads("FILE", path);
  if (files.wanted("-o")) {
    const absl::StatusOr<FileFormat> ending =
        FigureFormat("-o", files.path("-o"));
    // That a file would be lost is worse than its name.
    if (!ending.ok()) PW_RETURN_IF_ERROR(files.Check());
    PW_RETURN_IF_ERROR(ending.status());
    format = *ending;
    files.SetFormat("-o", format);
  }
  Figure figure;
  PW_RETURN_IF_ERROR(ReadSize(size, &figure));
  figure.font_pt = font_pt;
  figure.title = title;
  figure.kind = kind == "line" ? FigureKind::kLine : FigureKind::kScatter;
  figure.front = !no_front;
  figure.x = {paths.x, MoreIsBetter(paths.x), x_label};
  figure.y = {paths.y, MoreIsBetter(paths.y), y_label};
  PW_RETURN_IF_ERROR(files.Check());
  RunContext context;
  paths.columns = format == FileFormat::kHtml;
  PW_ASSIGN_OR_RETURN(ReadPoints read, ReadPointsOf(inputs, paths, &context));
  if (read.without > 0) {
    read.warnings.push_back(absl::StrCat(read.without, " reports have no ",
                                         paths.x, " or no ", paths.y,
                                         " and are not drawn"));
  }
  PrintWarnings(read.warnings);
  figure.points = std::move(read.points);
  figure.in_units = read.in_units;
  figure.series_path = read.series_path;
  PW_ASSIGN_OR_RETURN(std::string drawn, DrawFigure(figure, format));
  files.Put("-o", std::move(drawn));
  if (files.wanted("--csv")) files.Put("--csv", FigureCsv(figure));
  return files.Write();
}

}  // namespace

void AddPlot(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "plot", "Draw one number of reports against another, for papers");
  auto plot = std::make_shared<PlotVerb>();
  verb->add_option("FILE", plot->inputs,
                   "reports (simulate --json, one or one a line), or "
                   "configurations, which are simulated")
      ->required();
  verb->add_option("--x", plot->paths.x,
                   "path in the report; of a list .max .min .mean .sum or an "
                   "index [peak_memory_bytes.max]");
  verb->add_option("--y", plot->paths.y, "the same [bubble_fraction.per_rank]");
  verb->add_option("--series", plot->paths.series,
                   "path whose values tell series apart, as schedule [the "
                   "file, where there are several; else the schedule]");
  AddInteger(verb, "--base", &plot->paths.base, 1, 1'000'000'000,
             "of files of sweep the rows of this base alone; a warning lists "
             "them [all]")
      ->type_name("N");
  verb->add_option("--kind", plot->kind, "scatter or line [scatter]")
      ->check(CLI::IsMember({"scatter", "line"}));
  verb->add_option(
      "--size", plot->size,
      "width, or width and height, in mm: 85 for one of two columns "
      "[120x80]");
  verb->add_option("--font-size", plot->font_pt, "in points [8]")
      ->check(NumberCheck("--font-size", 0, 72));
  verb->add_option("--title", plot->title, "above the figure");
  verb->add_option("--xlabel", plot->x_label,
                   "words of the x axis, with their unit [of --x]");
  verb->add_option("--ylabel", plot->y_label, "the same of the y axis");
  verb->add_flag("--no-front", plot->no_front,
                 "leave out the Pareto front: the runs that no other is "
                 "better than in both numbers");
  OutputFiles& files = plot->files;
  files.AddTo(verb, "-o",
              absl::StrCat("the figure: ", kFigureEndings,
                           "; without it CSV on standard output"),
              FileFormat::kSvg);
  files.AddTo(verb, "--csv", "the points as CSV", FileFormat::kCsv);
  verb->callback([action, plot] { *action = [plot] { return plot->Run(); }; });
}

}  // namespace pipewright
