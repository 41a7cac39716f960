#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/rebuilt.h"
#include "sim/analysis/sweep/sweep_file.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/status.h"
#include "sim/cli/figure_files.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/stop_signals.h"
#include "sim/cli/sweep_mpi.h"
#include "sim/cli/sweep_verb.h"
#include "sim/cli/verbs.h"
#include "sim/engine/simgrid_engine.h"

namespace pipewright {
namespace {

constexpr int kMostWorkers = 4096;
constexpr double kMostTimeout = 1e6;

absl::Status TakeFilters(const std::vector<std::string>& filters,
                         SweepGrid* grid) {
  for (const std::string& text : filters) {
    absl::StatusOr<Expression> keep = Expression::Parse(text);
    if (!keep.ok()) {
      return AboutField("--filter", Prefix("--filter", keep.status()));
    }
    grid->filters.push_back({*std::move(keep), "--filter"});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepPoints> SweepVerb::ReadPoints(RunContext* context) {
  PW_ASSIGN_OR_RETURN(GivenConfig given, config.Given());
  SweepGrid grid;
  std::optional<int64_t> repeats;
  PW_ASSIGN_OR_RETURN(std::optional<SweepFile> file,
                      ReadSweepFile(given.text, given.source));
  files.Reads("the sweep", given.source);
  if (!given.arguments_file.empty()) {
    files.Reads("--from-args", given.arguments_file);
  }
  if (file) {
    grid = std::move(file->grid);
    repeats = file->seeds;
    given.text = file->base_text;
    if (file->base_path) {
      given.source = *file->base_path;
      PW_ASSIGN_OR_RETURN(given.text, ReadFile(given.source));
      files.Reads("base", given.source);
    }
  }
  PW_ASSIGN_OR_RETURN(given.parsed,
                      ConfigText::Parse(given.text, given.source));
  for (const std::string& text : axes) {
    PW_ASSIGN_OR_RETURN(SweepAxis axis, AxisOfText(text));
    // The command line wins over the file.
    const auto same = std::find_if(
        grid.axes.begin(), grid.axes.end(), [&](const SweepAxis& other) {
          return other.names == axis.names && other.place != "--sweep";
        });
    if (same != grid.axes.end()) {
      *same = std::move(axis);
    } else {
      grid.axes.push_back(std::move(axis));
    }
  }
  PW_RETURN_IF_ERROR(TakeFilters(filters, &grid));
  if (seeds > 0) repeats = seeds;
  if (repeats) {
    int64_t first = 0;
    const absl::StatusOr<RunConfig> read = given.Read({});
    if (read.ok()) first = read->costs.seed.value_or(0);
    grid.axes.push_back(SeedAxis(*repeats, first, "--seeds"));
  }
  PW_ASSIGN_OR_RETURN(const RunConfig base, given.Read({}));
  grid.shard = shard;
  PW_RETURN_IF_ERROR(CheckFiles(base, grid));
  const auto read =
      [given = std::move(given)](const std::vector<ConfigEdit>& point) {
        return given.Read(point);
      };
  return SweepPoints::Create(read, std::move(grid), "fast", context);
}

bool SweepVerb::NeedsNoSimgrid(const SweepPoints& points) {
  const auto is_other = [](absl::string_view name) {
    return name != "simgrid";
  };
  for (const SweepAxis& axis : points.grid().axes) {
    for (size_t index = 0; index < axis.names.size(); ++index) {
      if (axis.names[index] != "engine") continue;
      for (const std::vector<std::string>& values : axis.values) {
        if (!is_other(values[index])) return false;
      }
    }
  }
  return is_other(points.base().engine.value_or("fast"));
}

absl::Status SweepVerb::DryRun(const SweepPoints& points) {
  absl::flat_hash_set<PointHash> stored;
  if (SweepReader::HasFile(database)) {
    PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                        SweepReader::Open(database));
    PW_RETURN_IF_ERROR(reader->VisitHeadlines(
        [&](const SweepHeadline& row) { stored.insert(row.hash); }));
  }
  const GridCounts counts = CountPoints(
      points, [&](const PointHash& hash) { return stored.contains(hash); });
  if (json) {
    return Print(absl::StrCat("{\"points\": ", counts.points,
                              ", \"missing\": ", counts.missing, "}\n"));
  }
  return Print(absl::StrCat(counts.points, " points, ", counts.missing,
                            " of them without a row in ", database, "\n"));
}

absl::StatusOr<SweepCounts> SweepVerb::RunPoints(const SweepPoints& points,
                                                 int64_t all, SweepStore* store,
                                                 Evaluator* evaluator) {
  // The whole grid has `all` points.
  const SweepShard& part = points.grid().shard;
  const int64_t own = (all - part.number) / part.count + 1;
  ProgressBar bar;
  return RunSweep(
      points, store, evaluator,
      {.stops = StopSignals::Taken,
       .progress =
           [&](const SweepCounts& counts) {
             // Rows that were there took no time.
             const auto missing = static_cast<double>(own - counts.earlier);
             bar.At(
                 missing > 0 ? static_cast<double>(counts.now()) / missing : 1,
                 absl::StrCat(counts.now() + counts.earlier, " of ", own,
                              " points"));
           },
       .finished =
           [&](const PointResult& point) {
             for (const std::string& text : point.warnings) {
               SaidBy& by = warnings[text];
               by.place = std::min(by.place, point.place.value_or(0));
               ++by.points;
             }
           },
       .walked = [&](const PointHash& hash) { walked.push_back(hash); }});
}

absl::Status SweepVerb::Run() {
  PW_RETURN_IF_ERROR(CheckOptions());
  RunContext context;
  PW_ASSIGN_OR_RETURN(const SweepPoints points, ReadPoints(&context));
  // One of an older version is brought up to date before it is read.
  if (SweepReader::HasFile(database) && !SweepReader::Open(database).ok()) {
    PW_RETURN_IF_ERROR(SweepStore::Open(database).status());
  }
  if (points.grid().axes.empty()) {
    PW_RETURN_IF_ERROR(Export());
    return json ? PrintStatuses() : absl::OkStatus();
  }
  GridWalk first(&points.grid(), points.base());
  if (!first.Next()) {
    return FieldError("--filter",
                      "no point is left; allowed: filters that keep some");
  }
  PW_RETURN_IF_ERROR(CheckColumns(points));
  PW_RETURN_IF_ERROR(CheckTimes(points, &context));
  if (dry_run) return DryRun(points);
  // Every point would fail for want of it.
  if (!NeedsNoSimgrid(points)) PW_RETURN_IF_ERROR(SimgridStarts());
  const StopSignals signals(StopSignals::Second::kNothing);
  const PoolOptions options = {.workers = workers,
                               .threads = NeedsNoSimgrid(points),
                               .timeout_s = timeout_s,
                               .retries = retries};
  // Exports never need what cannot be computed again.
  const bool keeps = keeps_reports() || !CanBeRebuilt(points, &context);
  const EvaluateFunction evaluate = [&](const SweepChoices& choices) {
    return EvaluatePoint(points, choices, &context, /*progress=*/nullptr,
                         keeps);
  };
  // A shard needs nobody else.
  if (!ProcessGroup::Started() || !shard_text.empty()) {
    WorkerPool pool(&points, options, evaluate);
    return RunWith(points, &pool);
  }
  // Before MPI has threads here.
  PW_ASSIGN_OR_RETURN(PoolServer own,
                      PoolServer::Start(&points, options, evaluate));
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> job,
                      ProcessGroup::Create());
  if (job->process() > 0) return ServeSweep(job.get(), &own);
  const int64_t held = (options.threads ? 256 : 4) * int64_t{workers};
  MpiEvaluator evaluator(job.get(), &own, held);
  return RunWith(points, &evaluator);
}

absl::Status SweepVerb::RunWith(const SweepPoints& points,
                                Evaluator* evaluator) {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepStore> store,
                      SweepStore::Open(database));
  if (again) store->ForgetLost();
  PrintWarnings(WarningsOf(points));
  const int64_t all = PointsOf(points.grid(), points.base());
  PW_RETURN_IF_ERROR(store->Begin({.command = CommandLine(),
                                   .base = ToString(points.base()),
                                   .grid = points.GridText(),
                                   .axes = points.AxesTable(),
                                   .points = all,
                                   .shard = points.grid().shard}));
  const absl::StatusOr<SweepCounts> counts =
      RunPoints(points, all, store.get(), evaluator);
  if (!counts.ok()) {
    return Reworded(
        counts.status(),
        absl::StrCat(counts.status().message(), "; to go on: ", CommandLine()));
  }
  // First what the points say: of none that ran there is nothing to draw.
  const absl::Status verdict = PrintResults(*counts);
  if (!counts->stopped) stops = StopSignals::Taken;
  const absl::Status exported = Export();
  const bool is_cut = absl::IsCancelled(exported);
  if (verdict.ok() && !is_cut) PW_RETURN_IF_ERROR(exported);
  if (counts->stopped || is_cut) {
    return absl::CancelledError(
        absl::StrCat("stopped by a signal; what is done is in ", database,
                     "; to go on: ", CommandLine()));
  }
  const int64_t lost =
      counts->crashed + counts->timeouts + counts->earlier_lost;
  if (lost == 0 || !verdict.ok()) return verdict;
  return absl::InternalError(
      absl::StrCat(lost, lost == 1 ? " point" : " points",
                   " crashed or took too long; the rows say why, --again runs "
                   "them again"));
}

void AddSweep(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "sweep", "Run many configurations and store their results");
  auto sweep = std::make_shared<SweepVerb>();
  sweep->workers =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  sweep->config.AddTo(verb, ConfigOptions::File::kPositional);
  constexpr char kGrid[] = "Grid (docs/sweep.md)";
  const auto repeated = [&](const char* flag, std::vector<std::string>* target,
                            const char* help, const char* type) {
    verb->add_option(flag, *target, help)
        ->type_name(type)
        ->allow_extra_args(false)
        ->group(kGrid);
  };
  repeated("--sweep", &sweep->axes,
           "an axis: any field or flag; schedule=all takes every schedule",
           "FIELD=VALUES");
  repeated("--filter", &sweep->filters, "keep points where this holds",
           "CONDITION");
  AddInteger(verb, "--seeds", &sweep->seeds, 1, kMostSeeds,
             "repeat each point with that many seeds of costs.jitter")
      ->type_name("N")
      ->group(kGrid);
  verb->add_option(
          "--shard", sweep->shard_text,
          "run the K-th of N parts, on its own and without MPI, into a "
          "file that sweep merge reads; slurm: the task of an array; "
          "slurm/N: its number of N; mpi: the process of mpirun or srun")
      ->type_name("K/N|slurm[/N]|mpi")
      ->check(CLI::Validator(
          [](const std::string& text) {
            // It would be none.
            if (text.empty()) throw RefusedOption(ShardOfText(text).status());
            return std::string();
          },
          ""))
      ->group(kGrid);
  verb->add_flag("--dry-run", sweep->dry_run, "count the points, run none")
      ->group(kGrid);
  constexpr char kRun[] = "Run";
  AddInteger(verb, "-j", &sweep->workers, 1, kMostWorkers,
             "workers (default: one a processor)")
      ->type_name("N")
      ->group(kRun);
  verb->add_option("--timeout", sweep->timeout_s,
                   "seconds that a point may take")
      ->check(NumberCheck("--timeout", 0, kMostTimeout))
      ->type_name("SECONDS")
      ->group(kRun);
  AddInteger(verb, "--retry", &sweep->retries, 0, 1000,
             "how often a point that crashes or takes too long is tried again")
      ->type_name("N")
      ->capture_default_str()
      ->group(kRun);
  verb->add_flag("--again", sweep->again,
                 "run points again whose rows say crashed or timeout")
      ->group(kRun);
  constexpr char kOut[] = "Output";
  verb->add_option("-o", sweep->database,
                   "file of the rows, SQLite; {shard} in it becomes 3-of-64 "
                   "(default: runs.sqlite, of a shard runs-{shard}.sqlite)")
      ->type_name("FILE")
      ->group(kOut);
  verb->add_flag("--json", sweep->json, "counts as one JSON object")
      ->group(kOut);
  verb->add_option("--csv", sweep->csv, "all rows as CSV")
      ->type_name("FILE")
      ->group(kOut);
  verb->add_option("--jsonl", sweep->jsonl, "all rows as JSON Lines")
      ->type_name("FILE")
      ->group(kOut);
  sweep->files.AddTo(verb, "--html",
                     "a page of all rows: scatter, table, commands",
                     FileFormat::kHtml);
  sweep->files.AddTo(
      verb, "--figure",
      absl::StrCat("bubble against memory of all rows: ", kFigureEndings),
      FileFormat::kSvg);
  verb->add_option("--columns", sweep->columns,
                   "columns of --csv and --jsonl: axes and paths of the report")
      ->delimiter(',')
      ->type_name("PATH,...")
      ->group(kOut);
  verb->add_flag("--all-versions", sweep->all_versions,
                 "export rows of other model versions too")
      ->group(kOut);
  verb->require_subcommand(0, 1);
  verb->callback([action, sweep, verb] {
    if (verb->get_subcommands().empty()) {
      *action = [sweep] { return sweep->Run(); };
      return;
    }
    for (const CLI::Option* option : verb->get_options()) {
      if (option->count() == 0) continue;
      const std::string name = option->get_name();
      *action = [name] {
        return FieldError(name,
                          "is of sweep, and merge does not take it; allowed: "
                          "pipewright sweep merge SHARDS... with -o and --json "
                          "behind merge");
      };
      return;
    }
  });
  AddSweepMerge(verb, action);
}

}  // namespace pipewright
