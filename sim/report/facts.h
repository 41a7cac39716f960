// The facts of a run: what was run, as pairs of a name and a value. The one
// list that the text report, the page, titles of pictures and the gallery read;
// what came out of the run is not in it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/report/report.h"

namespace pipewright {

struct ReportFact {
  enum class Kind {
    kPlain,
    kOwnParam,  // a parameter of the schedule: its name may be anything
    kProfile,   // reports with a section on the profile name it there
  };
  std::string name;  // "pp", "pass times estimated for"
  std::string value;
  std::string note;  // in parentheses behind it; "" for none
  Kind kind = Kind::kPlain;
};

// In the order in which they are read. A default that says nothing (dp 1,
// waiting buffered) is left out.
std::vector<ReportFact> FactsOf(const Report& report);

// "dp 2 (gradients: ddp)".
std::string FactText(const ReportFact& fact);

// The plain fact of that name; null where there is none.
const ReportFact* FindFact(const std::vector<ReportFact>& facts,
                           absl::string_view name);

// "zb-v, pp 4, vpp 2, 8 microbatches, variant handcrafted".
std::string PictureTitle(const Report& report);

}  // namespace pipewright
