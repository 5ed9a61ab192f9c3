// SPDX-License-Identifier: Apache-2.0
#include "cluster/group_exchange.h"

#include <algorithm>

namespace tlt::cluster {

void GroupExchange::handed_over(int from, int to, bool has_group) {
  if (!has_group) at(from).offered = 0;
  if (at(to).asked != from) return;
  at(to).asked.reset();
  if (!has_group) set_wants(at(to), true);
}

void GroupExchange::lose(int worker) {
  set_wants(at(worker), false);
  at(worker) = {};
  for (Worker& other : workers_)
    if (other.asked == worker) other.asked.reset(), set_wants(other, true);
}

std::optional<GroupExchange::Match> GroupExchange::next_match() {
  if (wanting_ == 0) return std::nullopt;  // without a look at all workers
  const auto from = std::ranges::max_element(workers_, {}, &Worker::offered);
  const auto to = std::ranges::find_if(
      workers_, [&](const Worker& it) { return it.wants && !it.asked && &it != &*from; });
  if (from->offered <= 0 || to == workers_.end()) return std::nullopt;
  --from->offered;
  set_wants(*to, false);
  to->asked = static_cast<int>(from - workers_.begin());
  return Match{.from = *to->asked, .to = static_cast<int>(to - workers_.begin())};
}

}  // namespace tlt::cluster
