// What the commands read, precompiled where EVENKEEL_PRECOMPILE is on (evenkeel_commands).
#pragma once

#include <CLI/CLI.hpp>

#include "cmake/room_headers.h"
