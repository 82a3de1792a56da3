// What most tests read anyway, precompiled in every build (evenkeel_precompile).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/room_headers.h"
