#include "sim/analysis/sweep/points.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/digest.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/config/check_texts.h"
#include "sim/config/config_fields.h"

namespace pipewright {
namespace {

// FNV-1a of 128 bits (http://www.isthe.com/chongo/tech/comp/fnv), its halves
// mixed as MurmurHash3 does in the end (github.com/aappleby/smhasher), so that
// sums of such hashes do not meet.
class LongHash {
 public:
  void Add(absl::string_view text) {
    for (const char letter : text) {
      hash_ = (hash_ ^ static_cast<unsigned char>(letter)) * kPrime;
    }
    hash_ = (hash_ ^ 0x1f) * kPrime;
  }
  absl::uint128 Value() const {
    uint64_t high = absl::Uint128High64(hash_);
    uint64_t low = absl::Uint128Low64(hash_);
    low += high;
    high += low;
    low = Mixed(low);
    high = Mixed(high);
    low += high;
    high += low;
    return absl::MakeUint128(high, low);
  }

 private:
  static constexpr absl::uint128 kPrime =
      absl::MakeUint128(uint64_t{1} << 24, 0x13b);
  static uint64_t Mixed(uint64_t half) {
    half = (half ^ half >> 33) * 0xff51afd7ed558ccd;
    half = (half ^ half >> 33) * 0xc4ceb9fe1a85ec53;
    return half ^ half >> 33;
  }
  absl::uint128 hash_ =
      absl::MakeUint128(0x6c62272e07bb0142, 0x62b821756295c58d);
};

PointHash BytesOf(absl::uint128 hash) {
  PointHash bytes;
  for (size_t index = 0; index < bytes.size(); ++index) {
    bytes[index] = static_cast<uint8_t>(absl::Uint128Low64(hash >> 8 * index));
  }
  return bytes;
}

// Fields whose value may be the path of a file.
bool MayNameFile(absl::string_view path) {
  for (const char* field : {"schedule.file", "system.file", "model.hf",
                            "costs.profile", "costs.analytic.device",
                            "costs.analytic.silicon", "sequences.lengths"}) {
    if (path == field) return true;
  }
  return false;
}

RunConfig OnEngine(RunConfig config, const std::string& engine) {
  if (!config.engine) config.engine = engine;
  return config;
}

// The name of the axis and its value, in front of what is wrong with it.
absl::Status AtAxis(const SweepAxis& axis, int32_t choice,
                    const absl::Status& status) {
  if (status.ok()) return status;
  const ErrorParts parts = PartsOf(status);
  std::string value;
  for (size_t index = 0; index < axis.names.size(); ++index) {
    absl::StrAppend(&value, index > 0 ? ":" : "", axis.values[choice][index]);
  }
  absl::Status out = Reworded(
      status, absl::StrCat(axis.place, ": axis ", axis.Name(), ": value '",
                           value, "': ", status.message()));
  if (!parts.field) out = AboutField(axis.Name(), out);
  return parts.value ? out : WithValue(out, value, parts.allowed.value_or(""));
}

}  // namespace

absl::StatusOr<SweepPoints> SweepPoints::Create(SweepBase base, SweepGrid grid,
                                                const std::string& engine,
                                                RunContext* context) {
  SweepPoints points;
  PW_RETURN_IF_ERROR(CheckGrid(grid));
  points.base_ = std::move(base);
  points.grid_ = std::move(grid);
  points.engine_ = engine;
  PW_ASSIGN_OR_RETURN(points.base_config_, points.Read({}));
  PW_RETURN_IF_ERROR(CheckTexts(points.base_config_, engine));
  PW_RETURN_IF_ERROR(points.ReadDigests(points.base_config_, context));
  PW_RETURN_IF_ERROR(points.ReadValues(context));
  points.composes_ = points.Composes();
  points.base_hash_ = points.SumOf(points.base_config_);
  return points;
}

absl::StatusOr<RunConfig> SweepPoints::Read(const SweepChoices& choices) const {
  std::vector<ConfigEdit> edits;
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis] < 0) continue;
    PW_ASSIGN_OR_RETURN(const std::vector<ConfigEdit> of_axis,
                        EditsOf(grid_.axes[axis], choices[axis]));
    edits.insert(edits.end(), of_axis.begin(), of_axis.end());
  }
  return base_(edits);
}

absl::Status SweepPoints::ReadValues(RunContext* context) {
  SweepChoices choices(grid_.axes.size(), -1);
  for (size_t axis = 0; axis < grid_.axes.size(); ++axis) {
    auto& patches = patches_.emplace_back();
    const auto count = static_cast<int32_t>(grid_.axes[axis].values.size());
    for (int32_t choice = 0; choice < count; ++choice) {
      choices[axis] = choice;
      const auto at = [&](const absl::Status& status) {
        return AtAxis(grid_.axes[axis], choice, status);
      };
      absl::StatusOr<RunConfig> config = Read(choices);
      PW_RETURN_IF_ERROR(at(config.status()));
      PW_RETURN_IF_ERROR(at(CheckTexts(*config, engine_)));
      PW_RETURN_IF_ERROR(at(ReadDigests(*config, context)));
      patches.push_back(PatchTo(*std::move(config)));
    }
    choices[axis] = -1;
  }
  return absl::OkStatus();
}

absl::Status SweepPoints::ReadDigests(const RunConfig& config,
                                      RunContext* context) {
  for (const InputField& input : InputFields(config)) {
    if (digest_of_file_.count(input.path) > 0) continue;
    const FieldPlace field = config.Field(input.field);
    PW_RETURN_IF_ERROR(context->ReadInput(field, input));
    digest_of_file_[input.path] = context->DigestOfFile(input.path);
  }
  return absl::OkStatus();
}

SweepPoints::Patch SweepPoints::PatchTo(RunConfig config) const {
  Patch patch;
  for (const auto& [path, origin] : config.origins) {
    const auto known = base_config_.origins.find(path);
    if (known == base_config_.origins.end() ||
        known->second.flag != origin.flag) {
      patch.origins.emplace_back(path, origin);
    }
  }
  for (const auto& [path, origin] : base_config_.origins) {
    if (config.origins.count(path) == 0) patch.origins_gone.push_back(path);
  }
  for (const ConfigField& field : ConfigFields()) {
    if (SameField(field, config, base_config_)) continue;
    patch.fields.push_back(&field);
    patch.hash += HashOfField(field, config) - HashOfField(field, base_config_);
  }
  patch.notes = config.notes != base_config_.notes;
  patch.config = std::make_shared<const RunConfig>(std::move(config));
  return patch;
}

RunConfig SweepPoints::Compose(const SweepChoices& choices) const {
  RunConfig config = base_config_;
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis] < 0) continue;
    const Patch& patch = patches_[axis][choices[axis]];
    for (const ConfigField* field : patch.fields) {
      CopyField(*field, *patch.config, &config);
    }
    if (patch.notes) config.notes = patch.config->notes;
    for (const std::string& path : patch.origins_gone) {
      config.origins.erase(path);
    }
    for (const auto& [path, origin] : patch.origins) {
      config.origins[path] = origin;
    }
  }
  return config;
}

// Patches compose where no two axes change one field. What reading checks
// between fields is tried on the ends of every pair of axes.
bool SweepPoints::Composes() const {
  std::set<const ConfigField*> taken;
  bool notes_taken = false;
  for (const std::vector<Patch>& axis : patches_) {
    std::set<const ConfigField*> own;
    bool notes = false;
    for (const Patch& patch : axis) {
      own.insert(patch.fields.begin(), patch.fields.end());
      notes |= patch.notes;
    }
    for (const ConfigField* field : own) {
      if (!taken.insert(field).second) return false;
    }
    if (notes && notes_taken) return false;
    notes_taken |= notes;
  }
  const auto agrees = [this](const SweepChoices& choices) {
    const absl::StatusOr<RunConfig> read = Read(choices);
    return read.ok() && ToString(*read) == ToString(Compose(choices));
  };
  const auto ends = [this](size_t axis) {
    const auto last = static_cast<int32_t>(patches_[axis].size()) - 1;
    return last > 0 ? std::vector<int32_t>{0, last} : std::vector<int32_t>{0};
  };
  SweepChoices choices(patches_.size(), -1);
  for (size_t one = 0; one < patches_.size(); ++one) {
    for (size_t other = one + 1; other < patches_.size(); ++other) {
      for (const int32_t choice : ends(one)) {
        for (const int32_t partner : ends(other)) {
          choices[one] = choice;
          choices[other] = partner;
          if (!agrees(choices)) return false;
        }
      }
      choices[one] = choices[other] = -1;
    }
  }
  return true;
}

absl::StatusOr<RunConfig> SweepPoints::At(const SweepChoices& choices) const {
  if (composes_) return OnEngine(Compose(choices), engine_);
  PW_ASSIGN_OR_RETURN(RunConfig config, Read(choices));
  return OnEngine(std::move(config), engine_);
}

// 0 if it is not given. A file is what it holds, and an engine what runs.
absl::uint128 SweepPoints::HashOfField(const ConfigField& field,
                                       const RunConfig& config) const {
  absl::uint128 sum = 0;
  const auto add = [&sum](absl::string_view path, absl::string_view value) {
    LongHash hash;
    hash.Add(path);
    hash.Add(value);
    sum += hash.Value();
  };
  if (field.kind == FieldKind::kPairs) {
    for (const auto& [key, value] : PairsOf(field, config)) {
      add(absl::StrCat(field.path, ".", key), value);
    }
  } else if (IsGiven(field, config)) {
    const std::string value = ValueOf(field, config);
    const auto file = digest_of_file_.find(value);
    add(field.path, file != digest_of_file_.end() && MayNameFile(field.path)
                        ? file->second
                        : value);
  } else if (absl::string_view(field.path) == "engine") {
    add(field.path, engine_);
  }
  return sum;
}

absl::uint128 SweepPoints::SumOf(const RunConfig& config) const {
  LongHash version;
  version.Add(absl::StrCat("version ", kModelVersion));
  absl::uint128 sum = version.Value();
  for (const ConfigField& field : ConfigFields()) {
    sum += HashOfField(field, config);
  }
  return sum;
}

PointHash SweepPoints::HashOf(const RunConfig& config) const {
  return BytesOf(SumOf(config));
}

PointHash SweepPoints::HashOfRefused(const SweepChoices& choices) const {
  LongHash hash;
  hash.Add(absl::StrCat("version ", kModelVersion, " refused"));
  hash.Add(ToString(base_config_));
  hash.Add(AxesJson(choices));
  return BytesOf(hash.Value());
}

PointHash SweepPoints::HashAt(const SweepChoices& choices) const {
  if (!composes_) {
    const absl::StatusOr<RunConfig> config = At(choices);
    return config.ok() ? HashOf(*config) : HashOfRefused(choices);
  }
  absl::uint128 sum = base_hash_;
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis] >= 0) sum += patches_[axis][choices[axis]].hash;
  }
  return BytesOf(sum);
}

std::string SweepPoints::AxesTable() const {
  Json table = Json::array();
  for (const SweepAxis& axis : grid_.axes) {
    Json values = Json::array();
    for (const std::vector<std::string>& choice : axis.values) {
      Json of_choice = Json::array();
      for (const std::string& value : choice) {
        const SweepCell cell = CellOfValue(value);
        of_choice.push_back(cell.kind == SweepCell::Kind::kNumber
                                ? Json(cell.number)
                                : Json(value));
      }
      values.push_back(std::move(of_choice));
    }
    table.push_back({{"names", axis.names}, {"values", std::move(values)}});
  }
  return table.dump();
}

std::string SweepPoints::GridText() const {
  // Longer lists are told apart by their digest.
  constexpr size_t kShown = 8;
  std::string text = absl::StrCat("model version ", kModelVersion, "\n");
  absl::uint128 contents = base_hash_;
  for (size_t axis = 0; axis < patches_.size(); ++axis) {
    const SweepAxis& of = grid_.axes[axis];
    std::string values;
    std::string shown;
    for (size_t choice = 0; choice < of.values.size(); ++choice) {
      for (size_t index = 0; index < of.names.size(); ++index) {
        absl::StrAppend(&values,
                        index > 0    ? ":"
                        : choice > 0 ? ","
                                     : "",
                        ToString(CellOfValue(of.values[choice][index])));
      }
      if (choice < kShown) shown = values;
      LongHash place;
      place.Add(absl::StrCat(axis, " ", choice, " ",
                             absl::Uint128High64(patches_[axis][choice].hash),
                             " ",
                             absl::Uint128Low64(patches_[axis][choice].hash)));
      contents += place.Value();
    }
    absl::StrAppend(&text, "axis ", of.Name(), "=", shown);
    if (of.values.size() > kShown) {
      absl::StrAppend(&text, ",... (", of.values.size(), " values, ",
                      Digest(values), ")");
    }
    if (of.when) absl::StrAppend(&text, " when ", of.when->text());
    text += '\n';
  }
  for (const SweepFilter& filter : grid_.filters) {
    absl::StrAppend(&text, "filter ", filter.keep.text(), "\n");
  }
  return absl::StrCat(
      text, "contents ",
      absl::Hex(absl::Uint128High64(contents), absl::kZeroPad16),
      absl::Hex(absl::Uint128Low64(contents), absl::kZeroPad16), "\n");
}

std::string SweepPoints::AxesJson(const SweepChoices& choices) const {
  std::string text = "{";
  const auto quote = [&text](absl::string_view word) {
    text += '"';
    for (const char letter : word) {
      if (letter == '"' || letter == '\\') text += '\\';
      if (static_cast<unsigned char>(letter) < 0x20) {
        absl::StrAppendFormat(&text, "\\u%04x", letter);
      } else {
        text += letter;
      }
    }
    text += '"';
  };
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis] < 0) continue;
    const SweepAxis& of = grid_.axes[axis];
    for (size_t index = 0; index < of.names.size(); ++index) {
      if (text.size() > 1) text += ',';
      quote(of.names[index]);
      text += ':';
      const std::string& value = of.values[choices[axis]][index];
      const SweepCell cell = CellOfValue(value);
      if (cell.kind == SweepCell::Kind::kNumber) {
        text += ToString(cell);
      } else {
        quote(value);
      }
    }
  }
  return text + "}";
}

}  // namespace pipewright
