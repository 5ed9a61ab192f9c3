// DataFiles: the files that the name of a folder of shards, or a pattern, stands for.
//
// Not here   reading them (rows.h).
// Threading  any.
//
//   find_data_files("gsm8k/train-*.parquet", "data.train_files")   // in the order of their names
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/data_options.h"

namespace tlt::data {

// A name that is there stands for itself, and a folder for the data files in it, which must be of
// one kind; hidden files do not count. Else *, ? and […] are the shell's, and folders that match
// are left out. What is neither stays as it is: what opens it says so. Sorted by bytes. InputError,
// beginning with `option`: there is no such file.
std::vector<std::string> find_data_files(const std::string& name, std::string_view option);

// Puts the files in place of folders and patterns; each has the weight of what stood for it. What a
// run then depends on, and its options.toml says, are the files themselves. InputError as above.
// REQUIRES: options.check().
void expand_data_files(DataOptions& options);

}  // namespace tlt::data
