#include "sim/analysis/sweep/points.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/check_texts.h"
#include "sim/config/config_fields.h"

namespace pipewright {
namespace {

// FNV-1a of 128 bits (http://www.isthe.com/chongo/tech/comp/fnv).
class LongHash {
 public:
  void Add(absl::string_view text) {
    for (const char letter : text) {
      hash_ = (hash_ ^ static_cast<unsigned char>(letter)) * kPrime;
    }
    hash_ = (hash_ ^ 0x1f) * kPrime;
  }
  PointHash bytes() const {
    PointHash bytes;
    for (size_t index = 0; index < bytes.size(); ++index) {
      bytes[index] = static_cast<uint8_t>(hash_ >> (8 * index));
    }
    return bytes;
  }

 private:
  using Wide = unsigned __int128;
  static constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
  Wide hash_ = (Wide{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
};

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
    if (!SameField(field, config, base_config_)) patch.fields.push_back(&field);
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
  absl::StatusOr<RunConfig> config =
      composes_ ? absl::StatusOr<RunConfig>(Compose(choices)) : Read(choices);
  if (config.ok() && !config->engine) config->engine = engine_;
  return config;
}

PointHash SweepPoints::HashOf(const RunConfig& config) const {
  LongHash hash;
  hash.Add(absl::StrCat("version ", kModelVersion));
  std::vector<InputField> inputs = InputFields(config);
  if (inputs.empty()) {
    hash.Add(ToString(config));
    return hash.bytes();
  }
  RunConfig named = config;
  const auto rename = [this](std::optional<std::string>* path) {
    if (!*path) return;
    const auto known = digest_of_file_.find(**path);
    if (known != digest_of_file_.end()) *path = known->second;
  };
  rename(&named.schedule.file);
  rename(&named.system.file);
  rename(&named.model.hf);
  rename(&named.costs.profile);
  rename(&named.costs.analytic_device);
  rename(&named.costs.analytic_silicon);
  rename(&named.sequences.lengths);
  hash.Add(ToString(named));
  return hash.bytes();
}

PointHash SweepPoints::HashOfRefused(const SweepChoices& choices) const {
  LongHash hash;
  hash.Add(absl::StrCat("version ", kModelVersion, " refused"));
  hash.Add(ToString(base_config_));
  hash.Add(AxesJson(choices));
  return hash.bytes();
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

PointHash HashOfText(const std::string& text) {
  PointHash hash{};
  if (text.size() != 2 * hash.size()) return hash;
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

std::string HashText(const PointHash& hash) {
  std::string text;
  for (const uint8_t byte : hash) absl::StrAppendFormat(&text, "%02x", byte);
  return text;
}

}  // namespace pipewright
