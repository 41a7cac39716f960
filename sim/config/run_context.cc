#include "sim/config/run_context.h"

#include <utility>

#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/model/hf_config.h"
#include "sim/profile/store.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

absl::StatusOr<RunContext::ReadSchedule> ReadVerified(const std::string& text,
                                                      const std::string& path) {
  PW_ASSIGN_OR_RETURN(ScheduleFile file, ParseScheduleFile(text, path));
  PW_RETURN_IF_ERROR(VerifyScheduleFile(file));
  return RunContext::ReadSchedule{
      std::make_shared<const Schedule>(std::move(file.schedule)),
      std::move(file.notes)};
}

absl::StatusOr<std::shared_ptr<const Profile>> SharedProfile(
    const std::string& name_or_path) {
  PW_ASSIGN_OR_RETURN(Profile profile, FindProfile(name_or_path));
  return std::make_shared<const Profile>(std::move(profile));
}

}  // namespace

template <typename Value, typename Parse>
absl::StatusOr<Value> RunContext::Parsed(const FieldPlace& field,
                                         const std::string& path,
                                         InputKind kind, Files<Value>* files,
                                         const Parse& parse) {
  const File<Value>& file = files->Get(path, [&]() -> File<Value> {
    const absl::StatusOr<std::string> text = ReadFile(path, kind);
    if (!text.ok()) return {text.status(), text.status()};
    return {absl::OkStatus(), parse(*text, path)};
  });
  PW_RETURN_IF_ERROR(Prefix(field, file.readable));
  return file.parsed;
}

absl::StatusOr<ShapeParams> RunContext::System(const std::string& preset) {
  return systems_.Get(preset, [&] { return FindSystem(preset); });
}

absl::StatusOr<ShapeParams> RunContext::SystemFile(const FieldPlace& field,
                                                   const std::string& path) {
  return Parsed(field, path, InputKind::kConfiguration, &system_files_,
                &ParseSystem);
}

absl::StatusOr<ModelSpec> RunContext::Model(const std::string& preset) {
  return models_.Get(preset, [&] { return FindModel(preset); });
}

absl::StatusOr<ModelSpec> RunContext::HuggingFaceModel(
    const FieldPlace& field, const std::string& path) {
  return Parsed(field, path, InputKind::kConfiguration, &model_files_,
                &ModelFromHuggingFace);
}

absl::StatusOr<std::shared_ptr<const Profile>> RunContext::CalibrationProfile(
    const std::string& name_or_path) {
  return profiles_.Get(name_or_path,
                       [&] { return SharedProfile(name_or_path); });
}

absl::StatusOr<RunContext::ReadSchedule> RunContext::ScheduleAt(
    const FieldPlace& field, const std::string& path) {
  return Parsed(field, path, InputKind::kSchedule, &schedules_, &ReadVerified);
}

}  // namespace pipewright
