#include "execute/transport/socket_place.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kFormat[] = "pipewright-job 2";
constexpr char kLoopback[] = "127.0.0.1";

}  // namespace

absl::StatusOr<std::string> ListenAddress(const std::string& name) {
  if (name.empty()) return kLoopback;
  std::string found;
  std::set<std::string> names;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) all = nullptr;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) {
      continue;
    }
    char text[INET_ADDRSTRLEN];
    const auto* const address =
        reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) == nullptr) {
      continue;
    }
    names.insert(each->ifa_name);
    if (found.empty() && (name == each->ifa_name || name == text)) found = text;
  }
  freeifaddrs(all);
  if (!found.empty()) return found;
  return BadValue(
      "--listen", name,
      absl::StrCat("an interface of this machine with an IPv4 "
                   "address (",
                   absl::StrJoin(names, ", "), "), or such an address"));
}

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.");
}

absl::Status WriteJobPlace(const std::string& path, const JobPlace& place) {
  const std::string text =
      absl::StrCat(kFormat, "\n", place.number, "\n", place.machine, "\n",
                   place.address, "\n", place.port, "\n");
  // Name that no other process has, on whatever machine.
  const std::string part =
      absl::StrCat(path, ".part", ::getpid(), ".", place.port);
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const bool wrote = file >= 0 && ::write(file, text.data(), text.size()) ==
                                      static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  if (!wrote || ::rename(part.c_str(), path.c_str()) != 0) {
    ::unlink(part.c_str());
    return absl::InvalidArgumentError(
        absl::StrCat("--bootstrap: cannot write ", path));
  }
  return absl::OkStatus();
}

JobPlace ReadJobPlace(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return {};
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  JobPlace place;
  if (lines.size() < 5 || lines[0] != kFormat ||
      lines[1].size() != kJobNumberLetters ||
      !absl::SimpleAtoi(lines[4], &place.port)) {
    return {};
  }
  place.number = lines[1];
  place.machine = lines[2];
  place.address = lines[3];
  return place;
}

}  // namespace pipewright
