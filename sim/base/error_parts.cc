#include "sim/base/error_parts.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kFile[] = "pipewright/file";
constexpr char kLine[] = "pipewright/line";
constexpr char kField[] = "pipewright/field";
constexpr char kValue[] = "pipewright/value";
constexpr char kAllowed[] = "pipewright/allowed";

std::optional<std::string> Part(const absl::Status& status, const char* part) {
  const absl::optional<absl::Cord> found = status.GetPayload(part);
  if (!found) return std::nullopt;
  return std::string(*found);
}

// The function nearest to the mistake has set it first.
void SetIfUnknown(absl::string_view text, const char* part,
                  absl::Status* status) {
  if (text.empty() || status->GetPayload(part)) return;
  status->SetPayload(part, absl::Cord(text));
}

// A line belongs to its file.
void SetPlace(absl::string_view file, int64_t line, absl::Status* status) {
  if (file.empty() || status->GetPayload(kFile)) return;
  status->SetPayload(kFile, absl::Cord(file));
  if (line > 0) status->SetPayload(kLine, absl::Cord(absl::StrCat(line)));
}

FieldPlace Bare(absl::string_view field) {
  return FieldPlace::FromFlag("", field);
}

absl::Status About(const FieldPlace& place, absl::string_view message) {
  return Prefix(place, absl::InvalidArgumentError(message));
}

}  // namespace

absl::Status Reworded(const absl::Status& status, absl::string_view message) {
  absl::Status reworded(status.code(), message);
  status.ForEachPayload([&](absl::string_view part, const absl::Cord& content) {
    reworded.SetPayload(part, content);
  });
  return reworded;
}

ErrorParts PartsOf(const absl::Status& status) {
  ErrorParts parts = {.file = Part(status, kFile),
                      .field = Part(status, kField),
                      .value = Part(status, kValue),
                      .allowed = Part(status, kAllowed)};
  int64_t line = 0;
  if (absl::SimpleAtoi(Part(status, kLine).value_or(""), &line)) {
    parts.line = line;
  }
  return parts;
}

FieldPlace FieldPlace::InFile(absl::string_view file, int64_t line,
                              absl::string_view field) {
  FieldPlace place;
  place.assign(line > 0 ? absl::StrCat(file, ":", line, ": ", field)
                        : absl::StrCat(file, ": ", field));
  place.file = std::string(file);
  place.line = line;
  place.field = std::string(field);
  return place;
}

FieldPlace FieldPlace::FromFlag(absl::string_view origin,
                                absl::string_view field) {
  FieldPlace place;
  place.assign(origin.empty() ? std::string(field)
                              : absl::StrCat(origin, ": ", field));
  place.field = std::string(field);
  return place;
}

std::string Shortened(absl::string_view text) {
  return text.size() <= kMostShown
             ? std::string(text)
             : absl::StrCat(text.substr(0, kMostShown / 2), "... (",
                            text.size(), " bytes)");
}

absl::Status BadValue(const FieldPlace& field, absl::string_view value,
                      absl::string_view allowed) {
  return WithValue(
      About(field, absl::StrCat(value.empty() ? "\"\"" : Shortened(value),
                                " is not allowed; allowed: ", allowed)),
      value, allowed);
}

absl::Status LaterValue(const FieldPlace& field, absl::string_view value,
                        absl::string_view allowed) {
  return WithValue(
      About(field,
            absl::StrCat(value, " is not available in this version; allowed: ",
                         allowed)),
      value, allowed);
}

absl::Status MissingValue(absl::string_view field, absl::string_view allowed) {
  return MissingValue(Bare(field), allowed);
}

absl::Status MissingValue(const FieldPlace& field, absl::string_view allowed) {
  return WithValue(About(field, absl::StrCat("missing; allowed: ", allowed)),
                   "", allowed);
}

absl::Status BothGiven(const FieldPlace& field, absl::string_view other) {
  return WithValue(About(field, absl::StrCat("given together with ", other,
                                             "; allowed: one of them")),
                   "", "one of them");
}

absl::Status FieldError(absl::string_view field, absl::string_view message) {
  return About(Bare(field), message);
}

absl::Status FieldError(const FieldPlace& field, absl::string_view message) {
  return About(field, message);
}

absl::Status Prefix(const FieldPlace& where, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string& text = where;
  absl::Status prefixed = Prefix(absl::string_view(text), status);
  SetPlace(where.file, where.line, &prefixed);
  SetIfUnknown(where.field, kField, &prefixed);
  return prefixed;
}

absl::Status InFile(absl::string_view file, int64_t line,
                    const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status placed = Prefix(
      line > 0 ? absl::StrCat(file, ":", line) : std::string(file), status);
  SetPlace(file, line, &placed);
  return placed;
}

absl::Status AboutFile(absl::string_view file, absl::Status status) {
  if (!status.ok()) SetPlace(file, 0, &status);
  return status;
}

absl::Status AboutField(absl::string_view field, absl::Status status) {
  if (!status.ok()) SetIfUnknown(field, kField, &status);
  return status;
}

absl::Status InField(absl::string_view field, const absl::Status& status) {
  return Prefix(Bare(field), status);
}

absl::Status InSection(absl::string_view section, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status inside =
      Reworded(status, absl::StrCat(section, ".", status.message()));
  if (const std::optional<std::string> field = Part(status, kField)) {
    inside.SetPayload(kField, absl::Cord(absl::StrCat(section, ".", *field)));
  }
  return inside;
}

absl::Status WithValue(absl::Status status, absl::string_view value,
                       absl::string_view allowed) {
  if (status.ok()) return status;
  SetIfUnknown(value, kValue, &status);
  SetIfUnknown(allowed, kAllowed, &status);
  return status;
}

}  // namespace pipewright
