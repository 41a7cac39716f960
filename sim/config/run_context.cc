#include "sim/config/run_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/digest.h"
#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/model/hf_config.h"
#include "sim/model/hf_files.h"
#include "sim/model/lengths.h"
#include "sim/profile/profile.h"
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

absl::StatusOr<std::shared_ptr<const std::vector<int64_t>>> SharedLengths(
    absl::string_view text, absl::string_view file) {
  PW_ASSIGN_OR_RETURN(std::vector<int64_t> lengths, ParseLengths(text, file));
  return std::make_shared<const std::vector<int64_t>>(std::move(lengths));
}

}  // namespace

RunContext::RunContext(size_t most_models) : shared_(most_models) {}

RunContext::~RunContext() = default;

absl::StatusOr<std::shared_ptr<const Profile>> RunContext::ReadSharedProfile(
    const std::string& name_or_path) {
  if (!IsProfileFile(name_or_path)) {
    PW_ASSIGN_OR_RETURN(Profile shipped, FindProfile(name_or_path));
    return std::make_shared<const Profile>(std::move(shipped));
  }
  PW_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(name_or_path, InputKind::kProfile));
  KeepDigest(name_or_path, text);
  PW_ASSIGN_OR_RETURN(Profile profile, ReadProfile(text, name_or_path));
  return std::make_shared<const Profile>(std::move(profile));
}

void RunContext::KeepDigest(const std::string& path, absl::string_view text) {
  const std::lock_guard<std::mutex> lock(digests_mutex_);
  digests_[path] = absl::StrCat(Digest(text), "-", text.size());
}

std::string RunContext::DigestOfFile(const std::string& path) {
  const std::lock_guard<std::mutex> lock(digests_mutex_);
  const auto known = digests_.find(path);
  return known == digests_.end() ? "" : known->second;
}

template <typename Value, typename Parse>
absl::StatusOr<Value> RunContext::Parsed(const FieldPlace& field,
                                         const std::string& path,
                                         InputKind kind, Files<Value>* files,
                                         const Parse& parse) {
  const File<Value>& file = files->Get(path, [&]() -> File<Value> {
    const absl::StatusOr<std::string> text = ReadFile(path, kind);
    if (!text.ok()) return {text.status(), text.status()};
    KeepDigest(path, *text);
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
  const absl::StatusOr<std::string> file = HuggingFaceFile(path);
  PW_RETURN_IF_ERROR(Prefix(field, file.status()));
  absl::StatusOr<ModelSpec> model =
      Parsed(field, *file, InputKind::kConfiguration, &model_files_,
             &ModelFromHuggingFace);
  if (*file != path) {
    const std::lock_guard<std::mutex> lock(digests_mutex_);
    if (const auto known = digests_.find(*file); known != digests_.end()) {
      digests_[path] = known->second;
    }
  }
  return model;
}

absl::StatusOr<std::shared_ptr<const Profile>> RunContext::CalibrationProfile(
    const std::string& name_or_path) {
  return profiles_.Get(name_or_path,
                       [&] { return ReadSharedProfile(name_or_path); });
}

const absl::StatusOr<RunContext::SiliconTables>& RunContext::TablesOf(
    const std::string& path) {
  return silicon_tables_.Get(path, [&]() -> absl::StatusOr<SiliconTables> {
    PW_ASSIGN_OR_RETURN(std::vector<SiliconTable> tables,
                        ReadSiliconFile(path));
    return std::make_shared<const std::vector<SiliconTable>>(std::move(tables));
  });
}

absl::StatusOr<std::shared_ptr<const Silicon>> RunContext::SiliconOf(
    const std::string& path, const DeviceSpec& device) {
  const absl::StatusOr<SiliconTables>& tables = TablesOf(path);
  PW_RETURN_IF_ERROR(tables.status());
  return silicon_.Get({path, device}, [&] {
    return std::make_shared<const Silicon>(*tables, device);
  });
}

std::shared_ptr<SharedModel> RunContext::Shared(const ModelSpec& model,
                                                const TrainingSpec& training) {
  return shared_.Get({training, model}, [&] {
    return std::make_shared<SharedModel>(model, training);
  });
}

absl::StatusOr<std::shared_ptr<const Cluster>> RunContext::ClusterOf(
    const ShapeParams& params) {
  absl::Status status;
  const std::shared_ptr<const Cluster> cluster =
      clusters_.Get(params, [&]() -> std::shared_ptr<const Cluster> {
        absl::StatusOr<Cluster> built = BuildCluster(params);
        status = built.status();
        if (!built.ok()) return nullptr;
        return std::make_shared<const Cluster>(*std::move(built));
      });
  PW_RETURN_IF_ERROR(status);
  return cluster;
}

absl::StatusOr<std::shared_ptr<const std::vector<int64_t>>> RunContext::Lengths(
    const FieldPlace& field, const std::string& path) {
  return Parsed(field, path, InputKind::kConfiguration, &lengths_,
                &SharedLengths);
}

absl::StatusOr<RunContext::ReadSchedule> RunContext::ScheduleAt(
    const FieldPlace& field, const std::string& path) {
  return Parsed(field, path, InputKind::kSchedule, &schedules_, &ReadVerified);
}

void RunContext::TakeSchedule(const std::string& path,
                              const std::string& text) {
  schedules_.Get(path, [&] {
    return File<ReadSchedule>{absl::OkStatus(), ReadVerified(text, path)};
  });
}

absl::Status RunContext::ReadInput(const FieldPlace& field,
                                   const InputField& input) {
  const std::string& path = input.path;
  if (input.field == "schedule.file") return ScheduleAt(field, path).status();
  if (input.field == "system.file") return SystemFile(field, path).status();
  if (input.field == "model.hf") return HuggingFaceModel(field, path).status();
  if (input.field == "sequences.lengths") return Lengths(field, path).status();
  if (input.field == "costs.profile") {
    return Prefix(field, CalibrationProfile(path).status());
  }
  // The digest is of the file's bytes, tables may be packed.
  const absl::StatusOr<std::string> text = ReadFile(path, InputKind::kProfile);
  PW_RETURN_IF_ERROR(Prefix(field, text.status()));
  KeepDigest(path, *text);
  return Prefix(field, input.field == "costs.analytic.device"
                           ? ReadDevice(*text, path).status()
                           : TablesOf(path).status());
}

}  // namespace pipewright
