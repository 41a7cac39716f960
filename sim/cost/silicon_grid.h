// Times of matrix products between measured shapes. It knows no device: what
// the products would take by a model comes in as a function.
#pragma once

#include <functional>
#include <vector>

#include "sim/profile/silicon_table.h"

namespace pipewright {

struct SiliconTime {
  double seconds = 0;
  double error = 0;       // half of a 90 % interval, as a part of the time
  bool is_inside = true;  // within the measured sizes
};

// Seconds of a product by a model; only ratios of it matter.
using ProductModel = std::function<double(double m, double n, double k)>;

class SiliconGrid {
 public:
  // Grid of a table "gemm". Shapes that a full grid of the table's sizes has
  // and the table has not are filled from their neighbours along m, n and k.
  explicit SiliconGrid(const SiliconTable& table);

  // Linear between the eight corners around the shape, in logarithms of sizes
  // and times. The interpolated quantity is the mean of two: time over work,
  // and time over `model`, which knows tiles and waves but not the kernels. A
  // measured shape gives its own time. Beyond the ends the time goes on as
  // `model` does. The error grows with the distance from the corners.
  SiliconTime At(double m, double n, double k, const ProductModel& model) const;

 private:
  int Index(int m, int n, int k) const {
    return (m * Size(1) + n) * Size(2) + k;
  }
  int Size(int axis) const { return static_cast<int>(axes_[axis].size()); }
  void FillHoles();

  std::vector<double> axes_[3];
  // Logarithm of the time; NaN where nothing is known.
  std::vector<double> logs_;
  std::vector<double> errors_;
};

}  // namespace pipewright
