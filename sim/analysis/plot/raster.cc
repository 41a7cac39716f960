// PngOf and PdfOf (figure.h).
#include <dlfcn.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "sim/analysis/plot/figure.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// The part of the C interfaces that is called (librsvg 2.46, cairo 1.16).
struct RsvgBox {
  double x, y, width, height;
};
struct GlibError {
  uint32_t domain;
  int code;
  char* message;
};
using WriteFunction = int (*)(void*, const unsigned char*, unsigned int);

constexpr int kCairoArgb32 = 0;
constexpr int kCairoWriteError = 11;
// CAIRO_PDF_METADATA_CREATE_DATE and _MOD_DATE.
constexpr int kCreateDate = 5;
constexpr int kModifyDate = 6;
// Any fixed date makes two files alike.
constexpr char kFixedDate[] = "2026-01-01T00:00:00Z";
constexpr double kPdfPointsPerMm = 72 / 25.4;
// cairo's own limit of an image is 32767.
constexpr double kMostDots = 20000;

class Libraries {
 public:
  static absl::StatusOr<const Libraries*> Load() {
    static const absl::StatusOr<Libraries> loaded = LoadOnce();
    PW_RETURN_IF_ERROR(loaded.status());
    return &*loaded;
  }

  void* (*image_surface)(int, int, int) = nullptr;
  void* (*pdf_surface)(WriteFunction, void*, double, double) = nullptr;
  void (*pdf_metadata)(void*, int, const char*) = nullptr;
  int (*write_png)(void*, WriteFunction, void*) = nullptr;
  void* (*create)(void*) = nullptr;
  void (*destroy)(void*) = nullptr;
  void (*finish)(void*) = nullptr;
  int (*surface_status)(void*) = nullptr;
  void (*destroy_surface)(void*) = nullptr;
  const char* (*status_text)(int) = nullptr;
  void* (*handle_new)(const uint8_t*, size_t, GlibError**) = nullptr;
  int (*render)(void*, void*, const RsvgBox*, GlibError**) = nullptr;
  void (*unref)(void*) = nullptr;

 private:
  static absl::StatusOr<Libraries> LoadOnce() {
    Libraries out;
    void* const cairo = ::dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
    void* const rsvg = ::dlopen("librsvg-2.so.2", RTLD_NOW | RTLD_LOCAL);
    void* const gobject = ::dlopen("libgobject-2.0.so.0", RTLD_NOW);
    bool found = cairo != nullptr && rsvg != nullptr && gobject != nullptr;
    const auto take = [&found](void* library, const char* name, auto* into) {
      if (!found) return;
      void* const symbol = ::dlsym(library, name);
      found = symbol != nullptr;
      *reinterpret_cast<void**>(into) = symbol;
    };
    take(cairo, "cairo_image_surface_create", &out.image_surface);
    take(cairo, "cairo_pdf_surface_create_for_stream", &out.pdf_surface);
    take(cairo, "cairo_pdf_surface_set_metadata", &out.pdf_metadata);
    take(cairo, "cairo_surface_write_to_png_stream", &out.write_png);
    take(cairo, "cairo_create", &out.create);
    take(cairo, "cairo_destroy", &out.destroy);
    take(cairo, "cairo_surface_finish", &out.finish);
    take(cairo, "cairo_surface_status", &out.surface_status);
    take(cairo, "cairo_surface_destroy", &out.destroy_surface);
    take(cairo, "cairo_status_to_string", &out.status_text);
    take(rsvg, "rsvg_handle_new_from_data", &out.handle_new);
    take(rsvg, "rsvg_handle_render_document", &out.render);
    take(gobject, "g_object_unref", &out.unref);
    if (!found) {
      return absl::UnavailableError(
          "PNG and PDF need librsvg 2.46 and cairo, which cannot be loaded; "
          "allowed: install Debian's librsvg2-2, or write SVG, CSV or HTML");
    }
    return out;
  }
};

int Append(void* target, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(target)->append(reinterpret_cast<const char*>(data),
                                            length);
  return 0;
}

absl::Status CannotDraw(absl::string_view what, absl::string_view why) {
  return absl::InternalError(absl::StrCat(what, ": ", why));
}

// Draws into `surface` and finishes it; destroys neither.
absl::Status Draw(const Libraries& lib, absl::string_view svg, void* surface,
                  const RsvgBox& box) {
  GlibError* error = nullptr;
  void* const handle = lib.handle_new(
      reinterpret_cast<const uint8_t*>(svg.data()), svg.size(), &error);
  if (handle == nullptr) {
    return CannotDraw(
        "librsvg", error == nullptr ? "cannot read the SVG" : error->message);
  }
  void* const context = lib.create(surface);
  const bool drawn = lib.render(handle, context, &box, &error) != 0;
  lib.destroy(context);
  lib.unref(handle);
  if (!drawn) {
    return CannotDraw("librsvg",
                      error == nullptr ? "cannot draw" : error->message);
  }
  return absl::OkStatus();
}

absl::Status SurfaceStatus(const Libraries& lib, void* surface) {
  const int status = lib.surface_status(surface);
  return status == 0 ? absl::OkStatus()
                     : CannotDraw("cairo", lib.status_text(status));
}

}  // namespace

absl::StatusOr<std::string> PngOf(absl::string_view svg, double width_mm,
                                  double height_mm, double dots_per_mm) {
  PW_ASSIGN_OR_RETURN(const Libraries* lib, Libraries::Load());
  const double width = std::round(width_mm * dots_per_mm);
  const double height = std::round(height_mm * dots_per_mm);
  if (!(width >= 1 && height >= 1 && width <= kMostDots &&
        height <= kMostDots)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a PNG of ", width, " x ", height, " dots; allowed: 1 to ",
                     kMostDots, " each way"));
  }
  void* const surface = lib->image_surface(
      kCairoArgb32, static_cast<int>(width), static_cast<int>(height));
  std::string out;
  absl::Status status = SurfaceStatus(*lib, surface);
  if (status.ok()) status = Draw(*lib, svg, surface, {0, 0, width, height});
  if (status.ok() && lib->write_png(surface, &Append, &out) != 0) {
    status = CannotDraw("cairo", lib->status_text(kCairoWriteError));
  }
  lib->destroy_surface(surface);
  PW_RETURN_IF_ERROR(status);
  return out;
}

absl::StatusOr<std::string> PdfOf(absl::string_view svg, double width_mm,
                                  double height_mm) {
  PW_ASSIGN_OR_RETURN(const Libraries* lib, Libraries::Load());
  const double width = width_mm * kPdfPointsPerMm;
  const double height = height_mm * kPdfPointsPerMm;
  std::string out;
  void* const surface = lib->pdf_surface(&Append, &out, width, height);
  absl::Status status = SurfaceStatus(*lib, surface);
  if (status.ok()) {
    lib->pdf_metadata(surface, kCreateDate, kFixedDate);
    lib->pdf_metadata(surface, kModifyDate, kFixedDate);
    status = Draw(*lib, svg, surface, {0, 0, width, height});
    lib->finish(surface);
    if (status.ok()) status = SurfaceStatus(*lib, surface);
  }
  lib->destroy_surface(surface);
  PW_RETURN_IF_ERROR(status);
  return out;
}

}  // namespace pipewright
