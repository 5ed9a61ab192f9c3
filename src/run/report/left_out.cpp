// SPDX-License-Identifier: Apache-2.0
#include "run/report/left_out.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_fault.h"
#include "base/json_lines.h"
#include "base/sentence.h"

namespace tlt::run {

void for_each_row(const std::string& path, int64_t max_line_bytes, LeftOut& left_out,
                  const std::function<bool(nlohmann::json& row)>& use) {
  JsonLinesReader reader(open_file(path), max_line_bytes);
  nlohmann::json row;
  while (true) {
    const int64_t before = reader.line();
    try {
      if (!reader.try_next(row) || !use(row)) return;
    } catch (const InputError& error) {
      left_out.add(error.what());
      if (reader.line() == before) return;  // no end of the line within the limit
    } catch (const nlohmann::json::exception& error) {
      left_out.add(one_sentence(reader.place() + ": left out (" + json_fault(error) + ")"));
    }
  }
}

}  // namespace tlt::run
