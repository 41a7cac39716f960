// Text -> protobuf message -> RunConfig. The only file that knows the
// generated schema.
#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/config_message.h"
#include "sim/config/config_rivals.h"
#include "sim/config/flags.h"
#include "sim/config/run_config.h"
#include "sim/config/run_config_fields.h"
#include "sim/proto/config.pb.h"

namespace pipewright {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

Unit UnitOf(const FieldDescriptor* field) {
  switch (field->options().GetExtension(proto::unit)) {
    case proto::TIME:
      return Unit::kTime;
    case proto::BYTES:
      return Unit::kBytes;
    case proto::BANDWIDTH:
      return Unit::kBandwidth;
    default:
      return Unit::kNone;
  }
}

// "0" needs no unit, and bytes may be bare: the unit is in the field's name.
std::string WithUnit(const std::string& text, Unit unit) {
  double number = 0;
  if (!absl::SimpleAtod(text, &number)) return text;
  if (unit == Unit::kBytes) return absl::StrCat(text, "B");
  if (number != 0) return text;
  return absl::StrCat(text, unit == Unit::kTime ? "s" : "GBps");
}

// Reads each field of RunConfig out of the message; keeps the first error.
class Reader {
 public:
  Reader(const Message& root, const RunConfig& config)
      : root_(root), config_(config) {}

  const absl::Status& status() const { return status_; }

  void Text(const char* path, std::optional<std::string>& out) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    out = at.message->GetReflection()->GetString(*at.message, at.field);
    if (out->empty()) Fail(path, "\"\"", "a name");
  }
  template <typename Integer>
  void Int(const char* path, std::optional<Integer>& out, int64_t minimum,
           int64_t maximum) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    const auto* reflection = at.message->GetReflection();
    Integer value = 0;
    if constexpr (std::is_same_v<Integer, int64_t>) {
      value = reflection->GetInt64(*at.message, at.field);
    } else {
      value = reflection->GetInt32(*at.message, at.field);
    }
    if (value < minimum || value > maximum) {
      Fail(path, absl::StrCat(value),
           absl::StrCat("an integer from ", minimum, " to ", maximum));
    }
    out = value;
  }
  void Real(const char* path, std::optional<double>& out, double minimum,
            double maximum) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    const double value =
        at.message->GetReflection()->GetDouble(*at.message, at.field);
    if (!std::isfinite(value) || value < minimum || value > maximum) {
      Fail(path, absl::StrCat(value),
           std::isfinite(maximum)
               ? absl::StrCat("a number from ", minimum, " to ", maximum)
               : absl::StrCat("a finite number from ", minimum, " on"));
    }
    out = value;
  }
  void Bool(const char* path, std::optional<bool>& out) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    out = at.message->GetReflection()->GetBool(*at.message, at.field);
  }
  void Quantity(const char* path, std::optional<double>& out, Unit unit) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    out = Parse(path,
                at.message->GetReflection()->GetString(*at.message, at.field),
                unit);
  }
  void Quantities(const char* path, std::vector<double>& out, Unit unit) {
    std::vector<std::string> texts;
    Texts(path, texts);
    for (const std::string& text : texts) {
      out.push_back(Parse(path, text, unit));
    }
  }
  void Reals(const char* path, std::vector<double>& out) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      const double value =
          reflection->GetRepeatedDouble(*at.message, at.field, index);
      if (!std::isfinite(value) || value < 0) {
        Fail(path, absl::StrCat(value), "finite numbers from 0 on");
      }
      out.push_back(value);
    }
  }
  void Ints(const char* path, std::vector<int64_t>& out, int64_t minimum,
            int64_t maximum) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      const int64_t value =
          reflection->GetRepeatedInt64(*at.message, at.field, index);
      if (value < minimum || value > maximum) {
        Fail(path, absl::StrCat(value),
             absl::StrCat("integers from ", minimum, " to ", maximum));
      }
      out.push_back(value);
    }
  }
  void Section(const char* path, bool& out) {
    out = Has(FindField(root_, path));
  }
  void Texts(const char* path, std::vector<std::string>& out) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      out.push_back(
          reflection->GetRepeatedString(*at.message, at.field, index));
    }
  }
  template <typename Enum>
  void Choice(const char* path, std::optional<Enum>& out,
              const std::vector<ChoiceRow>& rows) {
    std::optional<std::string> name;
    Text(path, name);
    if (!name) return;
    std::vector<std::string> available;
    for (const ChoiceRow& row : rows) {
      if (row.available) available.push_back(row.name);
    }
    for (const ChoiceRow& row : rows) {
      if (*name != row.name) continue;
      if (row.available) {
        out = static_cast<Enum>(row.value);
      } else {
        Keep(LaterValue(config_.Field(path), *name,
                        absl::StrJoin(available, ", ")));
      }
      return;
    }
    Keep(Prefix(config_.Field(path), UnknownName("value", *name, available)));
  }
  void Pairs(const char* path, std::map<std::string, std::string>& out) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      const Message& pair =
          reflection->GetRepeatedMessage(*at.message, at.field, index);
      const auto* descriptor = pair.GetDescriptor();
      const auto* inner = pair.GetReflection();
      const std::string key = inner->GetString(pair, descriptor->field(0));
      const bool inserted =
          out.emplace(key, inner->GetString(pair, descriptor->field(1))).second;
      if (!inserted) Fail(path, key, "each key once");
    }
  }

 private:
  static bool Has(const FieldAt& at) {
    return at.message != nullptr &&
           at.message->GetReflection()->HasField(*at.message, at.field);
  }
  double Parse(const char* path, const std::string& text, Unit unit) {
    const absl::StatusOr<double> value =
        ParseQuantity(WithUnit(text, unit), unit);
    if (value.ok()) return *value;
    Keep(Prefix(config_.Field(path), value.status()));
    return 0;
  }
  void Fail(const char* path, absl::string_view value,
            absl::string_view allowed) {
    Keep(BadValue(config_.Field(path), value, allowed));
  }
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Message& root_;
  const RunConfig& config_;
  absl::Status status_;
};

bool EndsInOneOf(absl::string_view name,
                 std::initializer_list<absl::string_view> endings) {
  for (const absl::string_view ending : endings) {
    if (absl::EndsWithIgnoreCase(name, ending)) return true;
  }
  return false;
}

// Text protobuf and YAML look alike; a section that opens with "name {" is
// what YAML has not.
bool LooksLikeTextproto(absl::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const absl::string_view line =
        absl::StripAsciiWhitespace(text.substr(0, end));
    text = end == absl::string_view::npos ? "" : text.substr(end + 1);
    if (line.empty() || line[0] == '#') continue;
    size_t word = 0;
    while (word < line.size() &&
           (absl::ascii_isalnum(line[word]) || line[word] == '_')) {
      ++word;
    }
    const absl::string_view rest =
        absl::StripLeadingAsciiWhitespace(line.substr(word));
    return word > 0 && absl::StartsWith(rest, "{");
  }
  return false;
}

absl::Status FillFromText(absl::string_view text, absl::string_view source,
                          ConfigMessage* target) {
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": holds a zero byte; allowed: text"));
  }
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(text);
  if (EndsInOneOf(source, {".txtpb", ".textproto", ".pbtxt"})) {
    return FillFromTextproto(text, source, target);
  }
  ConfigNode root;
  if (EndsInOneOf(source, {".json"})) {
    PW_ASSIGN_OR_RETURN(root, ParseJsonTree(text, source));
  } else if (EndsInOneOf(source, {".yaml", ".yml"})) {
    PW_ASSIGN_OR_RETURN(root, ParseYamlTree(text, source));
  } else if (absl::StartsWith(start, "{")) {
    PW_ASSIGN_OR_RETURN(root, ParseJsonTree(text, source));
  } else if (LooksLikeTextproto(text)) {
    return FillFromTextproto(text, source, target);
  } else {
    PW_ASSIGN_OR_RETURN(root, ParseYamlTree(text, source));
  }
  return FillFromTree(root, source, target);
}

std::string TextAt(absl::string_view path, const ConfigMessage& target) {
  const FieldAt at = FindField(*target.message, path);
  return at.message == nullptr
             ? ""
             : at.message->GetReflection()->GetString(*at.message, at.field);
}

absl::Status ApplyLayer(const std::vector<ConfigEdit>& layer,
                        ConfigMessage* target) {
  const std::string schedule = TextAt("schedule.name", *target);
  for (const ConfigEdit& edit : layer) {
    for (const std::string& rival : RivalsOf(edit.path)) {
      const auto origin = target->origins.find(rival);
      if (IsDetail(rival) && origin != target->origins.end() &&
          absl::StartsWith(origin->second, "--set ")) {
        continue;
      }
      ClearPath(rival, target);
      target->origins.erase(rival);
    }
    // Own parameters belong to the schedule that was chosen with them.
    if (edit.path == "schedule.file" ||
        (edit.path == "schedule.name" && edit.value != schedule)) {
      ClearPath("schedule.params", target);
    }
  }
  for (const ConfigEdit& edit : layer) {
    PW_RETURN_IF_ERROR(ApplyEdit(edit, target));
  }
  return absl::OkStatus();
}

// Relative paths in a file are relative to that file.
void ResolvePath(const char* path, absl::string_view source, RunConfig* config,
                 std::optional<std::string>* file) {
  const auto origin = config->origins.find(path);
  if (!*file || absl::StartsWith(**file, "/") ||
      origin == config->origins.end() ||
      !absl::StartsWith(origin->second, absl::StrCat(source, ":"))) {
    return;
  }
  const size_t slash = source.rfind('/');
  if (slash == absl::string_view::npos) return;
  *file = absl::StrCat(source.substr(0, slash + 1), **file);
}

// schedule.name may hold a file, as --schedule may.
void TakeScheduleFile(absl::string_view source, RunConfig* config) {
  ScheduleChoice& schedule = config->schedule;
  if (!schedule.name || schedule.file) return;
  std::optional<std::string> path = schedule.name;
  ResolvePath("schedule.name", source, config, &path);
  if (!IsScheduleFile(*schedule.name, *path)) return;
  schedule.file = path;
  schedule.name.reset();
  config->origins["schedule.file"] = config->origins["schedule.name"];
  config->origins.erase("schedule.name");
}

}  // namespace

absl::StatusOr<RunConfig> ReadConfig(
    absl::string_view text, absl::string_view source_name,
    const std::vector<std::vector<ConfigEdit>>& layers) {
  proto::RunConfig message;
  ConfigMessage target = {&message, &UnitOf, {"costs.profile", "report"}, {}};
  if (!source_name.empty()) {
    PW_RETURN_IF_ERROR(FillFromText(text, source_name, &target));
  }
  for (const std::vector<ConfigEdit>& layer : layers) {
    PW_RETURN_IF_ERROR(ApplyLayer(layer, &target));
  }
  RunConfig config;
  config.origins = std::move(target.origins);
  Reader reader(message, config);
  VisitFields(config, reader);
  PW_RETURN_IF_ERROR(reader.status());
  ResolvePath("schedule.file", source_name, &config, &config.schedule.file);
  TakeScheduleFile(source_name, &config);
  ResolvePath("system.file", source_name, &config, &config.system.file);
  ResolvePath("model.hf", source_name, &config, &config.model.hf);
  return config;
}

absl::StatusOr<RunConfig> ReadConfig(absl::string_view text,
                                     absl::string_view source_name) {
  return ReadConfig(text, source_name, {});
}

std::vector<std::string> ConfigPaths() {
  return FieldPaths(proto::RunConfig::descriptor());
}

}  // namespace pipewright
