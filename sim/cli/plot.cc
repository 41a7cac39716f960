#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/plot/figure.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

constexpr double kLeastFigureMm = 20;
constexpr double kMostFigureMm = 1000;
constexpr char kFigureEndings[] = ".svg, .pdf, .png, .csv or .html";

struct PlotVerb {
  std::vector<std::string> inputs;
  PointPaths paths = {"peak_memory_bytes.max", "bubble_fraction.per_rank", ""};
  std::string size = "120x80";
  double font_pt = 8;
  std::string kind = "scatter";
  std::string title;
  bool no_front = false;
  OutputFiles files;

  absl::Status Run();
  absl::StatusOr<std::string> Draw(const Figure& figure,
                                   FileFormat format) const;
};

absl::StatusOr<FileFormat> FigureFormat(const std::string& path) {
  const std::string lower = absl::AsciiStrToLower(path);
  for (const auto& [ending, format] : {std::pair(".svg", FileFormat::kSvg),
                                       std::pair(".pdf", FileFormat::kPdf),
                                       std::pair(".png", FileFormat::kPng),
                                       std::pair(".csv", FileFormat::kCsv),
                                       std::pair(".html", FileFormat::kHtml)}) {
    if (absl::EndsWith(lower, ending)) return format;
  }
  return BadValue("-o", path,
                  absl::StrCat("a name that ends in ", kFigureEndings));
}

absl::Status ReadSize(const std::string& text, Figure* figure) {
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  const auto good = [](double mm) {
    return mm >= kLeastFigureMm && mm <= kMostFigureMm;
  };
  if (parts.size() == 2 && absl::SimpleAtod(parts[0], &figure->width_mm) &&
      absl::SimpleAtod(parts[1], &figure->height_mm) &&
      good(figure->width_mm) && good(figure->height_mm)) {
    return absl::OkStatus();
  }
  return BadValue("--size", text,
                  absl::StrCat("WIDTHxHEIGHT in mm, each ", kLeastFigureMm,
                               " to ", kMostFigureMm, ", as 120x80"));
}

absl::StatusOr<std::string> PlotVerb::Draw(const Figure& figure,
                                           FileFormat format) const {
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

absl::Status PlotVerb::Run() {
  FileFormat format = FileFormat::kCsv;
  for (const std::string& path : inputs) files.Reads("FILE", path);
  if (files.wanted("-o")) {
    const absl::StatusOr<FileFormat> ending = FigureFormat(files.path("-o"));
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
  figure.x = {paths.x, MoreIsBetter(paths.x)};
  figure.y = {paths.y, MoreIsBetter(paths.y)};
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
  PW_ASSIGN_OR_RETURN(std::string drawn, Draw(figure, format));
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
                   "file, where there are several]");
  AddInteger(verb, "--base", &plot->paths.base, 1, 1'000'000'000,
             "of files of sweep the rows of this base alone; a warning lists "
             "them [all]")
      ->type_name("N");
  verb->add_option("--kind", plot->kind, "scatter or line [scatter]")
      ->check(CLI::IsMember({"scatter", "line"}));
  verb->add_option("--size", plot->size, "width and height in mm [120x80]");
  verb->add_option("--font-size", plot->font_pt, "in points [8]")
      ->check(NumberCheck("--font-size", 0, 72));
  verb->add_option("--title", plot->title, "above the figure");
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
