// The one file that is compiled with the path.
#include "tests/source_dir.h"

namespace evenkeel {

std::string SourceDir() { return EVENKEEL_SOURCE_DIR; }

}  // namespace evenkeel
