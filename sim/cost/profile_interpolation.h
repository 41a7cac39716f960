// Times of shapes between measured ones. A time is taken as a sum of parts that
// grow with the work (a constant, FLOPs of linear layers, FLOPs of attention,
// streamed elements), fitted with coefficients from 0 on to the least relative
// error; the factor by which the fit misses the points near by is carried over
// to the new shape. Every value has an error estimate of its own: how far the
// points near by are missed when each is left out. Knows no profile and no
// model.
//
// Units: seconds; the work is in whatever unit all points share.
#pragma once

#include <vector>

namespace pipewright {

struct GridPoint {
  // What the time may be linear in, beside a constant.
  std::vector<double> work;
  // Above 0; nearness is that of the logarithms.
  std::vector<double> where;
  double seconds = 0;
};

struct Interpolated {
  double seconds = 0;
  // Expected relative error; 0 where measured, below 0 where it is unknown (a
  // single point).
  double error = 0;
  bool measured = false;
  bool inside = true;  // within the measured range in every coordinate
};

class Interpolation {
 public:
  // At least one point, all with as many `work` and `where`.
  explicit Interpolation(std::vector<GridPoint> points);

  // Other work at the place of a point is no measured time: a slice meets more
  // keys than a short sequence of as many tokens.
  Interpolated At(const std::vector<double>& work,
                  const std::vector<double>& where) const;

  // Relative error of each point when predicted from the others, with its
  // sign; empty with fewer than two points.
  const std::vector<double>& left_out() const { return left_out_; }
  const std::vector<GridPoint>& points() const { return points_; }

 private:
  struct Fit {
    std::vector<double> coefficients;  // the constant first
    double At(const std::vector<double>& work) const;
  };
  static Fit FitTo(const std::vector<GridPoint>& points);
  static double Predict(const std::vector<GridPoint>& points, const Fit& fit,
                        const std::vector<double>& work,
                        const std::vector<double>& where);

  std::vector<GridPoint> points_;
  Fit fit_;
  std::vector<double> left_out_;
};

}  // namespace pipewright
