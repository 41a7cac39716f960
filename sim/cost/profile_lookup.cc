#include "sim/cost/profile_lookup.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

double NoiseOf(const Distribution& time) {
  const double width = time.prediction_high_s > 0
                           ? time.prediction_high_s - time.prediction_low_s
                           : time.confidence_high_s - time.confidence_low_s;
  return time.median_s > 0 ? width / 2 / time.median_s : 0;
}

const PassEntry* Nearest(const std::vector<const PassEntry*>& entries,
                         const std::vector<GridPoint>& points,
                         const std::vector<double>& where) {
  const PassEntry* nearest = nullptr;
  double least = 0;
  for (size_t index = 0; index < entries.size(); ++index) {
    double square = 0;
    for (size_t axis = 0; axis < where.size(); ++axis) {
      const double step = std::log2(points[index].where[axis] / where[axis]);
      square += step * step;
    }
    if (nearest != nullptr && square >= least) continue;
    nearest = entries[index];
    least = square;
  }
  return nearest;
}

}  // namespace

std::vector<double> FactorsOf(const Distribution& time) {
  const double median = time.median_s;
  if (median <= 0) return {};
  std::vector<double> out = time.quantiles_s;
  if (out.size() < 2) {
    if (time.p10_s <= 0 || time.p90_s <= time.p10_s) return {};
    // Tenths: straight to p10 and p90, and as far again to the ends.
    const double low = (median - time.p10_s) / 4;
    const double high = (time.p90_s - median) / 4;
    for (int tenth = 0; tenth <= 10; ++tenth) {
      out.push_back(median + (tenth < 5 ? low : high) * (tenth - 5));
    }
  }
  const double middle = QuantileAt(out, 0.5);
  for (double& value : out) value = std::max(0.0, value / middle);
  return out;
}

std::vector<double> OptimizerFactors(const Profile& profile) {
  const OptimizerEntry* largest = nullptr;
  for (const OptimizerEntry& entry : profile.optimizers) {
    if (entry.where != "device" || entry.prediction) continue;
    if (largest == nullptr || entry.parameters > largest->parameters) {
      largest = &entry;
    }
  }
  return largest == nullptr ? std::vector<double>() : FactorsOf(largest->time);
}

absl::StatusOr<ProfileLookup> ProfileLookup::Create(
    const Profile& profile, const ModelSpec& model,
    const TrainingSpec& training, const ProfileCostOptions& options) {
  PW_ASSIGN_OR_RETURN(ProfileModel shape, ProfileModelOf(model));
  ProfileLookup lookup(profile, std::move(shape), LayerPartsOf(model), training,
                       options);
  PW_RETURN_IF_ERROR(lookup.ChooseType());
  return lookup;
}

absl::Status ProfileLookup::ChooseType() {
  const auto has = [this](absl::string_view type) {
    return std::any_of(
        profile_.passes.begin(), profile_.passes.end(),
        [&](const PassEntry& entry) { return entry.type == type; });
  };
  const char* wanted = training_.precision == Precision::kFp8 ? "fp8" : "bf16";
  if (has(wanted)) {
    type_ = wanted;
    return absl::OkStatus();
  }
  if (training_.precision != Precision::kFp8 && has("fp32")) {
    type_ = "fp32";
    Warn(absl::StrCat("profile ", options_.name,
                      " holds no bf16: pass times and exchanges are of fp32, "
                      "memory and hops are counted in bf16"));
    return absl::OkStatus();
  }
  if (training_.precision == Precision::kFp8 && shape_.experts > 0) {
    return BadValue("strategy.precision", "fp8",
                    "bf16 with experts and costs.profile (no fp8 pass of "
                    "experts is measured)");
  }
  return BadValue("costs.profile", options_.name,
                  absl::StrCat("a profile with passes of ", wanted,
                               " (pipewright calibrate --type ", wanted, ")"));
}

void ProfileLookup::Warn(std::string warning) {
  if (std::find(warnings_.begin(), warnings_.end(), warning) ==
      warnings_.end()) {
    warnings_.push_back(std::move(warning));
  }
}

void ProfileLookup::Note(const ProfiledTime& time) {
  const std::string what =
      absl::StrCat("profile ", options_.name, ": ", ProfilePartName(time.part),
                   " ", ProfilePassName(time.pass));
  const std::string error =
      time.error < 0 ? "error unknown"
                     : absl::StrFormat("error about %.1f %%", 100 * time.error);
  if (time.how == ProfiledTime::How::kScaled) {
    Warn(absl::StrCat(what,
                      " was measured for other layer shapes only; its "
                      "time is carried over by its work (",
                      error, ")"));
  } else if (time.how == ProfiledTime::How::kExtrapolated) {
    Warn(absl::StrCat(what, " lies outside of the measured shapes (", error,
                      ")"));
  }
}

// A slice has the tokens, and so the matrices, of fewer sequences, or of
// shorter ones: whichever was measured, or is nearer to what was. It has an
// average slice's part of attention.
GridPoint ProfileLookup::WantedPoint(ProfilePart part, ProfilePass pass,
                                     const Interpolation& times) const {
  GridPoint fewer =
      PointOf(part, pass, shape_,
              static_cast<double>(training_.microbatch_size) / training_.slices,
              training_.sequence, training_.tp);
  if (training_.slices == 1) return fewer;
  const GridPoint shorter = PointOf(
      part, pass, shape_, static_cast<double>(training_.microbatch_size),
      training_.sequence / training_.slices, training_.tp);
  const auto rank = [&](const GridPoint& point) {
    const Interpolated found = times.At(point.work, point.where);
    return found.measured ? 2 : found.inside ? 1 : 0;
  };
  if (rank(shorter) > rank(fewer)) fewer.where = shorter.where;
  return fewer;
}

bool ProfileLookup::IsThisWork(const PassEntry& entry, ProfilePart part,
                               ProfilePass pass) const {
  return entry.microbatch_size == training_.microbatch_size &&
         entry.sequence == training_.sequence && entry.tp == training_.tp &&
         entry.part == part && entry.pass == pass && entry.type == type_ &&
         SameShape(part, entry.model, shape_) &&
         (part != ProfilePart::kExpertLayer || entry.ep == training_.ep) &&
         entry.time.median_s > 0;
}

const PassEntry* ProfileLookup::SliceOf(ProfilePart part,
                                        ProfilePass pass) const {
  if (training_.slices == 1) return nullptr;
  for (const PassEntry& entry : profile_.passes) {
    if (entry.slices == training_.slices && entry.pp == 0 &&
        IsThisWork(entry, part, pass)) {
      return &entry;
    }
  }
  return nullptr;
}

const PassEntry* ProfileLookup::OfRank(ProfilePart part,
                                       ProfilePass pass) const {
  if (training_.slices != 1 || pp_ == 0) return nullptr;
  for (const PassEntry& entry : profile_.passes) {
    if (entry.pp == pp_ && entry.rank == rank_ && entry.slices == 0 &&
        IsThisWork(entry, part, pass)) {
      return &entry;
    }
  }
  return nullptr;
}

int ProfileLookup::AddRow(const PassEntry& entry) {
  times_.push_back({.part = entry.part,
                    .pass = entry.pass,
                    .seconds = training_.slices * entry.time.median_s,
                    .noise = NoiseOf(entry.time),
                    .points = 1,
                    .nearest = &entry});
  return static_cast<int>(times_.size()) - 1;
}

int ProfileLookup::Find(ProfilePart part, ProfilePass pass) {
  if (const PassEntry* own = OfRank(part, pass)) {
    const auto [row, is_new] = found_.try_emplace({part, pass, rank_}, -1);
    if (is_new) row->second = AddRow(*own);
    return row->second;
  }
  const auto [found, is_new] = found_.try_emplace({part, pass, -1}, -1);
  if (!is_new) return found->second;
  if (const PassEntry* slice = SliceOf(part, pass)) {
    found->second = AddRow(*slice);
    return found->second;
  }
  bool scaled = false;
  const auto of_ep = [&](bool any_shape) {
    std::vector<const PassEntry*> all =
        EntriesOf(profile_, part, pass, type_, shape_, any_shape);
    if (part != ProfilePart::kExpertLayer) return all;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const PassEntry* entry) {
                               return entry->ep != training_.ep;
                             }),
              all.end());
    return all;
  };
  std::vector<const PassEntry*> entries = of_ep(false);
  if (entries.empty() && options_.scale_shapes) {
    entries = of_ep(true);
    scaled = true;
  }
  if (entries.empty()) return -1;
  std::vector<GridPoint> points;
  for (const PassEntry* entry : entries) {
    points.push_back(PointOf(part, pass, entry->model,
                             static_cast<double>(entry->microbatch_size),
                             entry->sequence, entry->tp));
    points.back().seconds = entry->time.median_s;
  }
  const Interpolation times(points);
  const GridPoint wanted = WantedPoint(part, pass, times);
  ProfiledTime time = {.part = part, .pass = pass};
  time.points = static_cast<int>(points.size());
  time.nearest = Nearest(entries, points, wanted.where);
  time.noise = NoiseOf(time.nearest->time);
  // Tensor parallelism that was not measured changes more than the work.
  const bool same_tp = std::any_of(
      entries.begin(), entries.end(),
      [&](const PassEntry* entry) { return entry->tp == training_.tp; });
  if (!same_tp && !options_.scale_shapes) return -1;
  const Interpolated value = times.At(wanted.work, wanted.where);
  time.seconds = training_.slices * value.seconds;
  time.error = value.error;
  time.how = scaled          ? ProfiledTime::How::kScaled
             : !value.inside ? ProfiledTime::How::kExtrapolated
             : value.measured && training_.slices == 1
                 ? ProfiledTime::How::kMeasured
                 : ProfiledTime::How::kInterpolated;
  found->second = static_cast<int>(times_.size());
  Note(time);
  times_.push_back(time);
  return found->second;
}

// A trace tells layers alone unless its regions name the rest.
bool ProfileLookup::Has(ProfilePart part) const {
  const bool traced = std::any_of(
      profile_.sources.begin(), profile_.sources.end(),
      [](const ProfileSource& source) { return source.kind == "kineto"; });
  return !traced || std::any_of(profile_.passes.begin(), profile_.passes.end(),
                                [part](const PassEntry& entry) {
                                  return entry.part == part;
                                });
}

absl::StatusOr<PartTimes> ProfileLookup::Of(ProfilePart part, bool recomputes) {
  PartTimes out;
  if (!IsLayer(part) && !Has(part)) {
    Warn(absl::StrCat("profile ", options_.name, ", from a trace, has no ",
                      ProfilePartName(part), ": it takes no time"));
    return out;
  }
  std::vector<ProfilePass> absent;
  const auto take = [&](ProfilePass pass) {
    const int row = Find(part, pass);
    if (row < 0) return false;
    const ProfiledTime& time = times_[row];
    out.seconds[static_cast<int>(pass)] = time.seconds;
    out.quantiles[static_cast<int>(pass)] = FactorsOf(time.nearest->time);
    out.rows[static_cast<int>(pass)] = {{row, time.seconds}};
    return true;
  };
  const auto copy = [&](ProfilePass from, ProfilePass to, double factor) {
    out.seconds[static_cast<int>(to)] =
        factor * out.seconds[static_cast<int>(from)];
    out.quantiles[static_cast<int>(to)] = out.quantiles[static_cast<int>(from)];
    out.rows[static_cast<int>(to)] = out.rows[static_cast<int>(from)];
    for (auto& [row, seconds] : out.rows[static_cast<int>(to)]) {
      seconds *= factor;
    }
  };
  if (!take(ProfilePass::kForward)) absent.push_back(ProfilePass::kForward);
  out.full_measured = take(ProfilePass::kBackwardFull);
  // An embedding has no gradient of its input.
  const bool input =
      take(ProfilePass::kBackwardInput) || part == ProfilePart::kEmbedding;
  const bool weight = take(ProfilePass::kBackwardWeight);
  if (out.full_measured && !input && !weight) {
    splits_backward_ = false;
    copy(ProfilePass::kBackwardFull, ProfilePass::kBackwardInput, 0.5);
    copy(ProfilePass::kBackwardFull, ProfilePass::kBackwardWeight, 0.5);
  } else {
    if (!input) absent.push_back(ProfilePass::kBackwardInput);
    if (!weight) absent.push_back(ProfilePass::kBackwardWeight);
  }
  if (!out.full_measured) {
    const auto b = static_cast<int>(ProfilePass::kBackwardInput);
    const auto w = static_cast<int>(ProfilePass::kBackwardWeight);
    out.seconds[static_cast<int>(ProfilePass::kBackwardFull)] =
        out.seconds[b] + out.seconds[w];
    out.quantiles[static_cast<int>(ProfilePass::kBackwardFull)] =
        out.seconds[b] >= out.seconds[w] ? out.quantiles[b] : out.quantiles[w];
    auto& rows = out.rows[static_cast<int>(ProfilePass::kBackwardFull)];
    rows = out.rows[b];
    rows.insert(rows.end(), out.rows[w].begin(), out.rows[w].end());
  }
  if (recomputes && IsLayer(part) && !take(ProfilePass::kRecompute)) {
    copy(ProfilePass::kForward, ProfilePass::kRecompute, 1);
    Warn(absl::StrCat("profile ", options_.name,
                      ": R was not measured; it takes what F takes"));
  }
  for (const ProfilePass pass : absent) {
    const std::string name =
        absl::StrCat(ProfilePartName(part), " ", ProfilePassName(pass));
    if (std::find(missing_.begin(), missing_.end(), name) == missing_.end()) {
      missing_.push_back(name);
    }
  }
  return out;
}

absl::Status ProfileLookup::Missing() const {
  if (missing_.empty()) return absl::OkStatus();
  std::vector<std::string> measured;
  for (const PassEntry& entry : profile_.passes) {
    if (entry.pass != ProfilePass::kForward) continue;
    std::string name = absl::StrCat(
        ProfilePartName(entry.part), " ", ShapeName(entry.part, entry.model),
        " ", entry.type, " tp", entry.tp,
        entry.part == ProfilePart::kExpertLayer ? absl::StrCat(" ep", entry.ep)
                                                : "");
    if (std::find(measured.begin(), measured.end(), name) == measured.end()) {
      measured.push_back(std::move(name));
    }
  }
  const std::string device =
      profile_.sources.empty() || profile_.sources[0].backend.empty()
          ? "cuda"
          : profile_.sources[0].backend;
  const std::string ep =
      shape_.experts > 0 ? absl::StrCat("ep", training_.ep) : "";
  std::vector<std::string> layers;
  for (const ProfilePart part : layer_parts_) {
    layers.push_back(ShapeName(part, shape_));
  }
  return FieldError(
      "costs.profile",
      absl::StrCat(
          options_.name, " has no ", type_, " times of ",
          absl::StrJoin(missing_, ", "), " for ",
          absl::StrJoin(layers, " and "), " v", shape_.vocabulary, " b",
          training_.microbatch_size, " s", training_.sequence, " tp",
          training_.tp, ep.empty() ? "" : " ", ep,
          " (measured: ", absl::StrJoin(measured, "; "),
          "); allowed: measure them (pipewright calibrate --device ", device,
          type_ == "fp8" ? " --type fp8" : "",
          " --model MODEL --microbatch-sizes ", training_.microbatch_size,
          " --sequences ", training_.sequence, " --tp ", training_.tp,
          ep.empty() ? "" : absl::StrCat(" --ep ", training_.ep),
          " -o PROFILE)",
          options_.scale_shapes
              ? ""
              : ", or carry other shapes over by their work (--scale-shapes "
                "true)"));
}

double ProfileLookup::SplitPrice() const {
  double seconds[kNumProfilePasses] = {};
  for (const ProfiledTime& time : times_) {
    if (time.part != layer_parts_.front()) continue;
    seconds[static_cast<int>(time.pass)] = time.seconds;
  }
  const double full = seconds[static_cast<int>(ProfilePass::kBackwardFull)];
  const double input = seconds[static_cast<int>(ProfilePass::kBackwardInput)];
  const double weight = seconds[static_cast<int>(ProfilePass::kBackwardWeight)];
  return full > 0 && input > 0 && weight > 0 ? (input + weight) / full : 0;
}

}  // namespace pipewright
