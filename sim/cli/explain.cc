#include "sim/analysis/explain/explain.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

struct ExplainVerb {
  ConfigOptions config;
  OutputFiles files;
  std::string what_if;
  bool no_sensitivities = false;

  absl::Status Run();
};

absl::Status ExplainVerb::Run() {
  ExplainOptions options = {.sensitivities = !no_sensitivities};
  if (!what_if.empty()) {
    PW_ASSIGN_OR_RETURN(options.what_if, ParseTimeScales("--what-if", what_if));
  }
  PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read(&files));
  PW_RETURN_IF_ERROR(files.Check());
  RunContext context;
  PW_ASSIGN_OR_RETURN(const Explanation explanation,
                      Explain(run_config, options, &context));
  std::vector<std::string> warnings = explanation.run.warnings();
  if (explanation.run.prepared.failing) {
    warnings.push_back(
        "reliability.mtbf_per_device has no effect on explain: a step without "
        "failures is explained");
  }
  PrintWarnings(warnings);
  files.Put("-o", files.json()
                      ? absl::StrCat(ExplanationToJson(explanation), "\n")
                      : ExplanationToText(explanation));
  if (files.wanted("--svg")) {
    files.Put("--svg", ExplanationSvg(explanation));
  }
  PW_RETURN_IF_ERROR(files.Write());
  PW_RETURN_IF_ERROR(explanation.run.prepared.limit());
  return explanation.run.memory() ? MemoryVerdict(*explanation.run.memory())
                                  : absl::OkStatus();
}

}  // namespace

void AddExplain(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "explain", "Say where each part of a step's time goes, and why");
  auto explain = std::make_shared<ExplainVerb>();
  explain->config.AddTo(verb, ConfigOptions::File::kPositional);
  verb->add_option("--what-if", explain->what_if,
                   "the step with other times, as W*0.8,p2p*2,stage3*0.9");
  verb->add_flag("--no-sensitivities", explain->no_sensitivities,
                 "leave out the step with each kind of time changed by 10 %, "
                 "which takes two runs for each");
  OutputFiles& files = explain->files;
  files.AddReport(verb, "the explanation");
  files.AddTo(verb, "--svg", "picture of the parts by rank", FileFormat::kSvg);
  verb->callback(
      [action, explain] { *action = [explain] { return explain->Run(); }; });
}

}  // namespace pipewright
