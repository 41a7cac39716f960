#include "sim/engine/event_fold.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/engine/event_exchanges.h"
#include "sim/engine/event_meetings.h"
#include "sim/engine/event_traffic.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Parts that are like none before them; with more of them, the others run too.
constexpr size_t kMostModels = 8;

}  // namespace

AlikeParts::AlikeParts(const Planned& planned,
                       const std::vector<int>& part_of_replica,
                       const std::vector<int>& part_of_link)
    : planned_(planned),
      part_of_replica_(part_of_replica),
      part_of_link_(part_of_link),
      stand_ins_(part_of_replica.size()),
      idle_links_(part_of_link.size(), false) {
  std::iota(stand_ins_.begin(), stand_ins_.end(), 0);
  for (size_t replica = 0; replica < part_of_replica.size(); ++replica) {
    const auto part = static_cast<size_t>(part_of_replica[replica]);
    if (replicas_.size() <= part) replicas_.resize(part + 1);
    replicas_[part].push_back(static_cast<int>(replica));
  }
  NumberLinks();
  std::vector<int> model_of_part;
  std::vector<int> models;
  for (int part = 0; part < static_cast<int>(replicas_.size()); ++part) {
    const auto model =
        std::find_if(models.begin(), models.end(),
                     [&](int other) { return AreAlike(part, other); });
    model_of_part.push_back(model == models.end() ? part : *model);
    if (model == models.end() && models.size() < kMostModels) {
      models.push_back(part);
    }
  }
  PartByMeetings(&model_of_part);
  if (!OthersStayAway(model_of_part)) return;
  for (size_t part = 0; part < replicas_.size(); ++part) {
    const std::vector<int>& model = replicas_[model_of_part[part]];
    for (size_t place = 0; place < model.size(); ++place) {
      stand_ins_[replicas_[part][place]] = model[place];
    }
  }
  for (size_t link = 0; link < idle_links_.size(); ++link) {
    const int part = part_of_link[link];
    idle_links_[link] = part >= 0 && model_of_part[part] != part;
  }
}

// In the order in which the sources of a part come to them.
void AlikeParts::NumberLinks() {
  const TrafficSources& sources = planned_.sources;
  sources_of_.resize(part_of_replica_.size());
  for (size_t source = 0; source < sources.all().size(); ++source) {
    const int replica = sources.all()[source].replica;
    if (replica >= 0) {
      sources_of_[replica].push_back(static_cast<int>(source));
    }
  }
  number_of_link_.assign(part_of_link_.size(), -1);
  for (const std::vector<int>& replicas : replicas_) {
    int links = 0;
    const auto number = [&](LinkId link) {
      if (number_of_link_[link] < 0) number_of_link_[link] = links++;
    };
    for (const int replica : replicas) {
      for (const int source : sources_of_[replica]) {
        const SourcePlan& plan = sources.plan(source);
        if (plan.sharing == Sharing::kQueue) number(plan.link);
        if (plan.sharing != Sharing::kFlow) continue;
        for (const LinkLoad& load : plan.shared) number(load.link);
      }
    }
  }
  for (size_t source = 0; source < sources.all().size(); ++source) {
    if (sources.all()[source].replica >= 0) continue;
    std::vector<LoadOfPart>& loads = loads_[static_cast<int>(source)];
    for (const LinkLoad& load : sources.plan(static_cast<int>(source)).shared) {
      const int part = part_of_link_[load.link];
      if (part < 0) continue;
      loads.push_back({part, number_of_link_[load.link], load.flows});
    }
    std::sort(loads.begin(), loads.end());
  }
}

bool AlikeParts::AreAlike(int part, int other) const {
  const std::vector<int>& replicas = replicas_[part];
  const std::vector<int>& others = replicas_[other];
  return std::equal(
             replicas.begin(), replicas.end(), others.begin(), others.end(),
             [this](int one, int two) { return ReplicasAlike(one, two); }) &&
         MeetingsAlike(part, other);
}

bool AlikeParts::ReplicasAlike(int replica, int other) const {
  const Program& program = planned_.program;
  if (program.ClassOf(replica) != program.ClassOf(other)) return false;
  const auto channels =
      static_cast<int32_t>(program.OfReplica(replica).channels.size());
  for (int32_t channel = 0; channel < channels; ++channel) {
    const auto seconds = [&](int of) {
      return planned_.channels.SecondsOf(planned_.channels.SlotOf(of, channel));
    };
    if (seconds(replica) != seconds(other)) return false;
  }
  for (int rank = 0; rank < program.pp(); ++rank) {
    if (!planned_.exchanges.Alike(replica * program.pp() + rank,
                                  other * program.pp() + rank)) {
      return false;
    }
  }
  const std::vector<int>& own = sources_of_[replica];
  const std::vector<int>& theirs = sources_of_[other];
  return std::equal(
      own.begin(), own.end(), theirs.begin(), theirs.end(),
      [this](int one, int two) { return SourcesAlike(one, two); });
}

bool AlikeParts::SourcesAlike(int source, int other) const {
  const SourcePlan& plan = planned_.sources.plan(source);
  const SourcePlan& with = planned_.sources.plan(other);
  if (plan.sharing != with.sharing || plan.latency_s != with.latency_s ||
      plan.bytes_per_s != with.bytes_per_s) {
    return false;
  }
  switch (plan.sharing) {
    case Sharing::kNone:
      return true;
    case Sharing::kQueue:
      return plan.flows == with.flows && SameLink(plan.link, with.link);
    case Sharing::kFlow:
      break;
  }
  return std::equal(
      plan.shared.begin(), plan.shared.end(), with.shared.begin(),
      with.shared.end(), [this](const LinkLoad& one, const LinkLoad& two) {
        return one.flows == two.flows && SameLink(one.link, two.link);
      });
}

bool AlikeParts::SameLink(LinkId link, LinkId other) const {
  const std::vector<Link>& links = planned_.program.network.cluster->links();
  return number_of_link_[link] == number_of_link_[other] &&
         links[link].bytes_per_s == links[other].bytes_per_s;
}

bool AlikeParts::MeetingsAlike(int part, int other) const {
  const EventMeetings& meetings = planned_.meetings;
  for (size_t group = 0; group < planned_.program.groups.size(); ++group) {
    Pairs pairs;
    for (size_t place = 0; place < replicas_[part].size(); ++place) {
      const int one = meetings.Of(group, replicas_[part][place]);
      const int two = meetings.Of(group, replicas_[other][place]);
      const bool is_new = pairs.of_one.try_emplace(one, two).second;
      if (pairs.of_one[one] != two ||
          pairs.of_other.try_emplace(two, one).first->second != one) {
        return false;
      }
      if (is_new && !MeetingAlike(one, two, part, other)) return false;
    }
  }
  return true;
}

bool AlikeParts::MeetingAlike(int number, int other, int part,
                              int other_part) const {
  if (!planned_.meetings.Alike(number, other)) return false;
  const std::vector<int> sources = planned_.meetings.SourcesOf(number);
  const std::vector<int> others = planned_.meetings.SourcesOf(other);
  const auto same = [&](int one, int two) {
    if (one < 0 || two < 0) return one == two;
    // One of a single replica has been looked at with that.
    if (planned_.sources.all()[one].replica >= 0) return true;
    const SourcePlan& plan = planned_.sources.plan(one);
    const SourcePlan& with = planned_.sources.plan(two);
    return plan.sharing == with.sharing &&
           plan.bytes_per_s == with.bytes_per_s && plan.flows == with.flows &&
           LoadsIn(one, part) == LoadsIn(two, other_part);
  };
  return std::equal(sources.begin(), sources.end(), others.begin(),
                    others.end(), same);
}

std::vector<AlikeParts::LoadOfPart> AlikeParts::LoadsIn(int source,
                                                        int part) const {
  const std::vector<LoadOfPart>& all = loads_.at(source);
  const auto is_before = [](const LoadOfPart& load, int other) {
    return load.part < other;
  };
  const auto first = std::lower_bound(all.begin(), all.end(), part, is_before);
  const auto behind = std::lower_bound(first, all.end(), part + 1, is_before);
  std::vector<LoadOfPart> loads(first, behind);
  for (LoadOfPart& load : loads) load.part = 0;
  return loads;
}

// Who comes late to a meeting holds up all who come: parts are alike only if
// those are that they meet. What is left of each group of alike parts when that
// is so gets the first of them as its model.
void AlikeParts::PartByMeetings(std::vector<int>* model_of_part) const {
  const EventMeetings& meetings = planned_.meetings;
  const size_t groups = planned_.program.groups.size();
  for (size_t models = 0;;) {
    std::vector<std::vector<int>> members;  // [meeting] models of who comes
    for (size_t group = 0; group < groups; ++group) {
      for (size_t replica = 0; replica < part_of_replica_.size(); ++replica) {
        const auto number =
            static_cast<size_t>(meetings.Of(group, static_cast<int>(replica)));
        if (members.size() <= number) members.resize(number + 1);
        members[number].push_back((*model_of_part)[part_of_replica_[replica]]);
      }
    }
    std::map<std::vector<int>, int> kinds;
    std::vector<int> kind_of_meeting;
    for (std::vector<int>& own : members) {
      std::sort(own.begin(), own.end());
      const auto kind = static_cast<int>(kinds.size());
      kind_of_meeting.push_back(
          kinds.try_emplace(std::move(own), kind).first->second);
    }
    std::map<std::vector<int>, int> first_of;  // model and kinds of meetings
    std::vector<int> next;
    for (size_t part = 0; part < replicas_.size(); ++part) {
      std::vector<int> met = {(*model_of_part)[part]};
      for (size_t group = 0; group < groups; ++group) {
        for (const int replica : replicas_[part]) {
          met.push_back(kind_of_meeting[meetings.Of(group, replica)]);
        }
      }
      next.push_back(
          first_of.try_emplace(std::move(met), static_cast<int>(part))
              .first->second);
    }
    *model_of_part = std::move(next);
    if (first_of.size() == models) return;
    models = first_of.size();
  }
}

// True if collectives to which nobody comes who runs have nothing on links that
// others still use.
bool AlikeParts::OthersStayAway(const std::vector<int>& model_of_part) const {
  const auto runs = [&](int part) { return model_of_part[part] == part; };
  std::vector<bool> comes;
  const auto number_of = [&](size_t group, int replica) {
    const auto number =
        static_cast<size_t>(planned_.meetings.Of(group, replica));
    if (comes.size() <= number) comes.resize(number + 1);
    return number;
  };
  const size_t groups = planned_.program.groups.size();
  const int replicas = planned_.program.replicas;
  for (size_t group = 0; group < groups; ++group) {
    for (int replica = 0; replica < replicas; ++replica) {
      const size_t number = number_of(group, replica);
      if (runs(part_of_replica_[replica])) comes[number] = true;
    }
  }
  for (size_t number = 0; number < comes.size(); ++number) {
    if (comes[number]) continue;
    for (const int source :
         planned_.meetings.SourcesOf(static_cast<int>(number))) {
      if (source < 0 || planned_.sources.all()[source].replica >= 0) continue;
      for (const LinkLoad& load : planned_.sources.plan(source).shared) {
        const int part = part_of_link_[load.link];
        if (part < 0 || runs(part)) return false;
      }
    }
  }
  return true;
}

}  // namespace pipewright
