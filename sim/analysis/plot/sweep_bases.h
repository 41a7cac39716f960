// Words for the configurations that the sweeps of one file started from
// (SweepReader::bases), where a figure would mix their rows.
#pragma once

#include <set>
#include <string>

#include "sim/analysis/sweep/reader.h"

namespace pipewright {

// "base 1" for index 0.
std::string BaseName(int base);

// What --base may be where these are in use.
std::string AllowedBases(const std::set<int>& bases);

// "runs.sqlite: its rows are of 2 bases, ...", with what each has of its own.
std::string BasesWarning(const std::string& file, const SweepReader& store,
                         const std::set<int>& used);

}  // namespace pipewright
