#include "sim/program/slow_devices.h"

#include <map>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {

void ScaleRank(double factor, RankProgram* rank) {
  if (factor == 1) return;
  for (size_t lane = 0; lane < rank->lanes.size(); ++lane) {
    if (!IsComputePass(Pass::KindOf(lane))) continue;
    rank->lanes[lane].seconds *= factor;
  }
  for (SideOp& op : rank->side_ops) {
    // What a push waits for is another device's.
    if (!IsOneSided(op.kind)) op.seconds *= factor;
  }
}

void ScaleDevices(const DeviceFactors& factors, Program* program) {
  const int pp = program->pp();
  PW_CHECK(factors.size() == static_cast<size_t>(program->replicas) * pp);
  std::vector<DpClass> classes;
  std::vector<int> class_of_replica;
  // Of a class and the factors of its ranks.
  std::map<std::pair<int, std::vector<double>>, int> known;
  for (int replica = 0; replica < program->replicas; ++replica) {
    const auto begin = factors.begin() + static_cast<ptrdiff_t>(replica) * pp;
    std::vector<double> own(begin, begin + pp);
    const int old = program->ClassOf(replica);
    const auto [entry, is_new] = known.try_emplace(
        {old, std::move(own)}, static_cast<int>(classes.size()));
    if (is_new) {
      DpClass& made = classes.emplace_back(program->dp_class(old));
      for (int rank = 0; rank < pp; ++rank) {
        ScaleRank(entry->first.second[rank], &made.ranks[rank]);
      }
    }
    class_of_replica.push_back(entry->second);
  }
  static_cast<DpClass&>(*program) = std::move(classes[0]);
  program->more_classes.assign(std::make_move_iterator(classes.begin() + 1),
                               std::make_move_iterator(classes.end()));
  program->class_of_replica =
      classes.size() > 1 ? std::move(class_of_replica) : std::vector<int>();
}

}  // namespace pipewright
