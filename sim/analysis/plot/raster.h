// PNG and PDF of an SVG, by librsvg and cairo, which are loaded when they are
// needed (Debian: librsvg2-2). The same SVG gives the same bytes: a PDF bears a
// fixed date.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Dots a millimetre of a PNG, unless told otherwise: 300 dpi.
inline constexpr double kDotsPerMm = 300 / 25.4;

// Errors: kUnavailable where the libraries are missing, with the package that
// has them; kInternal with the library's message where it cannot draw.
absl::StatusOr<std::string> PngOf(absl::string_view svg, double width_mm,
                                  double height_mm,
                                  double dots_per_mm = kDotsPerMm);
absl::StatusOr<std::string> PdfOf(absl::string_view svg, double width_mm,
                                  double height_mm);

}  // namespace pipewright
