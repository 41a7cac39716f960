// The text of the repository, for tests that look at its words: files, blocks
// of comments, and sentences of pages and manuals.
#pragma once

#include <string>
#include <vector>

namespace pipewright::testing {

// Paths of all files that a commit can hold, relative to the repository.
std::vector<std::string> AllFiles();

struct Passage {
  int line = 0;      // where it begins, from 1
  std::string text;  // in one line
};

// Comments of a source file, without their marks: lines that are comments alone
// and stand together, or a comment behind code with what goes on below it.
// Empty for other files.
std::vector<Passage> CommentBlocks(const std::string& path,
                                   const std::string& text);

// Headings, paragraphs, items of lists and cells of tables of a page, without
// fenced blocks. Code inside a line is one word, a link has no target.
std::vector<Passage> PassagesOfPage(const std::string& page);

// Paragraphs of a manual page (mdoc), without macros.
std::vector<Passage> PassagesOfManual(const std::string& manual);

// A sentence ends with . ! or ? before a blank, or with the passage.
std::vector<std::string> SentencesOf(const std::string& passage);

// Words have a letter; numbers, signs and flags are none.
int NumWords(const std::string& sentence);

}  // namespace pipewright::testing
