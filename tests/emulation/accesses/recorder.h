// What hooks.cc calls. For files of this folder only.
#ifndef PIPEWRIGHT_TESTS_EMULATION_ACCESSES_RECORDER_H_
#define PIPEWRIGHT_TESTS_EMULATION_ACCESSES_RECORDER_H_

#include <cstdint>

namespace emulated {

// An access of the running thread of a kernel, by the instruction at `from`.
void Record(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t from);
// It calls a function from there, or returns.
void EnterFunction(uintptr_t from);
void LeaveFunction();

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_ACCESSES_RECORDER_H_
