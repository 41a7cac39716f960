// What SimGrid does by itself, without Pipewright: the yardstick of engine
// `simgrid`.
//
//   simgrid_yardstick pipeline RANKS REPLICAS MICROBATCHES [JITTER]
// runs 1F1B by callbacks of S4U, as the engine's activities: an Exec for each
// pass (5 ms forward, 10 ms backward), a Comm of 16 MiB for each hop, over a
// card of 25 GB/s and 1 us each way of every device. JITTER: passes are off by
// up to so much. Prints activities, the last end, and CPU time in microseconds
// for each activity once the platform is there (docs/dev/benchmarks.md).
//
//   simgrid_yardstick flows FILE BYTES FROM TO [FROM TO]...
// sends bytes between hosts of a platform file, all at once, and prints the
// end of each.
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sg = simgrid::s4u;

// A factor for each pass, the same everywhere.
double FactorOf(double jitter, uint64_t number) {
  if (jitter == 0) return 1;
  number = (number + 1) * 0x9e3779b97f4a7c15;
  number = (number ^ number >> 31) * 0xbf58476d1ce4e5b9;
  return 1 + jitter * (static_cast<double>(number >> 11) / (1ULL << 52) - 1);
}

class Pipeline {
 public:
  Pipeline(int ranks, int replicas, int microbatches, double jitter)
      : ranks_(ranks), microbatches_(microbatches), jitter_(jitter) {
    self_ = this;
    sg::NetZone* const zone = sg::create_star_zone("cluster");
    for (int device = 0; device < ranks * replicas; ++device) {
      const std::string name = "device" + std::to_string(device);
      sg::Host* const host = zone->create_host(name, kSpeed)->seal();
      const auto card = [&](const char* way) {
        return sg::LinkInRoute(zone->create_link(name + way, kBytesPerS)
                                   ->set_latency(kLatency_s)
                                   ->seal());
      };
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                      {card("/up")}, false);
      zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr,
                      {card("/down")}, false);
      devices_.push_back({.host = host, .order = OrderOf(device % ranks)});
      for (auto& arrived : devices_.back().arrived) {
        arrived.resize(microbatches);
      }
    }
    zone->seal();
    sg::Activity::on_completion_cb(
        [](const sg::Activity& activity) { self_->End(activity); });
  }

  void Start() {
    for (size_t device = 0; device < devices_.size(); ++device) Try(device);
  }
  int64_t activities() const { return activities_; }

 private:
  static constexpr double kSpeed = 1099511627776.0;
  static constexpr double kBytesPerS = 25e9;
  static constexpr double kLatency_s = 1e-6;
  static constexpr uint64_t kBytes = 16 << 20;

  struct Pass {
    bool backward = false;
    int microbatch = 0;
  };
  struct Device {
    sg::Host* host = nullptr;
    std::vector<Pass> order;
    size_t position = 0;
    bool busy = false;
    std::vector<char> arrived[2];  // [backward][microbatch]
  };
  struct Running {
    sg::ActivityPtr activity;
    size_t device = 0;  // that it runs on, or that receives it
    Pass pass;
    bool sent = false;
  };

  std::vector<Pass> OrderOf(int rank) const {
    std::vector<Pass> order;
    const int ahead = std::min(microbatches_, ranks_ - rank);
    int forward = 0;
    while (forward < ahead) order.push_back({false, forward++});
    for (int backward = 0; backward < microbatches_; ++backward) {
      order.push_back({true, backward});
      if (forward < microbatches_) order.push_back({false, forward++});
    }
    return order;
  }

  void Try(size_t index) {
    Device& device = devices_[index];
    if (device.busy || device.position == device.order.size()) return;
    const Pass pass = device.order[device.position];
    const int rank = static_cast<int>(index) % ranks_;
    const bool first = pass.backward ? rank == ranks_ - 1 : rank == 0;
    if (!first && !device.arrived[pass.backward][pass.microbatch]) return;
    device.busy = true;
    const double seconds = (pass.backward ? 10e-3 : 5e-3) *
                           FactorOf(jitter_, index << 32 | device.position);
    sg::ExecPtr exec = sg::Exec::init();
    exec->set_flops_amount(seconds * kSpeed)->set_host(device.host);
    Run({std::move(exec), index, pass, false});
  }

  void Run(Running what) {
    if (free_.empty()) {
      free_.push_back(running_.size());
      running_.emplace_back();
    }
    const size_t number = free_.back();
    free_.pop_back();
    sg::Activity* const activity = what.activity.get();
    running_[number] = std::move(what);
    activity->set_data(reinterpret_cast<void*>(number));
    activity->start();
    ++activities_;
  }

  void End(const sg::Activity& activity) {
    const auto number = reinterpret_cast<size_t>(activity.get_data<void>());
    // SimGrid 3.32 looks at it behind this call.
    grave_ = std::move(running_[number].activity);
    const size_t index = running_[number].device;
    const Pass pass = running_[number].pass;
    const bool sent = running_[number].sent;
    free_.push_back(number);
    Device& device = devices_[index];
    if (sent) {
      device.arrived[pass.backward][pass.microbatch] = 1;
      return Try(index);
    }
    device.busy = false;
    ++device.position;
    const int rank = static_cast<int>(index) % ranks_;
    if (pass.backward ? rank > 0 : rank < ranks_ - 1) {
      const size_t to = pass.backward ? index - 1 : index + 1;
      sg::CommPtr comm = sg::Comm::sendto_init(device.host, devices_[to].host);
      comm->set_payload_size(kBytes);
      Run({std::move(comm), to, pass, true});
    }
    Try(index);
  }

  static Pipeline* self_;
  const int ranks_;
  const int microbatches_;
  const double jitter_;
  std::vector<Device> devices_;
  std::vector<Running> running_;
  std::vector<size_t> free_;
  sg::ActivityPtr grave_;
  int64_t activities_ = 0;
};

Pipeline* Pipeline::self_ = nullptr;

double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

int RunPipeline(sg::Engine* engine, const std::vector<std::string>& words) {
  if (words.size() < 5) return 2;
  Pipeline pipeline(std::stoi(words[2]), std::stoi(words[3]),
                    std::stoi(words[4]),
                    words.size() > 5 ? std::stod(words[5]) : 0);
  const double before_s = CpuSeconds();
  pipeline.Start();
  engine->run();
  std::printf("%lld %.17g %.4g\n",
              static_cast<long long>(pipeline.activities()),
              sg::Engine::get_clock(),
              (CpuSeconds() - before_s) * 1e6 /
                  static_cast<double>(pipeline.activities()));
  return 0;
}

int RunFlows(sg::Engine* engine, const std::vector<std::string>& words) {
  if (words.size() < 6) return 2;
  engine->load_platform(words[2]);
  static std::vector<double> ends_s;
  ends_s.resize((words.size() - 4) / 2);
  std::vector<sg::CommPtr> comms;
  sg::Activity::on_completion_cb([](const sg::Activity& activity) {
    ends_s[reinterpret_cast<size_t>(activity.get_data<void>())] =
        sg::Engine::get_clock();
  });
  for (size_t flow = 0; flow < ends_s.size(); ++flow) {
    sg::CommPtr comm =
        sg::Comm::sendto_init(engine->host_by_name(words[4 + 2 * flow]),
                              engine->host_by_name(words[5 + 2 * flow]));
    comm->set_payload_size(std::stoull(words[3]));
    comm->set_data(reinterpret_cast<void*>(flow));
    comm->start();
    comms.push_back(std::move(comm));
  }
  engine->run();
  for (const double end_s : ends_s) std::printf("%.17g\n", end_s);
  return 0;
}

}  // namespace

int main(int, char** arguments) {
  std::vector<std::string> words;
  while (*arguments != nullptr) words.emplace_back(*arguments++);
  const char* const options[] = {"simgrid_yardstick",
                                 "--log=root.thres:critical",
                                 "--cfg=network/model:CM02",
                                 "--cfg=network/crosstraffic:0",
                                 "--cfg=network/TCP-gamma:1e20",
                                 "--cfg=surf/precision:1e-12"};
  std::vector<char*> own;
  for (const char* option : options) own.push_back(const_cast<char*>(option));
  int count = static_cast<int>(own.size());
  own.push_back(nullptr);
  sg::Engine engine(&count, own.data());
  const std::string what = words.size() > 1 ? words[1] : "";
  int result = 2;
  if (what == "pipeline") result = RunPipeline(&engine, words);
  if (what == "flows") result = RunFlows(&engine, words);
  if (result != 0) std::fprintf(stderr, "see simgrid_yardstick.cc\n");
  return result;
}
