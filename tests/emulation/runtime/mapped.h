#ifndef PIPEWRIGHT_TESTS_EMULATION_RUNTIME_MAPPED_H_
#define PIPEWRIGHT_TESTS_EMULATION_RUNTIME_MAPPED_H_

#include <set>
#include <string>

namespace emulated {

// Paths of CUDA libraries of this process (/proc/self/maps) that are not from
// the folder of the emulated ones.
std::set<std::string> RealLibraries();

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_RUNTIME_MAPPED_H_
