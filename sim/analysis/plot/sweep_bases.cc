#include "sim/analysis/plot/sweep_bases.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pipewright {
namespace {

constexpr size_t kLinesOfBase = 4;  // that a warning shows

}  // namespace

std::string BaseName(int base) { return absl::StrCat("base ", base + 1); }

std::string AllowedBases(const std::set<int>& bases) {
  if (bases.empty()) return "only with files of sweep that have rows";
  return absl::StrJoin(bases, " or ", [](std::string* out, int base) {
    absl::StrAppend(out, base + 1);
  });
}

std::string BasesWarning(const std::string& file, const SweepReader& store,
                         const std::set<int>& used) {
  std::map<std::string, size_t> count;
  std::vector<std::string> texts;
  for (const int base : used) {
    for (const absl::string_view line :
         absl::StrSplit(store.bases()[base], '\n', absl::SkipEmpty())) {
      ++count[std::string(line)];
    }
  }
  for (const int base : used) {
    std::vector<std::string> own =
        absl::StrSplit(store.bases()[base], '\n', absl::SkipEmpty());
    std::erase_if(own, [&](const std::string& line) {
      return count[line] == used.size();
    });
    const bool more = own.size() > kLinesOfBase;
    if (more) own.resize(kLinesOfBase);
    texts.push_back(own.empty() ? BaseName(base)
                                : absl::StrCat(BaseName(base), " (",
                                               absl::StrJoin(own, ", "),
                                               more ? ", ..." : "", ")"));
  }
  return absl::StrCat(file, ": its rows are of ", used.size(),
                      " bases, which may differ in work; --base draws one: ",
                      absl::StrJoin(texts, ", "));
}

}  // namespace pipewright
