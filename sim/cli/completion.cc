// `pipewright completion` and `pipewright man`.
#include "sim/cli/completion.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/config/run_config.h"

namespace pipewright {
namespace {

// In single quotes, as bash and zsh read them.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Pattern of bash and zsh for a path of verbs.
std::string PathPattern(const std::string& path) {
  return absl::StrCat("'", path, "'");
}

bool HasFiles(const VerbRow& verb) {
  for (const OptionRow& option : verb.options) {
    if (option.names.empty() && option.file) return true;
  }
  return false;
}

// Verbs below, and named values of what is given by its place.
std::vector<std::string> PlainWords(const VerbRow& verb) {
  std::vector<std::string> words = verb.below;
  for (const OptionRow& option : verb.options) {
    if (option.names.empty()) {
      words.insert(words.end(), option.values.begin(), option.values.end());
    }
  }
  return words;
}

// Shared by bash and zsh: the path of verbs of the words so far, what may
// follow it, and what may follow an option.
std::string ShellTables(const std::vector<VerbRow>& verbs) {
  std::string text =
      "# Does verb $2 stand below verb $1?\n"
      "_pipewright_is_verb() {\n  case \"$1 $2\" in\n";
  for (const VerbRow& verb : verbs) {
    for (const std::string& below : verb.below) {
      absl::StrAppend(&text, "    ",
                      PathPattern(absl::StrCat(verb.path, " ", below)),
                      ") return 0 ;;\n");
    }
  }
  absl::StrAppend(&text,
                  "  esac\n  return 1\n}\n\n"
                  "# Options of verb $1.\n"
                  "_pipewright_options() {\n  case \"$1\" in\n");
  for (const VerbRow& verb : verbs) {
    std::vector<std::string> names = {"--help"};
    for (const OptionRow& option : verb.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
    absl::StrAppend(&text, "    ", PathPattern(verb.path), ") echo ",
                    Quoted(absl::StrJoin(names, " ")), " ;;\n");
  }
  absl::StrAppend(&text,
                  "  esac\n}\n\n"
                  "# Words that are no options, of verb $1; @file: a file.\n"
                  "_pipewright_words() {\n  case \"$1\" in\n");
  for (const VerbRow& verb : verbs) {
    std::vector<std::string> words = PlainWords(verb);
    if (HasFiles(verb)) words.push_back("@file");
    if (words.empty()) continue;
    absl::StrAppend(&text, "    ", PathPattern(verb.path), ") echo ",
                    Quoted(absl::StrJoin(words, " ")), " ;;\n");
  }
  absl::StrAppend(&text,
                  "  esac\n}\n\n"
                  "# Values of option $2 of verb $1; fails where it has none.\n"
                  "_pipewright_values() {\n  case \"$1 $2\" in\n");
  for (const VerbRow& verb : verbs) {
    for (const OptionRow& option : verb.options) {
      if (option.names.empty() || option.value.empty()) continue;
      std::vector<std::string> words = option.values;
      if (option.file) words.push_back("@file");
      // Alone it takes nothing: what follows may be another option.
      if (!option.needs_value && words.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(PathPattern(absl::StrCat(verb.path, " ", name)));
      }
      absl::StrAppend(&text, "    ", absl::StrJoin(patterns, "|"), ") echo ",
                      Quoted(absl::StrJoin(words, " ")), " ;;\n");
    }
  }
  // Behind --set PATH=, whatever the verb.
  for (const std::string& path : ConfigPaths()) {
    const std::vector<std::string> words = NamesOfField(path);
    if (words.empty()) continue;
    absl::StrAppend(&text, "    *", PathPattern(absl::StrCat(" ", path)),
                    ") echo ", Quoted(absl::StrJoin(words, " ")), " ;;\n");
  }
  return absl::StrCat(text, "    *) return 1 ;;\n  esac\n}\n\n");
}

constexpr char kBashEnd[] = R"(_pipewright() {
  local current=${COMP_WORDS[COMP_CWORD]} path='' word index words previous
  # Bash takes '=' for a word: --pp=4 is three.
  previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == = ]]; then
    current=''
  elif [[ $previous == = && $COMP_CWORD -gt 1 ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((index = 1; index < COMP_CWORD; ++index)); do
    word=${COMP_WORDS[index]}
    if _pipewright_is_verb "$path" "$word"; then
      path=${path:+$path }$word
    fi
  done
  COMPREPLY=()
  if [[ $current == -* ]]; then
    words=$(_pipewright_options "$path")
  elif ! words=$(_pipewright_values "$path" "$previous"); then
    words=$(_pipewright_words "$path")
  fi
  if [[ " $words " == *' @file '* ]]; then
    words=${words/@file/}
    compopt -o filenames 2> /dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
  local -a matches
  mapfile -t matches < <(compgen -W "$words" -- "$current")
  COMPREPLY+=("${matches[@]}")
}
complete -F _pipewright pipewright
)";

constexpr char kZshEnd[] = R"(_pipewright() {
  local at='' word found previous=${words[CURRENT-1]}
  local -a list
  for word in ${words[2,CURRENT-1]}; do
    if _pipewright_is_verb "$at" "$word"; then at=${at:+$at }$word; fi
  done
  if [[ $PREFIX == *=* ]]; then
    previous=${PREFIX%%=*}
    compset -P '*='
  elif [[ $PREFIX == -* ]]; then
    list=("${(@f)$(_pipewright_described "$at")}")
    _describe -o option list
    return
  fi
  found=$(_pipewright_values "$at" "$previous") ||
    found=$(_pipewright_words "$at")
  list=(${=found})
  if (( ${list[(I)@file]} )); then _files; fi
  list=(${list:#@file})
  (( ${#list} )) && compadd -- $list
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _pipewright "$@"
else
  compdef _pipewright pipewright
fi
)";

// The first clause, for a list of options.
std::string ShortHelp(const std::string& help) {
  return std::string(
      absl::string_view(help).substr(0, help.find_first_of(";\n")));
}

constexpr char kFishStart[] =
    R"(# The verbs of the words so far, as "calibrate import".
function __pipewright_path
    set -l at ''
    for word in (commandline -opc)[2..-1]
        set -l next (string trim -- "$at $word")
        if contains -- "$next" $__pipewright_verbs
            set at $next
        end
    end
    echo $at
end
function __pipewright_at
    test (__pipewright_path) = "$argv"
end
)";

std::string FishQuoted(absl::string_view text) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

struct Completion {
  std::string shell;
};

std::vector<VerbRow> TableOf(const CLI::App& app) {
  return TableOfOptions(app);
}

}  // namespace

std::string BashCompletion(const std::vector<VerbRow>& verbs) {
  return absl::StrCat(
      "# Completion of pipewright for bash: source this file, or put it into\n"
      "# ~/.local/share/bash-completion/completions/pipewright.\n\n",
      ShellTables(verbs), kBashEnd);
}

std::string ZshCompletion(const std::vector<VerbRow>& verbs) {
  std::string text = absl::StrCat(
      "#compdef pipewright\n"
      "# Completion of pipewright for zsh: put this file as _pipewright into "
      "a\n"
      "# folder of $fpath, or source it after compinit.\n\n",
      ShellTables(verbs),
      "# Options of verb $1 with what they mean.\n"
      "_pipewright_described() {\n  case \"$1\" in\n");
  for (const VerbRow& verb : verbs) {
    absl::StrAppend(&text, "    ", PathPattern(verb.path),
                    ") print -rl -- '--help:prints this verb'\\''s options'");
    for (const OptionRow& option : verb.options) {
      for (const std::string& name : option.names) {
        absl::StrAppend(
            &text, " \\\n      ",
            Quoted(absl::StrCat(name, ":", ShortHelp(option.help))));
      }
    }
    absl::StrAppend(&text, " ;;\n");
  }
  return absl::StrCat(text, "  esac\n}\n\n", kZshEnd);
}

std::string FishCompletion(const std::vector<VerbRow>& verbs) {
  std::string text = absl::StrCat(
      "# Completion of pipewright for fish: put this file as pipewright.fish\n"
      "# into ~/.config/fish/completions.\n\n",
      kFishStart);
  std::vector<std::string> paths;
  for (const VerbRow& verb : verbs) {
    if (!verb.path.empty()) paths.push_back(FishQuoted(verb.path));
  }
  absl::StrAppend(&text, "set -g __pipewright_verbs ",
                  absl::StrJoin(paths, " "), "\ncomplete -c pipewright -f\n");
  for (const VerbRow& verb : verbs) {
    const std::string start =
        verb.path.empty()
            ? "complete -c pipewright -n '__pipewright_at \"\"'"
            : absl::StrCat(
                  "complete -c pipewright -n ",
                  FishQuoted(absl::StrCat("__pipewright_at ", verb.path)));
    for (const VerbRow& below : verbs) {
      const std::string prefix =
          verb.path.empty() ? "" : absl::StrCat(verb.path, " ");
      if (below.path.empty() || !absl::StartsWith(below.path, prefix)) continue;
      const std::string name = below.path.substr(prefix.size());
      if (absl::StrContains(name, ' ')) continue;
      absl::StrAppend(&text, start, " -a ", name, " -d ",
                      FishQuoted(below.help), "\n");
    }
    for (const OptionRow& option : verb.options) {
      absl::StrAppend(&text, start);
      for (const std::string& name : option.names) {
        if (absl::StartsWith(name, "--")) {
          absl::StrAppend(&text, " -l ", name.substr(2));
        } else {
          absl::StrAppend(&text, " -s ", name.substr(1));
        }
      }
      // -x keeps files from being offered, which -F of a verb would allow.
      if (option.file) absl::StrAppend(&text, " -F");
      if (option.needs_value && !option.names.empty()) {
        absl::StrAppend(&text, option.file ? " -r" : " -x");
      }
      if (!option.values.empty()) {
        absl::StrAppend(&text, " -a ",
                        FishQuoted(absl::StrJoin(option.values, " ")));
      }
      absl::StrAppend(&text, " -d ", FishQuoted(ShortHelp(option.help)), "\n");
    }
  }
  return text;
}

void AddCompletion(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "completion", "Print a script that completes words in a shell");
  auto completion = std::make_shared<Completion>();
  verb->add_option("SHELL", completion->shell, "bash, zsh, fish")
      ->required()
      ->type_name("");
  verb->callback([app, action, completion] {
    *action = [app, completion]() -> absl::Status {
      const std::string& shell = completion->shell;
      const std::vector<VerbRow> verbs = TableOf(*app);
      if (shell == "bash") return Print(BashCompletion(verbs));
      if (shell == "zsh") return Print(ZshCompletion(verbs));
      if (shell == "fish") return Print(FishCompletion(verbs));
      return AboutField("SHELL",
                        UnknownName("shell", shell, {"bash", "zsh", "fish"}));
    };
  });
}

void AddMan(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand("man", "Print the manual page (mdoc)");
  verb->callback([app, action] {
    *action = [app] { return Print(ManualPage(TableOf(*app))); };
  });
}

}  // namespace pipewright
