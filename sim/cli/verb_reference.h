// The options of each verb besides the configuration's flags, as Markdown:
// read from the command line's own definition.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pipewright {

std::string VerbReferenceMarkdown(const CLI::App& app);

}  // namespace pipewright
