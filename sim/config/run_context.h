// What many runs share: systems, models, profiles, schedule files and lengths,
// each read and parsed once, when a run first asks for it. Files are taken to
// stay as they are while it lives. Not the runs themselves, and nothing about
// them.
//
// Safe for several threads. What it gives out is never changed and stays valid
// as long as it lives.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/kept.h"
#include "sim/config/run_config.h"
#include "sim/config/shared_model.h"
#include "sim/cost/device.h"
#include "sim/cost/silicon.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"
#include "sim/profile/silicon_table.h"
#include "sim/schedule/text.h"
#include "sim/topology/cluster.h"
#include "sim/topology/registry.h"

namespace pipewright {

class RunContext {
 public:
  // Keeps what runs share of so many models with their training at a time; as
  // many as a sweep goes through again and again.
  explicit RunContext(size_t most_models = 256);
  ~RunContext();
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
  // A user's tables of measured rates, of `device`. Runs of one file and device
  // get the same, so that they share prices. Error: that of ReadSiliconFile.
  absl::StatusOr<std::shared_ptr<const Silicon>> SiliconOf(
      const std::string& path, const DeviceSpec& device);

  // What runs of this model and training share.
  std::shared_ptr<SharedModel> Shared(const ModelSpec& model,
                                      const TrainingSpec& training);

  // That of BuildCluster, with its errors.
  absl::StatusOr<std::shared_ptr<const Cluster>> ClusterOf(
      const ShapeParams& params);

  // The lengths of a file; the same errors.
  absl::StatusOr<std::shared_ptr<const std::vector<int64_t>>> Lengths(
      const FieldPlace& field, const std::string& path);

  struct ReadSchedule {
    std::shared_ptr<const Schedule> schedule;
    std::vector<std::string> notes;
  };
  // Verified.
  absl::StatusOr<ReadSchedule> ScheduleAt(const FieldPlace& field,
                                          const std::string& path);
  // `text` is what ScheduleAt shall find at `path`, which is not written yet.
  // Only before anybody has asked for it.
  void TakeSchedule(const std::string& path, const std::string& text);

  // Reads a file of InputFields, so that its digest is known. Error: that of
  // what reads files of its field.
  absl::Status ReadInput(const FieldPlace& field, const InputField& input);

  // ScheduleParams::stops of what is built; before any run is prepared.
  void StopSearchesIf(std::function<bool()> stops) {
    stops_ = std::move(stops);
  }
  const std::function<bool()>& stops() const { return stops_; }

  // Digest and size of the bytes that were parsed of a file, "" of one that
  // nobody has asked for.
  std::string DigestOfFile(const std::string& path);

 private:
  using SiliconTables = std::shared_ptr<const std::vector<SiliconTable>>;
  template <typename Value>
  struct File {
    absl::Status readable;
    absl::StatusOr<Value> parsed;
  };
  template <typename Value>
  using Files = Kept<File<Value>>;

  template <typename Value, typename Parse>
  absl::StatusOr<Value> Parsed(const FieldPlace& field, const std::string& path,
                               InputKind kind, Files<Value>* files,
                               const Parse& parse);
  absl::StatusOr<std::shared_ptr<const Profile>> ReadSharedProfile(
      const std::string& name_or_path);
  const absl::StatusOr<SiliconTables>& TablesOf(const std::string& path);
  void KeepDigest(const std::string& path, absl::string_view text);

  Kept<absl::StatusOr<ShapeParams>> systems_;
  Files<ShapeParams> system_files_;
  Kept<absl::StatusOr<ModelSpec>> models_;
  Files<ModelSpec> model_files_;
  Kept<absl::StatusOr<std::shared_ptr<const Profile>>> profiles_;
  Kept<absl::StatusOr<SiliconTables>> silicon_tables_;
  Files<ReadSchedule> schedules_;
  Files<std::shared_ptr<const std::vector<int64_t>>> lengths_;
  Memo<std::pair<TrainingSpec, ModelSpec>, SharedModel> shared_;
  Memo<ShapeParams, const Cluster> clusters_{16};
  Memo<std::pair<std::string, DeviceSpec>, const Silicon> silicon_{16};
  std::mutex digests_mutex_;
  std::map<std::string, std::string> digests_;  // by path
  std::function<bool()> stops_;
};

}  // namespace pipewright
