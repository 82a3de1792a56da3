// Where the sources lie, for tests that read goldens and documents. Compiled in one file: a path in the
// command line of every test would keep a compiler's cache from serving another clone.
#pragma once

#include <string>

namespace evenkeel {

// The absolute path of the project's root, without a slash at its end.
std::string SourceDir();

}  // namespace evenkeel
