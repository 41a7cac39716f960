#include "calibrate/side_subjects.h"

#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calibrate/copy_subjects.h"
#include "calibrate/interference_subjects.h"
#include "calibrate/memory_subjects.h"
#include "calibrate/transfer_subjects.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// A pass, and two threads that transfer.
constexpr unsigned kInterferenceThreads = 3;

}  // namespace

int64_t SideBytes(const MeasuredDevice& device, bool quick) {
  return CopySubjectBytes(device, quick) +
         (quick ? 0 : InterferenceBytes(device));
}

absl::StatusOr<std::vector<Subject>> SideSubjects(
    MeasuredDevice* device, const PassSet& passes,
    std::shared_ptr<const bool> brief, const std::vector<Transport>& transports,
    bool quick, std::vector<std::string>* warnings) {
  std::vector<Subject> all;
  const auto append = [&all](std::vector<Subject> some) {
    std::move(some.begin(), some.end(), std::back_inserter(all));
  };
  PW_ASSIGN_OR_RETURN(
      std::vector<Subject> optimizers,
      OptimizerSubjects(device, passes.example->shape().model.type,
                        passes.example->parameters()));
  append(std::move(optimizers));
  PW_ASSIGN_OR_RETURN(std::vector<Subject> copies, CopySubjects(device, quick));
  append(std::move(copies));
  const std::vector<Transport> measured =
      transports.empty() && device->is_cpu() ? ThreadTransports() : transports;
  for (const Transport& transport : measured) {
    append(TransferSubjects(transport, quick, measured.size() == 1));
  }
  if (quick) return all;
  all.push_back(HostMemorySubject());
  PW_ASSIGN_OR_RETURN(std::vector<Subject> interference,
                      InterferenceSubjects(device, passes, brief, measured));
  append(std::move(interference));
  const unsigned cores = std::thread::hardware_concurrency();
  if (device->is_cpu() && cores < kInterferenceThreads) {
    warnings->push_back(absl::StrCat(
        "a pass beside two transferring threads, or beside copies both ways, "
        "needs ",
        kInterferenceThreads, " cores, there are ", cores,
        ": those slow-downs are of threads that took turns"));
  }
  return all;
}

}  // namespace pipewright
