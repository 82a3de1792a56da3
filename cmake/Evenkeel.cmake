# Flags, sanitizers and the helpers that declare rooms and tests.

# Sizes and counters are compared with plain integers in many tests, hence no -Wsign-compare.
add_compile_options(-Wall -Wextra -Wno-sign-compare)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC warns about designated initializers, which name some members and leave the others at their defaults on
  # purpose; clang warns only about initializers in order that stop too early.
  add_compile_options(-Wno-missing-field-initializers)
else()
  # Every build by clang analyses the locks (core/annotated_mutex.h). Without a time in it, ccache knows a precompiled
  # header again.
  add_compile_options(-Wthread-safety -Werror=thread-safety "SHELL:-Xclang -fno-pch-timestamp")
endif()
if(EVENKEEL_WERROR)
  add_compile_options(-Werror)
endif()
# Bit identity: no fused multiply-add unless it is written, no reassociation, the
# baseline instruction set everywhere; faster paths are dispatched at run time.
add_compile_options(-ffp-contract=off -fno-fast-math)
add_compile_definitions(_FILE_OFFSET_BITS=64)

if(EVENKEEL_SANITIZE)
  # ThreadSanitizer looks at the rooms with threads. Those of EVENKEEL_PLAIN_ROOMS start none, and clang's analysis sees
  # their few locks: compiled as in the release build, they come from the compiler cache.
  set(EVENKEEL_PLAIN_ROOMS "")
  set(sanitizer_options -fsanitize=${EVENKEEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(EVENKEEL_SANITIZE MATCHES thread)
    set(EVENKEEL_PLAIN_ROOMS proto core preprocess reorder reorder_problem)
    # With assertions. GCC warns of what the instrumentation alone brings.
    list(APPEND sanitizer_options -O1 -g1 -UNDEBUG -Wno-error)
  endif()
  set(sanitized $<NOT:$<BOOL:$<TARGET_PROPERTY:EVENKEEL_PLAIN>>>)
  add_compile_options("$<${sanitized}:${sanitizer_options}>")
  add_link_options(-fsanitize=${EVENKEEL_SANITIZE})
  # Debian's Abseil and protobuf are not instrumented.
  add_compile_definitions($<${sanitized}:EVENKEEL_SANITIZED=1>)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# A seventh of the time of the GNU linker, for a hundred and more programs a build.
find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()

# evenkeel_program_flags(TARGET)
# For what only programs link and nobody waits for: code of programs rather than of libraries, optimised little, because
# it compiles in half the time. One set of flags, so that one precompiled header serves all of them.
function(evenkeel_program_flags target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE $<$<CONFIG:Release>:-O1>)
endfunction()

# evenkeel_precompile(TARGET HEADERS)
# Precompiles cmake/HEADERS.h, once for all targets that name it: reading the standard library, Abseil and GoogleTest
# takes longer than compiling most files. Rooms do this where EVENKEEL_PRECOMPILE says so, tests always. That a file
# includes what it uses is therefore a test's to see (tests/lint/test_includes.py).
function(evenkeel_precompile target headers)
  set(owner evenkeel_${headers})
  get_target_property(plain ${target} EVENKEEL_PLAIN)
  if(EVENKEEL_PLAIN_ROOMS AND NOT plain)
    string(APPEND owner _sanitized)
  endif()
  if(NOT TARGET ${owner})
    # Never linked: it compiles the header as its users are compiled. Without a source CMake would compile nothing.
    set(empty ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cc)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(${owner} OBJECT EXCLUDE_FROM_ALL ${empty})
    set_target_properties(${owner} PROPERTIES EVENKEEL_PLAIN "${plain}")
    target_include_directories(${owner} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${owner} PRIVATE absl::status absl::statusor absl::strings absl::time)
    if(headers STREQUAL "test_headers")
      target_link_libraries(${owner} PRIVATE GTest::gmock GTest::gtest)
      evenkeel_program_flags(${owner})
    elseif(headers STREQUAL "command_headers")
      target_link_libraries(${owner} PRIVATE CLI11::CLI11)
      evenkeel_program_flags(${owner})
    endif()
    target_precompile_headers(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/${headers}.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  # GCC 12 reads bounds of std::string's inlined functions wrongly where they come from a precompiled header.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-stringop-overread>)
endfunction()

# evenkeel_room(NAME SOURCES... PUBLIC_DEPS... PRIVATE_DEPS...)
# Declares the static library evenkeel_NAME with the alias evenkeel::NAME.
# Includes are written from the project's root ("core/plan.h").
function(evenkeel_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;PUBLIC_DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(evenkeel_${name} STATIC ${ROOM_SOURCES})
  add_library(evenkeel::${name} ALIAS evenkeel_${name})
  target_include_directories(evenkeel_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(evenkeel_${name} PUBLIC ${ROOM_PUBLIC_DEPS} PRIVATE ${ROOM_PRIVATE_DEPS})
  if(name IN_LIST EVENKEEL_PLAIN_ROOMS)
    set_target_properties(evenkeel_${name} PROPERTIES EVENKEEL_PLAIN ON)
  endif()
  if(EVENKEEL_PRECOMPILE)
    evenkeel_precompile(evenkeel_${name} room_headers)
  endif()
endfunction()

# evenkeel_commands(TARGET)
# A target of commands: they translate arguments, and reading CLI11 took longer than compiling them.
function(evenkeel_commands target)
  evenkeel_program_flags(${target})
  if(EVENKEEL_PRECOMPILE)
    evenkeel_precompile(${target} command_headers)
  endif()
endfunction()

# evenkeel_bundle(TARGET NAME FILES...)
# With EVENKEEL_PRECOMPILE, these sources of TARGET are one translation unit. What takes long there are the functions of
# header libraries (CLI11, nlohmann_json, GoogleTest), of which every file would compile its own.
# For files whose names in unnamed namespaces do not clash; the paths are relative to the project, that ccache
# serves another clone.
function(evenkeel_bundle target name)
  if(NOT EVENKEEL_PRECOMPILE)
    return()
  endif()
  file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"${room}/\\1\"\n" OUTPUT_VARIABLE includes)
  list(JOIN includes "" includes)
  set(bundle ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.cc)
  file(CONFIGURE OUTPUT ${bundle} CONTENT "${includes}" @ONLY)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  target_sources(${target} PRIVATE ${bundle})
endfunction()

# Where the sources lie (tests/source_dir.h).
add_library(evenkeel_source_dir STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/source_dir.cc)
target_include_directories(evenkeel_source_dir PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_definitions(evenkeel_source_dir PRIVATE EVENKEEL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# What `--target tsan_tests` and `--target fuzz_targets` build.
add_custom_target(tsan_tests)
add_custom_target(fuzz_targets)

# evenkeel_test(NAME SOURCES... DEPS... [LABELS...] [TIMEOUT seconds])
# A GoogleTest binary, registered with ctest as one test.
function(evenkeel_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} evenkeel_source_dir GTest::gmock GTest::gtest GTest::gtest_main)
  # The rooms are optimised, their tests need not be.
  evenkeel_program_flags(${name})
  evenkeel_precompile(${name} test_headers)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}"
    ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp halt_on_error=1 ignore_noninstrumented_modules=1;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp;UBSAN_OPTIONS=print_stacktrace=1")
  if(EVENKEEL_SANITIZE)
    # UCX's hooks into mmap and munmap run where the sanitizers' threads have begun to end.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT UCX_MEM_EVENTS=n)
  endif()
  if(EVENKEEL_SANITIZE MATCHES thread)
    target_link_options(${name} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/tests/tsan.ld)
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tsan.ld)
  endif()
  # The rooms with threads are the ones that the tsan preset builds and runs.
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME room)
  if(room MATCHES "^(isolation|telemetry|transport|server|client)$" OR "tsan" IN_LIST TEST_LABELS)
    set_property(TEST ${name} APPEND PROPERTY LABELS tsan)
    add_dependencies(tsan_tests ${name})
  endif()
endfunction()

# evenkeel_fuzz(NAME SOURCES... DEPS...)
# With EVENKEEL_FUZZ a libFuzzer target. Else, where AddressSanitizer is on, a test of seconds: the seeds of
# tests/fuzz_seeds.py and mutations of them, through tests/fuzz_replay.cc.
function(evenkeel_fuzz name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;DEPS" ${ARGN})
  if(EVENKEEL_FUZZ)
    add_executable(${name} ${FUZZ_SOURCES})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets ${name})
  elseif(EVENKEEL_SANITIZE MATCHES address)
    add_executable(${name} ${FUZZ_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz_replay.cc)
    add_test(NAME ${name} COMMAND ${name} ${CMAKE_BINARY_DIR}/fuzz_seeds/${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS fuzz FIXTURES_REQUIRED fuzz_seeds)
  else()
    return()
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${FUZZ_DEPS} evenkeel_source_dir)
endfunction()

function(evenkeel_print_summary)
  message(STATUS "evenkeel ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, sanitizers: '${EVENKEEL_SANITIZE}', "
                 "tests: ${EVENKEEL_TESTS}, python: ${EVENKEEL_PYTHON}, bench: ${EVENKEEL_BENCH}, fuzz: ${EVENKEEL_FUZZ}")
endfunction()
