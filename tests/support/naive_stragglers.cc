#include "tests/support/naive_stragglers.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace pipewright::testing {
namespace {

const std::vector<std::string>& Tail() {
  static const auto* const tail =
      new std::vector<std::string>{"gc",
                                   "layernorm-grads-all-reduce",
                                   "embedding-grads-all-reduce",
                                   "grads-reduce-scatter",
                                   "optimizer-clip-main-grad",
                                   "optimizer"};
  return *tail;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "forward" of "forward-send".
std::string DirectionOf(const std::string& type) {
  return type.substr(0, type.find('-'));
}

}  // namespace

NaiveStragglers::NaiveStragglers(const std::string& csv, NaiveFault fault)
    : fault_(fault) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    std::string cell;
    while (std::getline(row, cell, ',')) cells.push_back(cell);
    const Name name = {std::atoi(cells[1].c_str()), std::atoi(cells[2].c_str()),
                       cells[3], std::atoi(cells[4].c_str())};
    steps_[std::atoll(cells[0].c_str())][name] = {
        std::atof(cells[7].c_str()) / 1e9, std::atof(cells[8].c_str()) / 1e9};
    replicas_ = std::max(replicas_, std::get<0>(name) + 1);
    stages_ = std::max(stages_, std::get<1>(name) + 1);
  }
  computes_.resize(stages_);
  for (int stage = 0; stage < stages_; ++stage) {
    std::vector<std::pair<double, std::pair<std::string, int>>> order;
    for (const auto& [name, times] : steps_.begin()->second) {
      const auto& [replica, own, type, number] = name;
      if (replica != 0 || own != stage || !EndsWith(type, "-compute")) continue;
      order.push_back({times.start, {type, number}});
    }
    std::sort(order.begin(), order.end());
    for (auto& each : order) computes_[stage].push_back(each.second);
  }
  std::map<std::string, std::vector<double>> all;
  for (const auto& [number, step] : steps_) {
    for (const auto& [name, times] : step) {
      all[std::get<2>(name)].push_back(Own(step, name));
    }
  }
  for (auto& [type, values] : all) {
    const bool computes =
        EndsWith(type, "-compute") || type == "optimizer" || type == "gc";
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    double ideal = values.size() % 2 == 1
                       ? values[half]
                       : 0.5 * (values[half - 1] + values[half]);
    if (computes && fault != NaiveFault::kMeanIsMedian) {
      ideal = 0;
      for (const double value : values) {
        ideal += value / static_cast<double>(values.size());
      }
    }
    ideal_[type] = ideal;
  }
}

bool NaiveStragglers::Has(const Name& name) const {
  return steps_.begin()->second.count(name) > 0;
}

std::vector<NaiveStragglers::Name> NaiveStragglers::Before(
    const Name& name) const {
  const auto& [replica, stage, type, number] = name;
  std::vector<Name> before;
  const auto add = [&, replica = replica, stage = stage](
                       const std::string& other, int place) {
    const Name found = {replica, stage, other, place};
    if (Has(found)) before.push_back(found);
  };
  const auto& computes = computes_[stage];
  const auto at =
      std::find(computes.begin(), computes.end(), std::make_pair(type, number));
  const std::string direction = DirectionOf(type);
  if (at != computes.end()) {
    if (at != computes.begin()) add((at - 1)->first, (at - 1)->second);
    add(direction + "-recv", number);
    if (at == computes.begin() && fault_ != NaiveFault::kNoGather) {
      add("params-all-gather", 0);
    }
    return before;
  }
  if (EndsWith(type, "-send") || EndsWith(type, "-recv")) {
    if (number > 0) add(type, number - 1);
    if (EndsWith(type, "-send")) {
      add(direction + "-compute", number);
    } else if (fault_ != NaiveFault::kReceiveFree) {
      add(direction + "-compute", number - 1);
    }
    if (direction == "backward" && number == 0 &&
        fault_ != NaiveFault::kBackwardAtOnce) {
      size_t first = 0;
      while (computes[first].first != "backward-compute") ++first;
      if (first >= 2) {
        add(computes[first - 2].first, computes[first - 2].second);
      }
    }
    return before;
  }
  if (type == "grads-reduce-scatter") add("params-all-gather", 0);
  const auto own = std::find(Tail().begin(), Tail().end(), type);
  if (own == Tail().end()) return before;
  for (auto each = own; each != Tail().begin();) {
    --each;
    if (!Has({replica, stage, *each, 0})) continue;
    add(*each, 0);
    return before;
  }
  add(computes.back().first, computes.back().second);
  return before;
}

std::vector<NaiveStragglers::Name> NaiveStragglers::Partners(
    const Name& name) const {
  const auto& [replica, stage, type, number] = name;
  std::vector<Name> all = {name};
  if (EndsWith(type, "-send") || EndsWith(type, "-recv")) {
    const std::string direction = DirectionOf(type);
    const bool up = (direction == "forward") == EndsWith(type, "-send");
    const std::string other =
        direction + (EndsWith(type, "-send") ? "-recv" : "-send");
    all.push_back({replica, stage + (up ? 1 : -1), other, number});
  } else if (type == "embedding-grads-all-reduce" && stages_ > 1) {
    all.push_back({replica, stage == 0 ? stages_ - 1 : 0, type, number});
  } else if (type == "params-all-gather" || type == "grads-reduce-scatter" ||
             type == "optimizer-clip-main-grad") {
    const bool clip = type == "optimizer-clip-main-grad";
    all.clear();
    for (int other = 0; other < replicas_; ++other) {
      if (clip && fault_ == NaiveFault::kOwnClip && other != replica) continue;
      for (int place = 0; place < stages_; ++place) {
        if (clip || place == stage) all.push_back({other, place, type, number});
      }
    }
  }
  return all;
}

double NaiveStragglers::Own(const Step& step, const Name& name) const {
  const Times& times = step.at(name);
  const std::vector<Name> partners = Partners(name);
  if (partners.size() == 1 || fault_ == NaiveFault::kWaitIsTransfer) {
    return times.duration;
  }
  double latest = -1e300;
  for (const Name& each : partners) {
    latest = std::max(latest, step.at(each).start);
  }
  const double own = times.start + times.duration - latest;
  return own <= -0.01 ? 0 : own;
}

double NaiveStragglers::Ready(const Step& step, const Name& name,
                              const Keep& keep, Ends* ends) const {
  double ready = -1e300;
  for (const Name& each : Before(name)) {
    ready = std::max(ready, End(step, each, keep, ends));
  }
  return ready == -1e300 ? 0 : ready;
}

double NaiveStragglers::End(const Step& step, const Name& name,
                            const Keep& keep, Ends* ends) const {
  const auto known = ends->find(name);
  if (known != ends->end()) return known->second;
  const std::vector<Name> partners = Partners(name);
  double ready = -1e300;
  for (const Name& each : partners) {
    ready = std::max(ready, Ready(step, each, keep, ends));
  }
  for (const Name& each : partners) {
    const auto& [replica, stage, type, number] = each;
    (*ends)[each] = ready + (keep(replica, stage, type) ? Own(step, each)
                                                        : ideal_.at(type));
  }
  return ends->at(name);
}

std::map<int64_t, double> NaiveStragglers::Steps(const Keep& keep) const {
  std::map<int64_t, double> seconds;
  for (const auto& [number, step] : steps_) {
    Ends ends;
    double& last = seconds[number];
    for (const auto& [name, times] : step) {
      last = std::max(last, End(step, name, keep, &ends));
    }
  }
  return seconds;
}

}  // namespace pipewright::testing
