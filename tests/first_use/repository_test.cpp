// The repository requires only packages that are used (B22), and tools/ is for users (B25).
//
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <set>

#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = TLT_SOURCE_DIR;

std::string text_of(const fs::path& path) { return read_file(path.string(), 1 << 24); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What follows "#include <" in all sources.
std::set<std::string> included_headers() {
  std::set<std::string> headers;
  for (const char* folder : {"src", "tests", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(kSource / folder)) {
      const std::string kind = entry.path().extension();
      if (kind != ".h" && kind != ".cpp" && kind != ".cu") continue;
      for (const std::string& line : lines_of(text_of(entry.path())))
        if (line.starts_with("#include <")) headers.insert(line.substr(10, line.find('>') - 10));
    }
  return headers;
}

TEST(RepositoryTest, EveryLibraryIsUsed) {  // B22
  if (std::system("dpkg -L libfmt-dev >/dev/null 2>&1") != 0) GTEST_SKIP() << "no Debian packages";
  const std::set<std::string> included = included_headers();
  ASSERT_TRUE(included.contains("fmt/core.h"));
  for (const std::string& package : lines_of(text_of(kSource / "setup/debian-packages.txt"))) {
    if (!package.ends_with("-dev")) continue;
    const std::string list = scratch_folder() + "/" + package;
    ASSERT_EQ(std::system(("dpkg -L " + package + " >" + list).c_str()), 0) << package;
    bool is_used = false;
    for (const std::string& path : lines_of(text_of(list)))
      if (path.starts_with("/usr/include/"))
        is_used = is_used || included.contains(path.substr(std::string("/usr/include/").size()));
    EXPECT_TRUE(is_used) << "no source includes a header of " << package;
  }
}

TEST(RepositoryTest, ThePageOfDependenciesNamesEveryPackage) {
  const std::string page = text_of(kSource / "docs/dependencies.md");
  for (const std::string& package : lines_of(text_of(kSource / "setup/debian-packages.txt")))
    if (!package.starts_with('#')) {
      EXPECT_THAT(page, HasSubstr(package));
    }
}

TEST(RepositoryTest, ToolsAreForUsers) {  // B25
  const std::string index = text_of(kSource / "docs/README.md");
  for (const auto& entry : fs::directory_iterator(kSource / "tools")) {
    const std::string name = entry.path().filename();
    if (name.starts_with('_')) continue;  // shared by the others
    EXPECT_TRUE(text_of(entry.path()).starts_with("#!")) << name;
    EXPECT_NE(entry.status().permissions() & fs::perms::others_exec, fs::perms::none) << name;
    EXPECT_THAT(index, HasSubstr("tools/" + name));
  }
}

}  // namespace
}  // namespace tlt::first_use
