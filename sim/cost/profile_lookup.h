// Finds the times of one model's parts in a profile; a step of CostsOfProfile,
// internal to sim/cost.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cost/profile_costs.h"
#include "sim/cost/profile_interpolation.h"

namespace pipewright {

// Times of one embedding, layer or head; [ProfilePass].
struct PartTimes {
  std::array<double, kNumProfilePasses> seconds = {};
  // Quantiles of the time over its median; empty: no noise is known.
  std::array<std::vector<double>, kNumProfilePasses> quantiles;
  bool full_measured = false;  // BW, not B + W
  // What each is made of: rows of ProfileLookup::times() and their seconds.
  std::array<std::vector<std::pair<int, double>>, kNumProfilePasses> rows;
};

class ProfileLookup {
 public:
  static absl::StatusOr<ProfileLookup> Create(
      const Profile& profile, const ModelSpec& model,
      const TrainingSpec& training, const ProfileCostOptions& options);

  // What is asked for from now on is of this rank of a pipeline of `pp`.
  void EnterRank(int64_t rank, int64_t pp) {
    rank_ = rank;
    pp_ = pp;
  }
  // Missing passes are noted, not an error yet.
  absl::StatusOr<PartTimes> Of(ProfilePart part, bool recomputes);
  // Everything that was asked for and is missing, in one message.
  absl::Status Missing() const;

  void Warn(std::string warning);
  // The size of messages over that of BlockOps', whose values have 16 bits.
  double bytes_factor() const { return type_ == "fp32" ? 2 : 1; }
  const std::string& type() const { return type_; }
  const std::vector<ProfiledTime>& times() const { return times_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool splits_backward() const { return splits_backward_; }
  // B + W over BW of the first kind of layer; 0 if not all are known.
  double SplitPrice() const;

 private:
  ProfileLookup(const Profile& profile, ProfileModel shape,
                std::vector<ProfilePart> layer_parts,
                const TrainingSpec& training, const ProfileCostOptions& options)
      : profile_(profile),
        shape_(std::move(shape)),
        layer_parts_(std::move(layer_parts)),
        training_(training),
        options_(options) {}
  absl::Status ChooseType();
  bool Has(ProfilePart part) const;
  // The point of a microbatch or, where it is cut, of an average slice.
  GridPoint WantedPoint(ProfilePart part, ProfilePass pass,
                        const Interpolation& times) const;
  // The row of times_; below 0 where there is none.
  int Find(ProfilePart part, ProfilePass pass);
  // The entry with slices like these, where they were measured; else null.
  const PassEntry* SliceOf(ProfilePart part, ProfilePass pass) const;
  // Entry of this work and this rank alone; else null.
  const PassEntry* OfRank(ProfilePart part, ProfilePass pass) const;
  bool IsThisWork(const PassEntry& entry, ProfilePart part,
                  ProfilePass pass) const;
  int AddRow(const PassEntry& entry);
  void Note(const ProfiledTime& time);

  const Profile& profile_;
  ProfileModel shape_;
  std::vector<ProfilePart> layer_parts_;  // that the model has, at least one
  const TrainingSpec& training_;
  const ProfileCostOptions& options_;
  std::string type_;
  int64_t rank_ = 0;
  int64_t pp_ = 0;
  // Also by rank, -1 for entries of any; a row below 0: not there.
  std::map<std::tuple<ProfilePart, ProfilePass, int64_t>, int> found_;
  std::vector<ProfiledTime> times_;
  std::vector<std::string> missing_;
  std::vector<std::string> warnings_;
  bool splits_backward_ = true;
};

// Quantiles of the optimizer's time over its median, of the largest step that
// was measured.
std::vector<double> OptimizerFactors(const Profile& profile);

// Quantiles of a distribution over its median, as kept or from p10 and p90;
// empty where it has no noise.
std::vector<double> FactorsOf(const Distribution& time);

}  // namespace pipewright
