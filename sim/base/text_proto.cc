#include "sim/base/text_proto.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

constexpr char kUnknownField[] = "has no field named \"";

// The fields of a message and of all messages inside it.
void FieldNames(const Descriptor* message, std::vector<std::string>* names) {
  for (int index = 0; index < message->field_count(); ++index) {
    const FieldDescriptor* field = message->field(index);
    names->push_back(field->name());
    if (field->message_type() != nullptr) {
      FieldNames(field->message_type(), names);
    }
  }
}

// Keeps the first error: later ones follow from it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(const Descriptor* message) : descriptor_(message) {}

  // `line` counts from 0; -1 when there is none.
  void AddError(int line, int /*column*/, const std::string& text) override {
    if (!message_.empty()) return;
    line_ = line;
    message_ = text;
    // protobuf's words: Message type "X" has no field named "Y".
    const size_t place = text.find(kUnknownField);
    if (place == std::string::npos) return;
    const std::string rest = text.substr(place + sizeof(kUnknownField) - 1);
    std::vector<std::string> known;
    FieldNames(descriptor_, &known);
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    message_ = std::string(
        UnknownName("field", rest.substr(0, rest.find('"')), known).message());
  }
  absl::Status status(absl::string_view source) const {
    return AtLine(source, line_, absl::InvalidArgumentError(message_));
  }

 private:
  const Descriptor* descriptor_;
  int line_ = -1;
  std::string message_;
};

}  // namespace

absl::Status ParseTextProto(absl::string_view text, absl::string_view source,
                            google::protobuf::Message* message,
                            TextFormat::ParseInfoTree* lines) {
  if (text.size() > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", text.size(),
                     " bytes are too many; allowed: less than 2 GiB"));
  }
  FirstError error(message->GetDescriptor());
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(lines);
  google::protobuf::io::ArrayInputStream stream(text.data(),
                                                static_cast<int>(text.size()));
  return parser.Parse(&stream, message) ? absl::OkStatus()
                                        : error.status(source);
}

absl::Status AtLine(absl::string_view source, int line,
                    const absl::Status& status) {
  return InFile(source, line + 1, status);
}

}  // namespace pipewright
