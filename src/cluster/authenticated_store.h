// AuthenticatedStore: a c10d store in which every value carries an HMAC of its key and itself.
//
// Whoever reaches the rendezvous can write to it; a value that was not written with the same key is
// never returned. It can still be deleted or kept back: then get() and wait() time out.
//
// get() and check() look at the values; wait() at their presence only, so get() must follow it.
// Counters (add) cannot be authenticated and are refused. Values are limited to 64 KiB.
//
//   const auto store = make_authenticated_store(tcp_store, key, "the rendezvous at a port 4711");
//   store->get("joined/1");   // InputError: the rendezvous at a port 4711 has a value that …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

namespace c10d {
class Store;
}

namespace tlt::cluster {

// `place` begins the sentence about a value that is refused.
c10::intrusive_ptr<c10d::Store> make_authenticated_store(
    const c10::intrusive_ptr<c10d::Store>& store, const std::string& key, const std::string& place);

}  // namespace tlt::cluster
