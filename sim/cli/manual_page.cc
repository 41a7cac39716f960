#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/cli/common.h"
#include "sim/cli/completion.h"

namespace pipewright {
namespace {

// A line may have 80 bytes.
constexpr size_t kLine = 78;

// `word` where nothing in it means anything to mdoc.
std::string Plain(absl::string_view word) {
  std::string out;
  for (const char letter : word) {
    if (letter == '\\') {
      out += "\\e";
    } else if (letter == '-') {
      out += "\\-";
    } else if (static_cast<unsigned char>(letter) < 0x80) {
      out += letter;
    } else {
      out += '?';
    }
  }
  return out;
}

// Words in lines; a sentence starts a line, as mdoc wants it.
void AddText(absl::string_view text, std::string* page) {
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) absl::StrAppend(page, line, "\n");
    line.clear();
  };
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    std::string plain = Plain(word);
    if (line.size() + plain.size() + 1 > kLine) flush();
    if (line.empty()) {
      // A dot or a quote at the start would be a request.
      if (plain[0] == '.' || plain[0] == '\'') plain.insert(0, "\\&");
      line = plain;
    } else {
      absl::StrAppend(&line, " ", plain);
    }
    const char last = word.back();
    if (last == '.' || last == '?' || last == '!') flush();
  }
  flush();
}

// As one argument of a macro.
std::string Argument(absl::string_view text) {
  std::string plain = absl::StrJoin(absl::StrSplit(Plain(text), '"'), "\\(dq");
  if (plain.size() < 4 || absl::ascii_isupper(plain[0])) plain.insert(0, "\\&");
  return absl::StrContains(plain, ' ') ? absl::StrCat("\"", plain, "\"")
                                       : plain;
}

std::string AsSentence(std::string text) {
  if (text.empty()) return text;
  text[0] = absl::ascii_toupper(text[0]);
  if (text.back() != '.') text += '.';
  return text;
}

void AddOption(const OptionRow& option, std::string* page) {
  absl::StrAppend(page, ".It");
  if (option.names.empty()) {
    absl::StrAppend(page, " Ar ", Argument(option.place));
  }
  for (size_t index = 0; index < option.names.size(); ++index) {
    // Fl writes the first dash.
    absl::StrAppend(page, index == 0 ? "" : " ,", " Fl ",
                    Argument(option.names[index].substr(1)));
  }
  if (!option.names.empty() && !option.value.empty()) {
    absl::StrAppend(page, " Ar ", Argument(option.value));
  }
  absl::StrAppend(page, "\n");
  AddText(AsSentence(option.help), page);
  if (!option.fallback.empty() && option.group != kConfigGroup) {
    AddText(absl::StrCat("Default: ", option.fallback, "."), page);
  }
}

void AddOptions(const VerbRow& verb, bool of_configuration, std::string* page) {
  std::string rows;
  for (const OptionRow& option : verb.options) {
    if ((option.group == kConfigGroup) == of_configuration) {
      AddOption(option, &rows);
    }
  }
  if (rows.empty()) return;
  absl::StrAppend(page, ".Bl -tag -width Ds\n", rows, ".El\n");
}

// The flags of the configuration that the verb takes, where it is not all.
void AddFlagNames(const VerbRow& verb, size_t all, std::string* page) {
  std::vector<std::string> names;
  for (const OptionRow& option : verb.options) {
    if (option.group == kConfigGroup && !option.names.empty()) {
      names.push_back(option.names.back());
    }
  }
  if (names.empty()) return;
  absl::StrAppend(page, ".Pp\n");
  if (names.size() >= all) {
    AddText("It takes all flags of the configuration.", page);
  } else {
    AddText(absl::StrCat("Of the flags of the configuration it takes ",
                         absl::StrJoin(names, ", "), "."),
            page);
  }
}

}  // namespace

std::string ManualPage(const std::vector<VerbRow>& verbs) {
  std::string page =
      ".\\\" Made by: pipewright man\n"
      ".Dd November 23, 2026\n.Dt PIPEWRIGHT 1\n.Os\n"
      ".Sh NAME\n.Nm pipewright\n"
      ".Nd simulate pipeline\\-parallel training\n"
      ".Sh SYNOPSIS\n.Nm\n.Ar verb\n.Op Ar config\n.Op Ar options\n"
      ".Sh DESCRIPTION\n";
  AddText(
      "Pipewright simulates pipeline-parallel training. It is given a "
      "schedule, "
      "the times of the passes and a network, and tells how long an iteration "
      "takes, where the bubbles are and how much memory each rank needs. "
      "A flag wins over --set, which wins over the configuration's file.",
      &page);
  absl::StrAppend(&page, ".Sh VERBS\n");
  // The verb that takes most of the configuration's flags shows them for all.
  const VerbRow* fullest = nullptr;
  size_t most = 0;
  for (const VerbRow& verb : verbs) {
    size_t count = 0;
    for (const OptionRow& option : verb.options) {
      count += option.group == kConfigGroup ? 1 : 0;
    }
    if (count > most) {
      most = count;
      fullest = &verb;
    }
  }
  for (const VerbRow& verb : verbs) {
    if (verb.path.empty()) continue;
    absl::StrAppend(&page, ".Ss ", Argument(verb.path), "\n");
    AddText(AsSentence(verb.help), &page);
    AddOptions(verb, false, &page);
    AddFlagNames(verb, most, &page);
  }
  if (fullest != nullptr) {
    absl::StrAppend(&page, ".Sh FLAGS OF THE CONFIGURATION\n");
    AddText("Each stands for one path of the configuration.", &page);
    AddOptions(*fullest, true, &page);
  }
  absl::StrAppend(
      &page,
      ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
      ".It Ev PIPEWRIGHT_SIMGRID_LIBRARY , PIPEWRIGHT_ONEDNN_LIBRARY ,\n"
      ".Ev PIPEWRIGHT_CUDA_LIBRARY , PIPEWRIGHT_MPI_LIBRARY ,\n"
      ".Ev PIPEWRIGHT_NCCL_LIBRARY\n"
      "Files to load instead of the modules that are installed.\n.El\n"
      ".Sh EXIT STATUS\n.Bl -tag -width Ds\n"
      ".It 0\nsuccess\n.It 1\nfailure\n.It 2\nbad usage or input\n"
      ".It 3\ndoes not fit, or a limit cannot be met\n"
      ".It 4\na schedule that is incomplete or deadlocks\n.El\n"
      ".Sh EXAMPLES\nA schedule from pass times:\n.Bd -literal -offset indent\n"
      "pipewright simulate \\-\\-schedule zb\\-h1 \\-\\-pp 8 \\e\n"
      "    \\-\\-microbatches 24 \\-\\-forward 18.5ms \\e\n"
      "    \\-\\-backward\\-input 18ms \\-\\-backward\\-weight 9.3ms \\e\n"
      "    \\-\\-p2p 0.6ms\n.Ed\n");
  return page;
}

}  // namespace pipewright
