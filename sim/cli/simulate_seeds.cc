#include "sim/cli/simulate_seeds.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/status.h"
#include "sim/cli/progress_bar.h"
#include "sim/run/monte_carlo.h"

namespace pipewright {
namespace {

constexpr int kMostDraws = 1'000'000;
constexpr int kMostDrawers = 1024;
// Every pair of them is tested.
constexpr size_t kMostStrategies = 16;

std::string NameOf(const ConfigOptions& config) {
  return config.file().empty() ? std::string("the run") : config.file();
}

}  // namespace

void SeedOptions::AddTo(CLI::App* verb) {
  AddInteger(verb, "--seeds", &seeds, 1, kMostDraws,
             "draws of lengths and noise: mean and quantiles of the iteration "
             "time")
      ->group("Draws");
  AddInteger(verb, "-j", &workers, 1, kMostDrawers,
             "draws at a time (default: the cores)")
      ->group("Draws");
  verb->add_option("--versus", versus,
                   "another strategy with the same draws: a configuration, or "
                   "PATH=VALUE[,PATH=VALUE...] on top of this one")
      ->type_name("CONFIG|EDITS")
      ->allow_extra_args(false)
      ->group("Draws");
}

absl::Status SeedOptions::Check(const OutputFiles& files) const {
  if (seeds == 0) {
    for (const auto& [flag, given] :
         {std::pair<const char*, bool>{"--versus", !versus.empty()},
          {"-j", workers > 0}}) {
      if (!given) continue;
      return WithValue(FieldError(flag, "needs --seeds N: several draws"), "",
                       "with --seeds N");
    }
    return absl::OkStatus();
  }
  for (const char* flag :
       {"--svg", "--trace", "--perfetto", "--html", "--memory-svg"}) {
    if (!files.wanted(flag)) continue;
    return WithValue(
        FieldError(flag,
                   "shows one run, and --seeds asks for many; allowed: "
                   "one of them"),
        files.path(flag), "without --seeds");
  }
  if (versus.size() >= kMostStrategies) {
    return BadValue("--versus", absl::StrCat(versus.size()),
                    absl::StrCat("up to ", kMostStrategies - 1, " of them"));
  }
  return absl::OkStatus();
}

absl::Status SimulateSeeds(const ConfigOptions& config,
                           const SeedOptions& options, bool json,
                           OutputFiles* files) {
  std::vector<NamedConfig> strategies;
  PW_ASSIGN_OR_RETURN(RunConfig own, config.Read(files));
  strategies.push_back({NameOf(config), std::move(own)});
  for (const std::string& other : options.versus) {
    PW_ASSIGN_OR_RETURN(RunConfig another, config.ReadOther(files, other));
    strategies.push_back({other, std::move(another)});
  }
  PW_RETURN_IF_ERROR(files->Check());
  RunContext context;
  ProgressBar bar;
  PW_ASSIGN_OR_RETURN(
      const MonteCarlo result,
      RunMonteCarlo(std::move(strategies), options.seeds,
                    options.workers > 0 ? options.workers : NumCores(),
                    &context, &bar));
  PrintWarnings(result.warnings);
  files->Put("-o", json ? absl::StrCat(MonteCarloToJson(result).dump(2), "\n")
                        : MonteCarloToText(result));
  return files->Write();
}

}  // namespace pipewright
