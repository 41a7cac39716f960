// What the own kernels of the CUDA backend read and write, against the least:
//
//   access_table [SUBSTRING]    only operations whose name has it
//
// Prints docs/dev/gpu.md's table. Exit 1: one moves more than it may, or less than
// it must, so that it was not seen; 77: there is no device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/loader.h"
#include "tests/emulation/accesses/accesses.h"
#include "tests/emulation/accesses/cases.h"

namespace pipewright {
namespace {

using emulated::Accesses;
using emulated::LaunchAccesses;
using emulated::Moved;

// Bytes that went to or came from memory, as Operand says.
double MovedBytes(const AccessCase& one, const Accesses& accesses) {
  uint64_t sectors = 0;
  for (const auto& [end, moved] : accesses.moved) {
    const auto same = [end = end](const Operand& operand) {
      return operand.kept && emulated::AllocationOf(operand.memory) == end;
    };
    const bool kept =
        std::any_of(one.operands.begin(), one.operands.end(), same);
    sectors += moved.written_sectors;
    sectors += kept ? moved.distinct_read : moved.read_sectors;
  }
  return static_cast<double>(sectors * emulated::kSectorBytes);
}

double LeastBytes(const AccessCase& one) {
  double bytes = 0;
  for (const Operand& operand : one.operands) {
    bytes += static_cast<double>(operand.bytes) * operand.times;
  }
  return bytes;
}

double Ratio(int64_t value, int64_t least) {
  return least == 0 ? 0
                    : static_cast<double>(value) / static_cast<double>(least);
}

// A launch that moves less than this share of an operation does not count.
constexpr double kShare = 0.02;

bool Print(const AccessCase& one, const Accesses& accesses) {
  int64_t all = 0;
  for (const LaunchAccesses& launch : accesses.launches) all += launch.bytes;
  double sectors = 0;
  double banks = 0;
  std::string files;
  std::string widths;
  for (const LaunchAccesses& launch : accesses.launches) {
    if (static_cast<double>(launch.bytes) < kShare * static_cast<double>(all)) {
      continue;
    }
    sectors = std::max(sectors, Ratio(launch.sectors, launch.least_sectors));
    banks = std::max(banks,
                     Ratio(launch.shared_wavefronts, launch.least_wavefronts));
    const std::string file = launch.name.substr(0, launch.name.find(':'));
    if (files.find(file) == std::string::npos) {
      files += (files.empty() ? "" : ", ") + file;
    }
    char width[32];
    std::snprintf(width, sizeof(width), "%s%.1f", widths.empty() ? "" : ", ",
                  Ratio(launch.lane_bytes, launch.lanes));
    widths += width;
  }
  const double bytes = MovedBytes(one, accesses) / LeastBytes(one);
  char bank[16] = "-";
  if (banks > 0) std::snprintf(bank, sizeof(bank), "%.2f", banks);
  // Less than the least: an access is not seen.
  const bool ok = bytes > 0.98 && bytes <= one.most_bytes &&
                  sectors <= one.most_sectors &&
                  (one.most_banks == 0 || banks <= one.most_banks) &&
                  !accesses.launches.empty();
  std::printf("| %s | %s | %s | %.2f | %.2f | %s | %s | %s |\n",
              one.name.c_str(), one.size.c_str(), files.c_str(), bytes, sectors,
              bank, widths.c_str(), ok ? one.cause.c_str() : "NOT ALLOWED");
  std::fflush(stdout);
  return ok;
}

int Main(const char* filter) {
  // Our own attention.
  setenv("PIPEWRIGHT_CUDNN", "off", 1);
  char error[1024] = "";
  const PwKernels* kernels = pw_load_kernels("cuda", error, sizeof(error));
  if (kernels == nullptr) {
    std::printf("%s\n", error);
    return 77;
  }
  PwDevice* device = nullptr;
  if (kernels->open(0, &device) != PW_OK) {
    std::printf("%s\n", kernels->error());
    return 1;
  }
  std::printf(
      "| Operation | Size | Kernels | Bytes | Sectors | Banks | Width | "
      "Why |\n|---|---|---|---|---|---|---|---|\n");
  int failed = 0;
  int counted = 0;
  AccessBench bench(kernels, device);
  for (const AccessCase& one : bench.Cases()) {
    if (one.name.find(filter) == std::string::npos) continue;
    // Operands have been made.
    bool ok = kernels->synchronize(device, nullptr) == PW_OK;
    emulated::TakeAccesses();
    ok = ok && one.run() == PW_OK;
    if (!ok) std::printf("%s: %s\n", one.name.c_str(), kernels->error());
    ok = ok && kernels->synchronize(device, nullptr) == PW_OK;
    ++counted;
    if (!Print(one, emulated::TakeAccesses()) || !ok) ++failed;
  }
  std::fprintf(stderr, "%d operations, %d of them are not as they should be\n",
               counted, failed);
  return failed == 0 && counted > 0 ? 0 : 1;
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  return pipewright::Main(argc > 1 ? argv[1] : "");
}
