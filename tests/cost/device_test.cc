// Device files: what ships, and what is refused.
#include "sim/cost/device.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "sim/base/error_parts.h"

namespace pipewright::device_test {
namespace {

TEST_CASE("devices: those of earlier versions have their numbers", "[cost]") {
  const struct {
    const char* name;
    double bf16, fp8, bandwidth, memory;
    int multiprocessors;
    double sustained;
  } rows[] = {
      {"a100-40gb", 312e12, 0, 1.555e12, 40.0 * (1 << 30), 108, 0.75},
      {"a100-80gb", 312e12, 0, 2.039e12, 80.0 * (1 << 30), 108, 0.75},
      {"h100", 989.4e12, 1978.9e12, 3.35e12, 80.0 * (1 << 30), 132, 0.82},
      {"h200", 989.4e12, 1978.9e12, 4.8e12, 141e9, 132, 0.82},
      {"b200", 2250e12, 4500e12, 8e12, 180e9, 148, 0.82},
      {"mi300x", 1307.4e12, 2614.9e12, 5.3e12, 192.0 * (1 << 30), 304, 0.54}};
  for (const auto& row : rows) {
    INFO(row.name);
    const auto device = FindDevice(row.name);
    REQUIRE(device.ok());
    CHECK(device->bf16_flops == Approx(row.bf16));
    CHECK(device->fp8_flops == Approx(row.fp8));
    CHECK(device->hbm_bytes_per_s == Approx(row.bandwidth));
    CHECK(device->memory_bytes == Approx(row.memory));
    CHECK(device->multiprocessors == row.multiprocessors);
    CHECK(device->bf16_sustained == row.sustained);
    CHECK(FindDevice(device->device_name)->name == row.name);
  }
}

TEST_CASE("devices: every number has a source", "[cost]") {
  CHECK(AllDevices().size() >= 15);
  for (const DeviceSpec& device : AllDevices()) {
    INFO(device.name);
    CHECK_FALSE(device.architecture.empty());
    for (const auto& [field, source] : device.sources) {
      INFO(field);
      CHECK(source.size() > 5);
    }
    CHECK(device.sources.find("bf16_flops") != device.sources.end());
    // The A100 tables are taken only when asked for.
    CHECK(device.silicon_by_default != absl::StartsWith(device.name, "a100"));
  }
}

TEST_CASE("devices: a file is read, and refused with line and field",
          "[cost]") {
  const std::string text = *DeviceFileText("h100");
  REQUIRE(ReadDevice(text, "d.textproto").ok());
  CHECK(ReadDevice(text, "d.textproto")->bf16_flops == Approx(989.4e12));
  const struct {
    const char* from;
    const char* to;
    const char* says;
  } cases[] = {
      {"bf16_flops {", "fp4_flops {", "bf16_flops: must be"},
      {"value: 989.4e12", "value: 0", "bf16_flops.value"},
      {"value: 989.4e12", "value: nan", "bf16_flops.value"},
      {"value: 989.4e12", "value: -1", "bf16_flops.value"},
      {"value: 0.82", "value: 1.2", "bf16_sustained.value"},
      {"name: \"h100\"\n", "", "name"},
      {"architecture: \"hopper\"", "architecture: \"hoper\"", "architecture"},
      {"board_watts {  # [data sheet]\n  value: 700",
       "fp4_flops {\n  value: 7e15", "all three, or none"},
      {"bf16_flops {", "bf16_flop {", "bf16_flop"},
  };
  for (const auto& bad : cases) {
    const std::string changed = absl::StrReplaceAll(text, {{bad.from, bad.to}});
    REQUIRE(changed != text);
    const auto device = ReadDevice(changed, "d.textproto");
    INFO(bad.from << " -> " << bad.to);
    REQUIRE_FALSE(device.ok());
    INFO(device.status());
    CHECK(device.status().code() == absl::StatusCode::kInvalidArgument);
    if (absl::string_view(bad.says) != "bf16_flops: must be") {
      CHECK(absl::StrContains(device.status().message(), bad.says));
    } else {
      CHECK(PartsOf(device.status()).field == "bf16_flops");
    }
    CHECK(absl::StrContains(device.status().message(), "d.textproto"));
  }
}

}  // namespace
}  // namespace pipewright::device_test
