# Builds tokenizer-rs/ with cargo into one static library, target `evenkeel_tokenizer`.
#
# All build directories share one cargo target directory: the library does not depend on their flags (sanitizers
# instrument the C++ side only), and building it takes a minute.
set(EVENKEEL_CARGO_TARGET_DIR ${PROJECT_SOURCE_DIR}/build/cargo CACHE PATH "Where cargo builds the tokenizer library")
set(EVENKEEL_CARGO_AT_LEAST 1.80.0)

# The first cargo of PATH and of /usr/bin (Debian's cargo-web) that is recent enough.
function(evenkeel_find_cargo out)
  find_program(EVENKEEL_CARGO_ON_PATH cargo HINTS $ENV{HOME}/.cargo/bin)
  foreach(candidate IN ITEMS ${EVENKEEL_CARGO_ON_PATH} /usr/bin/cargo)
    if(NOT EXISTS ${candidate})
      continue()
    endif()
    execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed AND text MATCHES "cargo ([0-9]+\\.[0-9]+\\.[0-9]+)" AND
       CMAKE_MATCH_1 VERSION_GREATER_EQUAL EVENKEEL_CARGO_AT_LEAST)
      set(${out} ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "no cargo of version ${EVENKEEL_CARGO_AT_LEAST} or later; on Debian 12: "
                      "apt-get install cargo-web (scripts/setup does)")
endfunction()

evenkeel_find_cargo(EVENKEEL_CARGO)
# The compiler beside that cargo, not whichever is first on PATH.
cmake_path(GET EVENKEEL_CARGO PARENT_PATH EVENKEEL_CARGO_FOLDER)
find_program(EVENKEEL_RUSTC rustc PATHS ${EVENKEEL_CARGO_FOLDER} NO_DEFAULT_PATH REQUIRED)

set(crate ${CMAKE_CURRENT_LIST_DIR}/tokenizer-rs)
set(library ${EVENKEEL_CARGO_TARGET_DIR}/release/libevenkeel_tokenizer.a)
add_custom_command(
  OUTPUT ${library}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${EVENKEEL_CARGO_TARGET_DIR} RUSTC=${EVENKEEL_RUSTC}
          ${EVENKEEL_CARGO} build --release --locked --quiet --manifest-path ${crate}/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E touch ${library}
  DEPENDS ${crate}/Cargo.toml ${crate}/Cargo.lock ${crate}/src/lib.rs
  COMMENT "Building the tokenizer library with cargo"
  VERBATIM)
add_custom_target(evenkeel_tokenizer_build DEPENDS ${library})

add_library(evenkeel_tokenizer STATIC IMPORTED GLOBAL)
set_target_properties(evenkeel_tokenizer PROPERTIES IMPORTED_LOCATION ${library})
target_link_libraries(evenkeel_tokenizer INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(evenkeel_tokenizer evenkeel_tokenizer_build)
