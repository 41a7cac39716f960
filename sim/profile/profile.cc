#include "sim/profile/profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// What of the model a part's time depends on.
std::string ModelKey(const ProfileModel& model, ProfilePart part) {
  std::string key = absl::StrCat(model.style, " h", model.hidden);
  if (IsLayer(part)) {
    absl::StrAppend(&key, " a", model.heads);
    if (model.kv_heads != model.heads) {
      absl::StrAppend(&key, "/", model.kv_heads);
    }
    absl::StrAppend(&key, " d", model.head_dim);
    if (part == ProfilePart::kLayer) {
      absl::StrAppend(&key, " f", model.ffn);
    } else {
      absl::StrAppend(&key, " e", model.experts, "/", model.experts_per_token,
                      " f", model.expert_ffn);
      if (model.shared_ffn > 0) {
        absl::StrAppend(&key, " shared f", model.shared_ffn);
      }
    }
    absl::StrAppend(&key, model.causal ? "" : " bidirectional");
  } else {
    absl::StrAppend(&key, " v", model.vocabulary);
  }
  return key;
}

std::string WorkKey(absl::string_view type, int64_t microbatch_size,
                    int64_t sequence, int64_t tp, int64_t ep) {
  return absl::StrCat(" ", type, " b", microbatch_size, " s", sequence, " tp",
                      tp, ep > 1 ? absl::StrCat(" ep", ep) : "");
}

// Exact, so that near sizes stay two.
std::string SizeKey(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (unit < 3 && bytes > 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, " ", units[unit]);
}

absl::string_view OppositeOf(CopyDirection direction) {
  return CopyName(direction == CopyDirection::kHostToDevice
                      ? CopyDirection::kDeviceToHost
                      : CopyDirection::kHostToDevice);
}

// Entries of `newer` behind those of `merged` that it does not have; one of
// the same key is replaced where it stands.
template <class Entry>
void MergeEntries(const std::vector<Entry>& newer, std::vector<Entry>* merged) {
  std::map<std::string, size_t> places;
  for (size_t index = 0; index < merged->size(); ++index) {
    places[KeyOf((*merged)[index])] = index;
  }
  for (const Entry& entry : newer) {
    const auto [place, is_new] = places.emplace(KeyOf(entry), merged->size());
    if (is_new) {
      merged->push_back(entry);
    } else {
      (*merged)[place->second] = entry;
    }
  }
}

// Imports from tools that do not say have none.
std::vector<std::string> Devices(const Profile& profile) {
  std::vector<std::string> devices;
  for (const ProfileSource& source : profile.sources) {
    if (!source.device.empty() && std::find(devices.begin(), devices.end(),
                                            source.device) == devices.end()) {
      devices.push_back(source.device);
    }
  }
  return devices;
}

}  // namespace

absl::StatusOr<Profile> MergeProfiles(const Profile& older,
                                      const Profile& newer) {
  const std::vector<std::string> before = Devices(older);
  for (const std::string& device : Devices(newer)) {
    if (before.empty() ||
        std::find(before.begin(), before.end(), device) != before.end()) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("profiles of different devices cannot be one: '",
                     absl::StrJoin(before, "', '"), "' and '", device, "'"));
  }
  Profile merged = older;
  merged.sources.insert(merged.sources.end(), newer.sources.begin(),
                        newer.sources.end());
  MergeEntries(newer.passes, &merged.passes);
  MergeEntries(newer.splits, &merged.splits);
  MergeEntries(newer.kernels, &merged.kernels);
  MergeEntries(newer.optimizers, &merged.optimizers);
  MergeEntries(newer.copies, &merged.copies);
  MergeEntries(newer.transfers, &merged.transfers);
  MergeEntries(newer.interference, &merged.interference);
  if (newer.host_memory_bytes_per_s > 0) {
    merged.host_memory_bytes_per_s = newer.host_memory_bytes_per_s;
  }
  if (newer.device_memory_bytes_per_s > 0) {
    merged.device_memory_bytes_per_s = newer.device_memory_bytes_per_s;
  }
  merged.complete = older.complete && newer.complete;
  return merged;
}

std::string KeyOf(const PassEntry& entry) {
  return absl::StrCat(
      ProfilePartName(entry.part), " ", ProfilePassName(entry.pass), " ",
      ModelKey(entry.model, entry.part),
      WorkKey(entry.type, entry.microbatch_size, entry.sequence, entry.tp,
              entry.ep),
      entry.slices > 0 ? absl::StrCat(" 1/", entry.slices, " slice") : "",
      entry.pp > 0 ? absl::StrCat(" rank ", entry.rank, " of ", entry.pp) : "");
}

namespace {

ProfilePart PartOf(const SplitEntry& split) {
  return split.ep > 0 ? ProfilePart::kExpertLayer : ProfilePart::kLayer;
}

}  // namespace

bool IsSplitOf(const SplitEntry& split, const PassEntry& entry) {
  return entry.slices == 0 && entry.pp == 0 && entry.part == PartOf(split) &&
         entry.model == split.model && entry.type == split.type &&
         entry.microbatch_size == split.microbatch_size &&
         entry.sequence == split.sequence && entry.tp == split.tp &&
         entry.ep == split.ep;
}

std::string KeyOf(const SplitEntry& entry) {
  return absl::StrCat("split ", entry.recompute ? "F+R+B+W " : "F+B+W ",
                      ModelKey(entry.model, PartOf(entry)),
                      WorkKey(entry.type, entry.microbatch_size, entry.sequence,
                              entry.tp, entry.ep));
}

std::string KeyOf(const KernelEntry& entry) {
  return absl::StrCat(entry.name, " ", absl::StrJoin(entry.shape, "x"), " ",
                      entry.type);
}

std::string KeyOf(const OptimizerEntry& entry) {
  return absl::StrCat(entry.prediction ? "prediction " : "adam ", entry.where,
                      " ", entry.parameters);
}

std::string KeyOf(const CopyEntry& entry) {
  return absl::StrCat(
      CopyName(entry.direction), " ", SizeKey(entry.bytes),
      entry.beside_opposite
          ? absl::StrCat(" beside ", OppositeOf(entry.direction))
          : "");
}

std::string KeyOf(const TransferEntry& entry) {
  return absl::StrCat(
      entry.operation, " ", SizeKey(entry.bytes), " ", entry.ranks, " ranks ",
      entry.nodes > 1 ? absl::StrCat("on ", entry.nodes, " nodes ") : "",
      entry.transport);
}

std::string KeyOf(const InterferenceEntry& entry) {
  return absl::StrCat(ProfilePassName(entry.pass), " beside ",
                      BesideName(entry.beside));
}

absl::string_view ProfilePartName(ProfilePart part) {
  switch (part) {
    case ProfilePart::kEmbedding:
      return "embedding";
    case ProfilePart::kLayer:
      return "layer";
    case ProfilePart::kHead:
      return "head";
    case ProfilePart::kExpertLayer:
      return "expert-layer";
  }
  PW_CHECK(false);
}

absl::string_view ProfilePassName(ProfilePass pass) {
  switch (pass) {
    case ProfilePass::kForward:
      return "F";
    case ProfilePass::kBackwardInput:
      return "B";
    case ProfilePass::kBackwardWeight:
      return "W";
    case ProfilePass::kBackwardFull:
      return "BW";
    case ProfilePass::kRecompute:
      return "R";
  }
  PW_CHECK(false);
}

absl::string_view BesideName(Beside beside) {
  switch (beside) {
    case Beside::kD2H:
      return "d2h";
    case Beside::kH2D:
      return "h2d";
    case Beside::kBothCopies:
      return "both";
    case Beside::kSendRecv:
      return "send_recv";
    case Beside::kCollective:
      return "collective";
  }
  PW_CHECK(false);
}

absl::string_view CopyName(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::kHostToDevice:
      return "h2d";
    case CopyDirection::kDeviceToHost:
      return "d2h";
    case CopyDirection::kDeviceToDevice:
      return "d2d";
  }
  PW_CHECK(false);
}

namespace {

std::string Micros(double seconds) {
  return absl::StrFormat("%.9g", seconds * 1e6);
}

}  // namespace

Wrong WhatIsWrong(const Distribution& time) {
  const auto most = [](const char* field, double value, double limit) -> Wrong {
    if (value <= limit) return {};
    return {field, Micros(value), absl::StrCat("at most ", Micros(limit))};
  };
  const auto least = [](const char* field, double value,
                        double limit) -> Wrong {
    if (value == 0 || value >= limit) return {};
    return {field, Micros(value), absl::StrCat("at least ", Micros(limit))};
  };
  const double median = time.median_s;
  if (median <= 0) return {"median_us", Micros(median), "more than 0"};
  if (time.outliers > time.count) {
    return {"outliers", absl::StrCat(time.outliers),
            absl::StrCat("at most ", time.count)};
  }
  for (const Wrong& wrong :
       {most("p10_us", time.p10_s, median), most("min_us", time.min_s, median),
        least("p90_us", time.p90_s, median),
        least("max_us", time.max_s, median),
        most("confidence_low_us", time.confidence_low_s, median),
        least("confidence_high_us", time.confidence_high_s, median),
        most("prediction_low_us", time.prediction_low_s,
             time.prediction_high_s)}) {
    if (wrong.field != nullptr) return wrong;
  }
  if (time.quantiles_s.size() == 1) {
    return {"quantiles_us", Micros(time.quantiles_s[0]),
            "none, or two or more"};
  }
  for (size_t index = 1; index < time.quantiles_s.size(); ++index) {
    if (time.quantiles_s[index] < time.quantiles_s[index - 1]) {
      return {"quantiles_us", Micros(time.quantiles_s[index]),
              "numbers that do not fall"};
    }
  }
  return {};
}

Wrong WhatIsWrong(const InterferenceEntry& entry) {
  const auto number = [](double value) { return absl::StrCat(value); };
  if (entry.pass_slowdown <= 0) {
    return {"pass_slowdown", number(entry.pass_slowdown), "more than 0"};
  }
  if (entry.beside_slowdown <= 0) {
    return {"beside_slowdown", number(entry.beside_slowdown), "more than 0"};
  }
  if (entry.pass_high < entry.pass_low) {
    return {"pass_high", number(entry.pass_high), "pass_low or more"};
  }
  if (entry.beside_high < entry.beside_low) {
    return {"beside_high", number(entry.beside_high), "beside_low or more"};
  }
  return {};
}

// Written at build time (cmake/embed.cmake).
const std::vector<std::pair<std::string, std::string>>& EmbeddedProfiles();

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const auto& [name, text] : EmbeddedProfiles()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsProfileFile(absl::string_view name_or_path) {
  return absl::StrContains(name_or_path, '/') ||
         absl::EndsWith(name_or_path, ".txtpb") ||
         absl::EndsWith(name_or_path, ".textproto") ||
         absl::EndsWith(name_or_path, ".pbtxt");
}

absl::StatusOr<Profile> FindProfile(const std::string& name_or_path) {
  if (IsProfileFile(name_or_path)) {
    PW_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(name_or_path, InputKind::kProfile));
    return ReadProfile(text, name_or_path);
  }
  for (const auto& [name, text] : EmbeddedProfiles()) {
    if (name == name_or_path) return ReadProfile(text, name);
  }
  if (EmbeddedProfiles().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown profile '", name_or_path,
        "' (none ships with this version); allowed: a file, with a '/' or "
        "ending in .txtpb, as pipewright calibrate writes it"));
  }
  return UnknownName("profile", name_or_path, ProfileNames());
}

}  // namespace pipewright
