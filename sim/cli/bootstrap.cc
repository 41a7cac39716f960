#include "sim/cli/bootstrap.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "execute/transport/socket_job.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// No process has more sockets than that.
constexpr int kMostRanks = 1 << 16;

}  // namespace

void Bootstrap::AddTo(CLI::App* verb, const std::string& number) {
  verb->add_option("--bootstrap", file,
                   "processes find each other through this file instead of "
                   "mpirun; all of them must see it")
      ->type_name("file:PATH");
  AddInteger(verb, "--rank", &rank, 0, kMostRanks - 1,
             absl::StrCat("with --bootstrap: ", number))
      ->type_name("R");
  AddInteger(verb, "--ranks", &ranks, 1, kMostRanks,
             "with --bootstrap: number of processes")
      ->type_name("P");
  verb->add_option("--listen", listen,
                   "with --bootstrap: network interface, or its IPv4 address, "
                   "at which other machines reach this process (default: this "
                   "machine only)")
      ->type_name("INTERFACE");
}

absl::Status Bootstrap::Check() const {
  if (given() || (rank < 0 && ranks < 0 && listen.empty())) {
    return absl::OkStatus();
  }
  return BadValue("--rank, --ranks, --listen", "given",
                  "together with --bootstrap file:PATH only");
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> Bootstrap::Join(
    double timeout_s) const {
  absl::string_view path = file;
  if (!absl::ConsumePrefix(&path, "file:") || path.empty()) {
    return BadValue("--bootstrap", file, "file:PATH");
  }
  if (ranks < 1) {
    return BadValue("--ranks", absl::StrCat(ranks), "1 or more");
  }
  if (rank < 0 || rank >= ranks) {
    return BadValue("--rank", absl::StrCat(rank),
                    absl::StrCat("0 to ", ranks - 1));
  }
  return CreateSocketJob({.path = std::string(path),
                          .process = rank,
                          .processes = ranks,
                          .timeout_s = timeout_s,
                          .listen = listen});
}

}  // namespace pipewright
