// Declarations for ProcessGroupGloo.hpp of torch 2.11: see the README of gloo_shim. It names
// nothing of this file.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
