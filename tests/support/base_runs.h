// Runs that differ in everything that decides which fields of a configuration
// matter, and values of every field to change in them.
#pragma once

#include <string>
#include <vector>

#include "tests/support/run_binary.h"

namespace pipewright::testing {

struct BaseRun {
  std::string name;
  std::string yaml;
};

// Beside the configurations lie the files that they and FieldSamples() name.
class BaseRuns {
 public:
  BaseRuns();

  const std::vector<BaseRun>& all() const { return runs_; }
  // The path of the configuration of that name, which has to be there.
  std::string PathOf(const std::string& name) const;
  // `value` where FieldSamples() has one: "FOLDER" is where the files are.
  std::string Value(const std::string& value) const;

 private:
  TemporaryFolder folder_;
  std::vector<BaseRun> runs_;
};

struct FieldSample {
  std::string path;
  // A run where the field matters: there the first two values, which are
  // legal, give different reports. "" where no run reads it: then every run
  // has to say so.
  std::string base;
  // At least two; of a mapping KEY=VALUE.
  std::vector<std::string> values;

  bool is_mapping() const;
};

// One a field of the configuration.
const std::vector<FieldSample>& FieldSamples();

}  // namespace pipewright::testing
