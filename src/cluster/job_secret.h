// Job secret: what only the workers of one job know, and the keys that are made from it.
//
// `tlt … --workers N` makes one for its workers; with another launcher every worker gets the same
// TLT_JOB_SECRET (launch.h reads it). The secret itself is never sent. docs/trust.md says what it
// protects.
//
//   const std::string key = derive_key(launch.job_secret, "rendezvous");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tlt::cluster {

// 32 bytes of the kernel's random numbers as 64 hex digits: a secret, or a nonce.
std::string random_hex();

// A key of 32 bytes for one purpose: HMAC-SHA256(secret, purpose). The keys of an empty secret are
// known to all: they tell workers with a secret from those without, and protect nothing.
std::string derive_key(const std::string& secret, const std::string& purpose);

}  // namespace tlt::cluster
