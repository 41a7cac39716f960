// Device files: the text form of a DeviceSpec.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/base/text_proto.h"
#include "sim/cost/device.h"
#include "sim/proto/device.pb.h"

namespace pipewright {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

const std::vector<std::string>& Architectures() {
  static const auto* names = new std::vector<std::string>{
      "ada", "ampere", "blackwell", "cdna3", "hopper", "volta"};
  return *names;
}

struct DeviceNumber {
  const char* field;
  double DeviceSpec::*member;
  bool is_needed;
  double least;
  double most;
};

// Limits of input: no device is near them. [numerics]
constexpr int kMostMultiprocessors = 100'000;
constexpr double kMostFlops = 1e21;

// Peaks and efficiencies, with the least and the most that a file may say; the
// counts stand apart. [numerics]
const std::vector<DeviceNumber>& DeviceNumbers() {
  static const auto* numbers = new std::vector<DeviceNumber>{
      {"bf16_flops", &DeviceSpec::bf16_flops, true, 1e6, kMostFlops},
      {"fp8_flops", &DeviceSpec::fp8_flops, false, 1e6, kMostFlops},
      {"fp4_flops", &DeviceSpec::fp4_flops, false, 1e6, kMostFlops},
      {"hbm_bytes_per_s", &DeviceSpec::hbm_bytes_per_s, true, 1e6, 1e18},
      {"memory_bytes", &DeviceSpec::memory_bytes, true, 1e6, 1e18},
      {"bf16_sustained", &DeviceSpec::bf16_sustained, true, 0.01, 1},
      {"fp8_sustained", &DeviceSpec::fp8_sustained, false, 0.01, 1},
      {"hbm_sustained", &DeviceSpec::hbm_sustained, true, 0.01, 1},
      {"attention_forward", &DeviceSpec::attention_forward, true, 0.01, 1},
      {"attention_backward", &DeviceSpec::attention_backward, true, 0.01, 1},
      {"collective_sustained", &DeviceSpec::collective_sustained, true, 0.01,
       1},
      {"board_watts", &DeviceSpec::board_watts, false, 1, 1e5},
      {"idle_watts", &DeviceSpec::idle_watts, false, 1, 1e5},
      {"bf16_joules_per_flop", &DeviceSpec::bf16_joules_per_flop, false, 1e-16,
       1e-6},
      {"launch_s", &DeviceSpec::launch_s, false, 1e-9, 1},
  };
  return *numbers;
}

class DeviceReader {
 public:
  DeviceReader(absl::string_view source, const proto::Device& device,
               const TextFormat::ParseInfoTree& tree)
      : source_(source), device_(device), tree_(tree) {}

  absl::StatusOr<DeviceSpec> Read() {
    DeviceSpec spec;
    for (const char* name : {"name", "device_name", "architecture"}) {
      if (Text(name).empty()) {
        return At(name, BadValue(name, "missing", "a value"));
      }
    }
    spec.name = device_.name();
    spec.device_name = device_.device_name();
    spec.architecture = device_.architecture();
    const std::vector<std::string>& known = Architectures();
    if (std::find(known.begin(), known.end(), spec.architecture) ==
        known.end()) {
      return At("architecture", BadValue("architecture", spec.architecture,
                                         absl::StrJoin(known, ", ")));
    }
    spec.silicon = device_.silicon();
    spec.silicon_by_default = !device_.silicon_only_if_shipped();
    for (const DeviceNumber& number : DeviceNumbers()) {
      PW_RETURN_IF_ERROR(ReadNumber(number.field, number.is_needed,
                                    number.least, number.most,
                                    &(spec.*number.member), &spec));
    }
    double count = 0;
    PW_RETURN_IF_ERROR(ReadNumber("multiprocessors", true, 1,
                                  kMostMultiprocessors, &count, &spec));
    if (count != std::floor(count)) {
      return At("multiprocessors",
                BadValue("multiprocessors.value", absl::StrCat(count),
                         "a whole number"));
    }
    spec.multiprocessors = static_cast<int>(count);
    if (spec.fp8_flops > 0 && spec.fp8_sustained == 0) {
      return At("fp8_flops",
                BadValue("fp8_sustained", "missing", "a value with fp8_flops"));
    }
    const int powers = (spec.board_watts > 0) + (spec.idle_watts > 0) +
                       (spec.bf16_joules_per_flop > 0);
    if (powers != 0 && powers != 3) {
      return At(spec.board_watts > 0 ? "board_watts" : "idle_watts",
                BadValue("board_watts, idle_watts, bf16_joules_per_flop",
                         absl::StrCat(powers, " of 3"), "all three, or none"));
    }
    if (powers == 3 && spec.idle_watts >= spec.board_watts) {
      return At("idle_watts",
                BadValue("idle_watts", absl::StrCat(spec.idle_watts),
                         "less than board_watts"));
    }
    return spec;
  }

 private:
  const FieldDescriptor* Field(const char* name) const {
    return device_.GetDescriptor()->FindFieldByName(name);
  }
  std::string Text(const char* name) const {
    return device_.GetReflection()->GetString(device_, Field(name));
  }
  absl::Status At(const char* name, const absl::Status& status) const {
    return AtLine(source_, tree_.GetLocation(Field(name), -1).line, status);
  }

  absl::Status ReadNumber(const char* name, bool is_needed, double least,
                          double most, double* value, DeviceSpec* spec) const {
    const FieldDescriptor* field = Field(name);
    if (!device_.GetReflection()->HasField(device_, field)) {
      if (!is_needed) return absl::OkStatus();
      return At(name, BadValue(name, "missing", "a value and its source"));
    }
    const auto& number = static_cast<const proto::SourcedNumber&>(
        device_.GetReflection()->GetMessage(device_, field));
    if (!(number.value() >= least && number.value() <= most)) {
      return At(name, BadValue(absl::StrCat(name, ".value"),
                               absl::StrCat(number.value()),
                               absl::StrCat(least, " to ", most)));
    }
    if (number.source().empty()) {
      return At(name, BadValue(absl::StrCat(name, ".source"), "missing",
                               "where the number is from"));
    }
    *value = number.value();
    spec->sources.Set(name, number.source());
    return absl::OkStatus();
  }

  absl::string_view source_;
  const proto::Device& device_;
  const TextFormat::ParseInfoTree& tree_;
};

}  // namespace

absl::StatusOr<DeviceSpec> ReadDevice(absl::string_view textproto,
                                      absl::string_view source_name) {
  proto::Device device;
  TextFormat::ParseInfoTree tree;
  PW_RETURN_IF_ERROR(ParseTextProto(textproto, source_name, &device, &tree));
  return DeviceReader(source_name, device, tree).Read();
}

}  // namespace pipewright
