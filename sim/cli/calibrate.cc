#include <memory>

#include "absl/strings/str_cat.h"
#include "calibrate/session.h"
#include "kernels/loader.h"
#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

struct Run {
  std::string device = "cpu";
  std::string model;
  std::string output;
  absl::Status Do() {
    CalibrateOptions options;
    PW_ASSIGN_OR_RETURN(options.model, FindModel(model));
    char error[512] = "";
    const PwKernels* kernels =
        pw_load_kernels(device.c_str(), error, sizeof(error));
    if (kernels == nullptr) return absl::UnavailableError(error);
    CalibrateHooks hooks;
    hooks.stop = [] { return false; };
    hooks.save = [this](const Profile& p) {
      return WriteFile(output + ".partial", WriteProfile(p));
    };
    PW_ASSIGN_OR_RETURN(const CalibrateResult result,
                        Calibrate(kernels, options, hooks));
    return WriteFile(output, WriteProfile(result.profile));
  }
};

}  // namespace

void AddCalibrate(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand("calibrate", "measure this machine");
  auto run = std::make_shared<Run>();
  verb->add_option("--device", run->device);
  verb->add_option("--model", run->model);
  verb->add_option("-o", run->output);
  verb->callback([action, run] { *action = [run] { return run->Do(); }; });
}

}  // namespace pipewright
