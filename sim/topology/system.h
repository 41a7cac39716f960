// Systems: shapes with the numbers of real hardware, each number with its
// source. Files are text protobufs (sim/proto/system.proto); those in
// topologies/ are part of the binary. A system says nothing about the number
// of nodes: that is the run's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/topology/registry.h"

namespace pipewright {

// Reads a system file. Error: kInvalidArgument "SOURCE_NAME:LINE: ..." for
// what does not parse, an unknown field (with the nearest known one), a value
// without unit, a number without source, a missing field.
absl::StatusOr<ShapeParams> ParseSystem(absl::string_view textproto,
                                        absl::string_view source_name);

// A shipped system, one node. Error: kInvalidArgument with the nearest name.
absl::StatusOr<ShapeParams> FindSystem(absl::string_view name);

// The text of a shipped system. Error as FindSystem's.
absl::StatusOr<std::string> SystemText(absl::string_view name);

// What stands in place of a system's own numbers; their `source` says where
// they are from. Null: what the system has.
struct SystemNumbers {
  std::string name;
  std::string summary;
  std::optional<LinkClass> nvlink;
  std::optional<LinkClass> nic;
  std::optional<LinkClass> pcie;
  std::optional<double> host_bytes_per_s;  // one device's share
  std::string host_source;
};
// The system with these numbers, as text. Errors as ParseSystem's.
absl::StatusOr<std::string> SystemTextWith(absl::string_view textproto,
                                           absl::string_view source_name,
                                           const SystemNumbers& numbers);

// The shipped systems, sorted.
std::vector<std::string> SystemNames();

// Name and summary, then a line a number with its unit and source.
std::string ToString(const ShapeParams& params);

}  // namespace pipewright
