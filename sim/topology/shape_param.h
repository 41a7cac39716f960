// A parameter of system.params: one that only some shapes have, or one of the
// inside of a node. Its row says what it means and what is legal; the registry
// holds values against that, so that a shape reads a value without a check of
// its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Values by key, as given or complete with defaults.
using ShapeParamValues = std::map<std::string, std::string>;

struct ShapeParam {
  enum class Kind {
    kInteger,
    kNumber,
    kChoice,
    kSizes,      // "4x4x2" or "auto": 1 to `most` integers of 1 or more
    kBandwidth,  // with its unit, "400Gbps"; inside, bytes per second
    kTime,       // with its unit, "5ms"; inside, seconds
  };

  std::string key;  // "nodes_per_leaf"
  Kind kind = Kind::kInteger;
  // Range of integers and numbers, both ends included. A bandwidth or a time
  // may be 0 if `least` is.
  double least = 1;
  double most = 1;
  std::vector<std::string> choices = {};
  std::string fallback = "";  // default, as text; "": it has to be given
  std::string help;
  // The parameter bears on nothing but links with this in their names
  // ("leaf"): a run that crosses none of them does not depend on it. "": it
  // may bear on all.
  std::string links = "";
};

// "1..1048576", "1..1e+06", "minimal|valiant", "auto|AxBxC", "a bandwidth".
std::string LegalValues(const ShapeParam& param);

// The same in words: "an integer from 1 to 1048576".
std::string AllowedValues(const ShapeParam& param);

// Error: kInvalidArgument, "FIELD: VALUE is not allowed; allowed: ...".
absl::Status CheckShapeParam(const ShapeParam& param, absl::string_view field,
                             absl::string_view value);

}  // namespace pipewright
