// What many runs share: systems, models, profiles and schedule files, each read
// and parsed once, when a run first asks for it. Files are taken to stay as
// they are while it lives. Not the runs themselves, and nothing about them.
//
// Safe for several threads. What it gives out is never changed and stays valid
// as long as it lives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/kept.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"
#include "sim/schedule/text.h"
#include "sim/topology/registry.h"

namespace pipewright {

class RunContext {
 public:
  RunContext() = default;
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  // By name, or a file by its path. Where a file cannot be read, the error
  // begins with `field`; where it does not parse, with the file. Other errors
  // are those of FindSystem, FindModel and FindProfile.
  absl::StatusOr<ShapeParams> System(const std::string& preset);
  absl::StatusOr<ShapeParams> SystemFile(const FieldPlace& field,
                                         const std::string& path);
  absl::StatusOr<ModelSpec> Model(const std::string& preset);
  absl::StatusOr<ModelSpec> HuggingFaceModel(const FieldPlace& field,
                                             const std::string& path);
  absl::StatusOr<std::shared_ptr<const Profile>> CalibrationProfile(
      const std::string& name_or_path);

  struct ReadSchedule {
    std::shared_ptr<const Schedule> schedule;
    std::vector<std::string> notes;
  };
  // Verified.
  absl::StatusOr<ReadSchedule> ScheduleAt(const FieldPlace& field,
                                          const std::string& path);

 private:
  template <typename Value>
  struct File {
    absl::Status readable;
    absl::StatusOr<Value> parsed;
  };
  template <typename Value>
  using Files = Kept<File<Value>>;

  template <typename Value, typename Parse>
  static absl::StatusOr<Value> Parsed(const FieldPlace& field,
                                      const std::string& path, InputKind kind,
                                      Files<Value>* files, const Parse& parse);

  Kept<absl::StatusOr<ShapeParams>> systems_;
  Files<ShapeParams> system_files_;
  Kept<absl::StatusOr<ModelSpec>> models_;
  Files<ModelSpec> model_files_;
  Kept<absl::StatusOr<std::shared_ptr<const Profile>>> profiles_;
  Files<ReadSchedule> schedules_;
};

}  // namespace pipewright
