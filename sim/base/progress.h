// Hears how far a run has come, for whoever waits for it. Calls come often and
// from the thread that runs, also in a forked child of it: At() must be cheap,
// and must not take locks that another thread may hold.
#pragma once

namespace pipewright {

class Progress {
 public:
  virtual ~Progress() = default;
  // `part` is done, 0 to 1; it never falls within a run. 1: the run is over.
  virtual void At(double part) = 0;
};

}  // namespace pipewright
