// Clocks, power and throttling as NVIDIA's management library says, loaded at
// run time: libnvidia-ml.so.1 comes with the driver, and nvml.h is not among
// the headers of every toolkit. Only reads; it changes no setting of a card.
#ifndef PIPEWRIGHT_KERNELS_CUDA_NVML_H_
#define PIPEWRIGHT_KERNELS_CUDA_NVML_H_

#include <memory>
#include <string>

#include "kernels/kernels.h"

namespace pipewright::cuda {

class Nvml {
 public:
  // For the card at a PCI address ("0000:3b:00.0"). NULL where the library is
  // missing or does not know the card.
  static std::unique_ptr<Nvml> Open(const char* pci_bus_id);
  ~Nvml();

  // "580.65.06"; "" when not known.
  std::string DriverVersion() const;
  // Fills what the card answers, leaves the rest as it is.
  void Read(PwDeviceState* state) const;

 private:
  Nvml() = default;
  void* library_ = nullptr;
  void* card_ = nullptr;  // nvmlDevice_t
};

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_NVML_H_
