#include "execute/transport/socket_place.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"

namespace pipewright {
namespace {

constexpr char kFormat[] = "pipewright-job 1";

}  // namespace

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
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
    if (std::strncmp(text, "127.", 4) != 0) found.emplace_back(text);
  }
  freeifaddrs(all);
  found.emplace_back("127.0.0.1");
  return found;
}

absl::Status WriteJobPlace(const std::string& path, const JobPlace& place) {
  const std::string text =
      absl::StrCat(kFormat, "\n", place.number, "\n",
                   absl::StrJoin(place.addresses, " "), "\n", place.port, "\n");
  const std::string part = absl::StrCat(path, ".part", ::getpid());
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
  if (lines.size() < 4 || lines[0] != kFormat ||
      lines[1].size() != kJobNumberLetters ||
      !absl::SimpleAtoi(lines[3], &place.port)) {
    return {};
  }
  place.number = lines[1];
  place.addresses = absl::StrSplit(lines[2], ' ', absl::SkipEmpty());
  return place;
}

}  // namespace pipewright
