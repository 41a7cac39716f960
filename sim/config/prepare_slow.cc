#include "sim/config/prepare_slow.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/digest.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/check_texts.h"
#include "sim/config/config_fields.h"

namespace pipewright {
namespace {

// What keeps the draws of devices and of links apart.
constexpr uint64_t kDeviceStream = 0x64657669;
constexpr uint64_t kLinkStream = 0x6c696e6b;
// Each has a factor of its own.
constexpr int64_t kMostSlowDevices = int64_t{1} << 24;

struct SlowItem {
  std::string text;
  std::string name;
  double factor = 1;
};

absl::StatusOr<std::vector<SlowItem>> ReadItems(
    const RunConfig& config, const char* field,
    const std::vector<std::string>& texts) {
  std::vector<SlowItem> items;
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    const size_t star = text.rfind('*');
    SlowItem item = {.text = text};
    if (star == std::string::npos || star == 0 ||
        !absl::SimpleAtod(text.substr(star + 1), &item.factor) ||
        !(item.factor >= kFactors.least && item.factor <= kFactors.most)) {
      return BadValue(config.Field(field), text,
                      absl::StrCat("NAME*FACTOR, with a factor from ",
                                   kFactors.least, " to ", kFactors.most));
    }
    item.name = text.substr(0, star);
    if (!seen.insert(item.name).second) {
      return BadValue(config.Field(field), text, "each name once");
    }
    items.push_back(std::move(item));
  }
  return items;
}

absl::StatusOr<std::optional<SlowLaw>> ReadLaw(
    const RunConfig& config, const char* field,
    const std::optional<std::string>& text) {
  if (!text) return std::optional<SlowLaw>();
  absl::StatusOr<SlowLaw> law = ParseSlowLaw(*text);
  PW_RETURN_IF_ERROR(Prefix(config.Field(field), law.status()));
  return std::optional<SlowLaw>(*std::move(law));
}

uint64_t SeedOf(const RunConfig& config) {
  return static_cast<uint64_t>(
      config.slow.seed.value_or(config.costs.seed.value_or(0)));
}

// "node0" covers "node0/gpu3" and itself.
bool CoversName(absl::string_view name, absl::string_view whole) {
  return absl::ConsumePrefix(&whole, name) &&
         (whole.empty() || whole[0] == '/');
}

// "replica2/rank3", either of them, and "/device1" behind it; -1: any.
struct DevicePlace {
  int replica = -1;
  int rank = -1;
  int index = -1;
};

std::optional<DevicePlace> ReadPlace(absl::string_view name) {
  DevicePlace place;
  size_t next = 0;  // parts come in this order
  for (absl::string_view part : absl::StrSplit(name, '/')) {
    const std::pair<absl::string_view, int*> known[] = {
        {"replica", &place.replica},
        {"rank", &place.rank},
        {"device", &place.index}};
    bool read = false;
    for (; next < std::size(known) && !read; ++next) {
      absl::string_view number = part;
      read = absl::ConsumePrefix(&number, known[next].first) &&
             !number.empty() && absl::c_all_of(number, absl::ascii_isdigit) &&
             absl::SimpleAtoi(number, known[next].second);
    }
    if (!read) return std::nullopt;
  }
  return place;
}

// How many devices of the run the item names.
int64_t TakeItem(const SlowItem& item, SlowDevices* slow) {
  const std::optional<DevicePlace> place = ReadPlace(item.name);
  int64_t named = 0;
  const auto count = static_cast<int64_t>(slow->number.size());
  for (int64_t index = 0; index < count; ++index) {
    bool covers = false;
    if (place) {
      const int64_t rank_of_all = index / slow->devices_per_rank;
      const auto fits = [](int wanted, int64_t is) {
        return wanted < 0 || wanted == is;
      };
      covers = fits(place->replica, rank_of_all / slow->pp) &&
               fits(place->rank, rank_of_all % slow->pp) &&
               fits(place->index, index % slow->devices_per_rank);
    } else if (!slow->names.empty()) {
      covers = CoversName(item.name, slow->names[slow->number[index]]);
    }
    if (!covers) continue;
    slow->of.named[index] *= item.factor;
    ++named;
  }
  return named;
}

std::string KnownDevices(const SlowDevices& slow) {
  std::string out = absl::StrCat(
      "a device with a rank of this run: rank0 to rank", slow.pp - 1,
      ", replica0 to replica", slow.dp - 1, ", both (replica0/rank0)");
  if (slow.names.empty()) {
    return absl::StrCat(out, "; without a system devices have no other name");
  }
  const auto [least, most] =
      std::minmax_element(slow.number.begin(), slow.number.end());
  return absl::StrCat(out, ", ", slow.names[*least], " to ", slow.names[*most],
                      ", or their nodes");
}

}  // namespace

void SlowFactors::Draw(uint64_t stream,
                       absl::FunctionRef<uint64_t(size_t)> number) {
  factors = named;
  if (!law) return;
  for (size_t index = 0; index < factors.size(); ++index) {
    factors[index] *= law->Factor(seed, stream, number(index));
  }
}

DeviceFactors SlowDevices::OfRanks() const {
  DeviceFactors out;
  out.reserve(of.factors.size() / devices_per_rank);
  for (auto first = of.factors.begin(); first != of.factors.end();
       first += devices_per_rank) {
    out.push_back(*std::max_element(first, first + devices_per_rank));
  }
  return out;
}

std::string SlowDevices::NameOf(int64_t index) const {
  if (!names.empty()) return names[number[index]];
  const int64_t rank_of_all = index / devices_per_rank;
  return absl::StrCat("replica", rank_of_all / pp, "/rank", rank_of_all % pp,
                      devices_per_rank == 1
                          ? ""
                          : absl::StrCat("/device", index % devices_per_rank));
}

std::shared_ptr<const Cluster> SlowLinks::Slowed() const {
  auto slowed = std::make_shared<Cluster>(*healthy);
  for (size_t link = 0; link < of.factors.size(); ++link) {
    slowed->SlowLink(static_cast<LinkId>(link), of.factors[link]);
  }
  return slowed;
}

absl::Status CheckSlowTexts(const RunConfig& config) {
  const SlowChoice& slow = config.slow;
  PW_RETURN_IF_ERROR(
      ReadLaw(config, "slow.devices_law", slow.devices_law).status());
  PW_RETURN_IF_ERROR(ReadItems(config, "slow.devices", slow.devices).status());
  PW_RETURN_IF_ERROR(
      ReadLaw(config, "slow.links_law", slow.links_law).status());
  return ReadItems(config, "slow.links", slow.links).status();
}

absl::StatusOr<std::optional<SlowDevices>> PrepareSlowDevices(
    const RunConfig& config, int pp, int dp, int devices_per_rank,
    const Cluster* cluster, const RankMapping* mapping) {
  constexpr char kField[] = "slow.devices";
  if (!SlowsDevices(config.slow)) return std::optional<SlowDevices>();
  SlowDevices slow = {.pp = pp, .dp = dp, .devices_per_rank = devices_per_rank};
  const int64_t count = int64_t{pp} * dp * devices_per_rank;
  if (count > kMostSlowDevices) {
    return BadValue(
        config.Field(config.slow.devices_law ? "slow.devices_law" : kField),
        absl::StrCat(count, " devices"),
        absl::StrCat("at most ", kMostSlowDevices));
  }
  for (int64_t index = 0; index < count; ++index) {
    const auto rank_of_all = static_cast<int>(index / devices_per_rank);
    slow.number.push_back(
        mapping == nullptr
            ? static_cast<int>(index)
            : mapping->DeviceOf(rank_of_all / pp, rank_of_all % pp,
                                static_cast<int>(index % devices_per_rank)));
  }
  if (cluster != nullptr) {
    for (const Device& device : cluster->devices()) {
      slow.names.push_back(device.name);
    }
  }
  PW_ASSIGN_OR_RETURN(slow.of.law, ReadLaw(config, "slow.devices_law",
                                           config.slow.devices_law));
  slow.of.seed = SeedOf(config);
  slow.of.named.assign(count, 1);
  PW_ASSIGN_OR_RETURN(const std::vector<SlowItem> items,
                      ReadItems(config, kField, config.slow.devices));
  for (const SlowItem& item : items) {
    if (TakeItem(item, &slow) > 0) continue;
    return BadValue(config.Field(kField), item.text, KnownDevices(slow));
  }
  Redraw(0, &slow);
  return std::optional<SlowDevices>(std::move(slow));
}

absl::StatusOr<std::optional<SlowLinks>> PrepareSlowLinks(
    const RunConfig& config, std::shared_ptr<const Cluster> cluster) {
  constexpr char kField[] = "slow.links";
  if (!SlowsLinks(config.slow)) return std::optional<SlowLinks>();
  if (cluster == nullptr) {
    return MissingValue(
        config.Field("system.preset"),
        "a system, whose links slow.links and slow.links_law make slower "
        "(--system); a pure delay is given as it is");
  }
  SlowLinks slow;
  slow.healthy = std::move(cluster);
  const std::vector<Link>& links = slow.healthy->links();
  PW_ASSIGN_OR_RETURN(slow.of.law,
                      ReadLaw(config, "slow.links_law", config.slow.links_law));
  slow.of.seed = SeedOf(config);
  slow.of.named.assign(links.size(), 1);
  PW_ASSIGN_OR_RETURN(const std::vector<SlowItem> items,
                      ReadItems(config, kField, config.slow.links));
  for (const SlowItem& item : items) {
    bool found = false;
    for (size_t link = 0; link < links.size(); ++link) {
      if (!CoversName(item.name, links[link].name)) continue;
      slow.of.named[link] *= item.factor;
      found = true;
    }
    if (found) continue;
    std::vector<std::string> names;
    for (const Link& link : links) names.push_back(link.name);
    std::string nearest = NearestName(item.name, names);
    if (nearest.empty() && !names.empty()) nearest = names[0];
    return BadValue(
        config.Field(kField), item.text,
        absl::StrCat("a link of the system, as ", nearest,
                     ", or the beginning of several names up to a '/'"));
  }
  Redraw(0, &slow);
  return std::optional<SlowLinks>(std::move(slow));
}

void Redraw(uint64_t more, SlowDevices* devices) {
  devices->of.seed += more;
  devices->of.Draw(kDeviceStream,
                   [&](size_t index) { return devices->number[index]; });
}

void Redraw(uint64_t more, SlowLinks* links) {
  links->of.seed += more;
  // By name: links get other numbers where a system gets more of them.
  links->of.Draw(kLinkStream, [&](size_t link) {
    return DigestNumber(links->healthy->links()[link].name);
  });
}

}  // namespace pipewright
