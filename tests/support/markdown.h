// The parts of a Markdown page that tests look at: fenced blocks, commands,
// links, headings. Enough for the pages of this repository, no more.
#pragma once

#include <string>
#include <vector>

namespace pipewright::testing {

struct FencedBlock {
  int line = 0;          // line of its first fence, from 1
  std::string language;  // behind the fence; "" and "sh": commands
  std::vector<std::string> lines;
  // Reason in "<!-- not run: REASON -->" right above the block; "" without one.
  std::string not_run;
  // "<!-- output -->" stands above: lines that a command of the page prints.
  bool is_output = false;
  // NAME in "<!-- file: NAME -->": commands of the page find it under that
  // name.
  std::string file;

  bool is_commands() const { return language.empty() || language == "sh"; }
  std::string text() const;
};

std::vector<FencedBlock> FencedBlocks(const std::string& page);

// One command of a block; lines that end in a backslash are joined. A comment
// above a command may say its exit code: "# ... exit code 3 ...".
struct PageCommand {
  std::string text;
  int exit_code = 0;
};
std::vector<PageCommand> CommandsOf(const FencedBlock& block);

// Targets of "[text](target)" outside of fenced blocks and code.
std::vector<std::string> LinksOf(const std::string& page);

// What a link's "#..." may name, by GitHub's rule: "### Exit codes" ->
// "exit-codes".
std::vector<std::string> AnchorsOf(const std::string& page);

// Every page for people, relative to the repository: README.md,
// CONTRIBUTING.md, those of docs/ and its folders.
std::vector<std::string> AllPages();
std::string ReadPage(const std::string& path);

}  // namespace pipewright::testing
