#include "tests/support/constants_page.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace pipewright::testing {
namespace {

using Strings = std::vector<std::string>;

std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"*", "\\*"}, {"<", "&lt;"}});
}

std::string Code(const std::string& text) {
  return absl::StrCat("`", absl::StrReplaceAll(text, {{"|", "\\|"}}), "`");
}

int CountOf(const std::vector<Constant>& rows, const std::string& kind) {
  return static_cast<int>(
      std::count_if(rows.begin(), rows.end(),
                    [&](const Constant& row) { return row.kind == kind; }));
}

}  // namespace

const std::vector<ConstantClass>& ConstantClasses() {
  static const auto* classes = new std::vector<ConstantClass>{
      {"data sheet", "what the maker states: data sheet, white paper, driver"},
      {"kernel file",
       "times of single kernels and calls that others measured, in the files "
       "that [calibrate/silicon](../../calibrate/silicon/README.md) distils or "
       "in public issues, and what follows from them"},
      {"measured", "an experiment of this project; its folder is named"},
      {"paper", "a paper, book, article or log that others published"},
      {"framework source",
       "read or counted in the source of a framework or of NCCL"},
      {"assumption",
       "no source, or none that can be looked up; a number of another chip"},
      {"numerics",
       "definitions and counts (bytes of a type, quantiles), limits of input "
       "and of searches, rounding"},
  };
  return *classes;
}

std::string ConstantsPage(const std::vector<Constant>& code,
                          const std::vector<Constant>& devices) {
  std::string page = R"(# Numbers of the cost model

Every number that an estimated time stands on (`--analytic`, [times.md](times.md)),
with its class and source: constants of the program, then the device files. The page
is made from the comments of the sources by a test, which fails for a number without
a class: `UPDATE_GOLDEN=1 build/release/tests/pipewright_tests "constants: *"` writes
it anew.

| Class | Meaning | Constants | Numbers of devices |
|---|---|--:|--:|
)";
  for (const ConstantClass& row : ConstantClasses()) {
    absl::StrAppend(&page, "| ", row.name, " | ", row.meaning, " | ",
                    CountOf(code, row.name), " | ", CountOf(devices, row.name),
                    " |\n");
  }
  absl::StrAppend(&page, "| all | | ", code.size(), " | ", devices.size(),
                  " |\n");
  absl::StrAppend(&page, R"(
- Listed are all numbers of `sim/cost`, and the constants of the other files named
  here, which price an estimated step or its memory. Not listed: whole numbers up to
  10, halves and powers of ten between units inside of a formula; FLOPs and traffic that follow from the
  shape of a model (`sim/model/ops*.cc`); defaults of fields ([config.md](../config.md)).
- Numbers from outside of the program stand elsewhere with their sources: measured
  rates in `calibrate/silicon`, profiles in `experiments`, links of systems in
  `topologies/*.textproto` (`pipewright list topologies --json`).
- A number measured on another card with the same chip keeps its class, also where it
  is scaled to its clock. In a device file the sheet of another card, and any number of
  another chip, is an assumption. A constant of the program keeps its class where it
  prices other devices too. Those that are [measured] come from an H100 or H200
  (parts of sums and copies, energies of a byte, of 8 bit and of attention, kernels of
  PyTorch), which for other chips is assumed.
- A name with `()` is a function; its value is the lines with numbers.
- No number of `sim/cost` is fitted to a step of training. Others' runs of training
  gave `kContention`, a slowdown that a paper has as its mean, `kSpeedRange` and
  `kMostSpeedRange`, speeds of devices in jobs, and `kFragmentation` (memory). They also
  gave ODC's fit of a microbatch's time (`kFit7B`), of which packers and runs without a
  model take ratios.
- Not listed though they price something: bytes and rates of an optimizer on the host
  (defaults of `system.params`, [config.md](../config.md)), caps of errors far outside of a
  table, and how a measured backward is halved where only the whole is known.

## Constants of the program
)");
  std::string file, before;
  for (const Constant& row : code) {
    if (row.file != file) {
      file = row.file;
      before.clear();
      absl::StrAppend(
          &page, "\n### `", file,
          "`\n\n| Constant | Value | Unit | Class | What and source "
          "|\n|---|---|---|---|---|\n");
    }
    absl::StrAppend(&page, "| `", row.name, "` | ", Code(row.value), " | ",
                    row.unit, " | ", row.kind, " | ",
                    row.source == before ? "as above" : Cell(row.source),
                    " |\n");
    before = row.source;
  }
  absl::StrAppend(&page, R"(
## Numbers of devices

From `devices/*.textproto`; `pipewright list devices --json` prints them by device.
)");
  // Quantities in the order of the first file that has each.
  Strings fields;
  for (const Constant& row : devices) {
    if (std::find(fields.begin(), fields.end(), row.name) == fields.end()) {
      fields.push_back(row.name);
    }
  }
  for (const std::string& field : fields) {
    const auto first =
        std::find_if(devices.begin(), devices.end(),
                     [&](const Constant& row) { return row.name == field; });
    const std::string& unit = first->unit;
    absl::StrAppend(&page, "\n### `", field, "`",
                    unit.empty() ? "" : absl::StrCat(", ", unit),
                    "\n\n| Devices | Value | Class | Source |\n"
                    "|---|---|---|---|\n");
    std::vector<std::pair<std::string, Strings>> rows;  // cells -> devices
    for (const Constant& row : devices) {
      if (row.name != field) continue;
      const std::string cells = absl::StrCat(Code(row.value), " | ", row.kind,
                                             " | ", Cell(row.source));
      auto at = std::find_if(rows.begin(), rows.end(), [&](const auto& pair) {
        return pair.first == cells;
      });
      if (at == rows.end()) at = rows.insert(rows.end(), {cells, {}});
      at->second.push_back(row.file);
    }
    for (const auto& [cells, names] : rows) {
      absl::StrAppend(&page, "| ", absl::StrJoin(names, ", "), " | ", cells,
                      " |\n");
    }
  }
  return page;
}

}  // namespace pipewright::testing
