// ConnectionLimits: how long a client may take.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt::serve {

struct ConnectionLimits {
  double request_seconds = 30;  // from the first byte of a request to the last of its body
  double write_seconds = 30;    // until the client takes further bytes
  double idle_seconds = 10;     // between two requests
};

}  // namespace tlt::serve
