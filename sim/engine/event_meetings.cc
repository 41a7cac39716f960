#include "sim/engine/event_meetings.h"

#include <algorithm>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {

EventMeetings::EventMeetings(const Program& program, TrafficSources* sources)
    : program_(program) {
  for (size_t group = 0; group < program.groups.size(); ++group) {
    first_.push_back(static_cast<int>(meetings_.size()));
    const Group& meets = program.groups[group];
    const int instances = meets.Instances(program.replicas);
    for (int instance = 0; instance < instances; ++instance) {
      Meeting& meeting = meetings_.emplace_back();
      meeting.group = static_cast<int>(group);
      meeting.replica = meets.FirstOf(instance);
      meeting.expected = static_cast<int>(meets.ranks.size()) *
                         meets.ReplicasOf(program.replicas);
    }
  }
  for (Meeting& meeting : meetings_) PlanMeeting(sources, &meeting);
}

void EventMeetings::PlanMeeting(TrafficSources* sources, Meeting* meeting) {
  const Group& group = program_.groups[meeting->group];
  const std::vector<Member> members =
      GroupMembers(program_, group, meeting->replica);
  const int replica = group.span == Group::Span::kRanks ? meeting->replica : -1;
  // If it spans replicas, those of all classes meet alike.
  for (const SideOp& op :
       program_.OfReplica(meeting->replica).ranks[group.ranks[0]].side_ops) {
    if (op.group != meeting->group) continue;
    const auto [known, is_new] =
        meeting->plans.try_emplace(CollectiveKeyOf(op));
    if (!is_new) continue;
    Plan& plan = known->second;
    static_cast<CollectivePlan&>(plan) = PlanCollective(program_, op, members);
    // Phases over the same links are one source, whatever they carry: those
    // of one meeting never meet.
    for (const CollectivePhase& phase : plan.phases) {
      int source = SourceOfPhase(*meeting, phase.loads, *sources);
      if (source < 0) {
        source =
            sources->Add({.flows = {.loads = phase.loads}, .replica = replica});
      }
      plan.sources.push_back(source);
    }
    const bool sends = plan.ring && plan.bytes_per_edge > 0;
    // All rings of a group use the same links.
    FlowBundle flows = {.loads = std::move(plan.loads)};
    plan.loads.clear();
    if (sends && meeting->source < 0) {
      meeting->source =
          sources->Add({.flows = std::move(flows), .replica = replica});
    }
  }
}

// One that the meeting has already; -1: none.
int EventMeetings::SourceOfPhase(const Meeting& meeting,
                                 const std::vector<LinkLoad>& loads,
                                 const TrafficSources& sources) {
  for (const auto& [key, plan] : meeting.plans) {
    for (const int source : plan.sources) {
      if (source >= 0 && sources.all()[source].flows.loads == loads) {
        return source;
      }
    }
  }
  return -1;
}

int EventMeetings::Arrive(int device, Stream stream, const SideOp& op,
                          double ready_s, const TrafficSources& sources) {
  const int number = Of(op.group, device / program_.pp());
  Meeting& meeting = meetings_[number];
  if (meeting.arrived.empty() && SpansReplicas(program_, op)) {
    PW_CHECK(ready_s >= none_before_s_);
    ++open_;
  }
  meeting.arrived.push_back({device, stream});
  meeting.latest_s = std::max(meeting.latest_s, ready_s);
  if (static_cast<int>(meeting.arrived.size()) < meeting.expected) return -1;
  const Plan& plan = meeting.plans.at(CollectiveKeyOf(op));
  meeting.plan = &plan;
  meeting.phase = 0;
  meeting.start_s = meeting.latest_s;
  meeting.end_s = meeting.start_s + plan.seconds;
  meeting.latest_s = 0;
  meeting.shares =
      (plan.ring && plan.bytes_per_edge > 0 && sources.Moves(meeting.source)) ||
      std::any_of(plan.sources.begin(), plan.sources.end(),
                  [&](int source) { return sources.Moves(source); });
  return number;
}

bool EventMeetings::Alike(int number, int other) const {
  const auto same_phase = [](const CollectivePhase& one,
                             const CollectivePhase& two) {
    return one.latency_s == two.latency_s && one.bytes == two.bytes;
  };
  const auto same = [&](const auto& one, const auto& two) {
    const Plan& plan = one.second;
    const Plan& with = two.second;
    return one.first == two.first && plan.ring == with.ring &&
           plan.seconds == with.seconds && plan.latency_s == with.latency_s &&
           plan.bytes_per_edge == with.bytes_per_edge &&
           std::equal(plan.phases.begin(), plan.phases.end(),
                      with.phases.begin(), with.phases.end(), same_phase);
  };
  const auto& plans = meetings_[number].plans;
  const auto& others = meetings_[other].plans;
  return number == other || std::equal(plans.begin(), plans.end(),
                                       others.begin(), others.end(), same);
}

std::vector<int> EventMeetings::SourcesOf(int number) const {
  const Meeting& meeting = meetings_[number];
  std::vector<int> sources = {meeting.source};
  for (const auto& [key, plan] : meeting.plans) {
    sources.insert(sources.end(), plan.sources.begin(), plan.sources.end());
  }
  return sources;
}

EventTransfer EventMeetings::Transfer(int number, double start_s,
                                      const TrafficSources& sources) const {
  const Meeting& meeting = meetings_[number];
  const Plan& plan = *meeting.plan;
  EventTransfer transfer = {
      .of = EventTransfer::Of::kMeeting, .index = number, .start_s = start_s};
  if (plan.phases.empty()) {
    // Once the latencies of its steps are over the edges carry their shares.
    transfer.source = meeting.source;
    transfer.bytes = plan.bytes_per_edge;
    transfer.latency_s = plan.latency_s;
    transfer.alone_s = plan.seconds;
    return transfer;
  }
  const CollectivePhase& phase = plan.phases[meeting.phase];
  transfer.source = plan.sources[meeting.phase];
  transfer.bytes = phase.bytes;
  transfer.latency_s = phase.latency_s;
  transfer.alone_s = phase.latency_s;
  if (transfer.source >= 0) {
    transfer.alone_s += phase.bytes / sources.plan(transfer.source).bytes_per_s;
  }
  return transfer;
}

bool EventMeetings::NextPhase(int number) {
  Meeting& meeting = meetings_[number];
  return ++meeting.phase < meeting.plan->phases.size();
}

std::vector<EventMeetings::Arrived> EventMeetings::End(int number) {
  Meeting& meeting = meetings_[number];
  if (program_.groups[meeting.group].span != Group::Span::kRanks) --open_;
  return std::exchange(meeting.arrived, {});
}

std::vector<int> EventMeetings::DevicesOf(int number) const {
  std::vector<int> devices;
  for (const Arrived& each : meetings_[number].arrived) {
    devices.push_back(each.device);
  }
  return devices;
}

}  // namespace pipewright
