// The numbers of the cost model, read from its sources and from the device
// files, each with the class that its comment ends with: docs/dev/constants.md.
// Not a parser of C++: it knows what these files use.
#pragma once

#include <string>
#include <vector>

namespace pipewright::testing {

struct ConstantClass {
  std::string name;  // "paper", as in "[paper]"
  std::string meaning;
};
const std::vector<ConstantClass>& ConstantClasses();

struct SourceText {
  std::string path;  // relative to the repository
  std::string text;
  // Numbers outside of constants count too, but for what is part of a formula:
  // whole numbers up to 10, a half and powers of ten between units.
  bool is_model = false;
};

struct Constant {
  std::string file;
  int line = 0;  // from 1
  std::string name;
  std::string value;  // as written
  std::string unit;   // "": a ratio or a count
  std::string kind;   // its class
  std::string source;
};

struct Constants {
  std::vector<Constant> rows;
  // "FILE:3: kName ...": no class, or one that is not known.
  std::vector<std::string> problems;
};

// Reads every constexpr number. Its class stands at the end of the comment
// above it, or behind it: "[paper]", with a unit "[paper, s]". One comment may
// have several constants below it, with no empty line between. A comment with a
// class above a function has the numbers inside.
Constants ConstantsOf(const std::vector<SourceText>& sources);

// Reads device files: "bf16_flops {  # [data sheet]". `name` is the field,
// `file` the device.
Constants ConstantsOfDevices(const std::vector<SourceText>& files);

// docs/dev/constants.md.
std::string ConstantsPage(const std::vector<Constant>& code,
                          const std::vector<Constant>& devices);

}  // namespace pipewright::testing
