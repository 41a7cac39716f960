#include "kernels/cpu/bf16_gemm.h"

#include <string.h>

#include "kernels/cpu/device.h"
#include "kernels/onednn/module.h"

namespace pipewright {

#ifdef PIPEWRIGHT_ONEDNN

namespace {

class OneDnnBf16Gemm : public Bf16Gemm {
 public:
  OneDnnBf16Gemm(const OneDnnModule& module, OneDnnBf16* bf16)
      : module_(module), bf16_(bf16) {}
  ~OneDnnBf16Gemm() override { module_.close_bf16(bf16_); }
  OneDnnBf16Gemm(const OneDnnBf16Gemm&) = delete;
  OneDnnBf16Gemm& operator=(const OneDnnBf16Gemm&) = delete;

  PwStatus Run(const PwGemm& gemm, const void* a, const void* b,
               const void* bias, void* c) override {
    char error[200];
    if (module_.run_bf16(bf16_, gemm, a, b, bias, c, error, sizeof(error))) {
      return PW_OK;
    }
    return Fail(PW_FAILED, "gemm: oneDNN: %s", error);
  }

  std::string Implementation() const override {
    return module_.bf16_implementation(bf16_);
  }

 private:
  const OneDnnModule& module_;
  OneDnnBf16* const bf16_;
};

}  // namespace

std::unique_ptr<Bf16Gemm> Bf16Gemm::Create(Bf16Products wanted) {
  if (wanted == Bf16Products::kOff) return nullptr;
  const OneDnnModule* const module = OneDnn(nullptr);
  if (module == nullptr) return nullptr;
  char name[200] = "";
  OneDnnBf16* const opened = module->open_bf16(name, sizeof(name));
  if (opened == nullptr) return nullptr;
  auto gemm = std::make_unique<OneDnnBf16Gemm>(*module, opened);
  if (wanted == Bf16Products::kWhereFast && strstr(name, "amx") == nullptr) {
    return nullptr;
  }
  return gemm;
}

#else

std::unique_ptr<Bf16Gemm> Bf16Gemm::Create(Bf16Products) { return nullptr; }

#endif

}  // namespace pipewright
