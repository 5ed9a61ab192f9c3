// DataFiles: resolves the name of a folder of shards, or a pattern, to files.
//
// Not here   reading them (rows.h).
// Threading  any.
//
//   find_data_files("gsm8k/train-*.parquet", "data.train_files")   // sorted by name
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/data_options.h"

namespace tlt::data {

// An existing file is itself; a folder is the data files in it, which must be of one kind, without
// hidden files. Otherwise *, ? and […] are as in the shell, without matching folders. Any other
// name is returned unchanged, and opening it reports the error. Sorted by bytes. InputError,
// beginning with `option`: there is no such file.
std::vector<std::string> find_data_files(const std::string& name, std::string_view option);

// A run's folder rollouts/, or verl's trainer.rollout_data_dir: its .jsonl files in the order of the
// steps that they are named by, 000001.jsonl or, from verl, 1.jsonl. InputError: there are none.
std::vector<std::string> find_step_files(const std::string& folder);

// Replaces folders and patterns by their files, each with the weight of the folder or pattern: the
// run depends on these files, and its options.toml lists them. InputError as above. REQUIRES:
// options.check().
void expand_data_files(DataOptions& options);

}  // namespace tlt::data
