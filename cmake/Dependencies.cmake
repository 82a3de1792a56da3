# Every third-party library, by Debian 12 package. A missing one fails the configuration.
# The client needs these. libcrypto comes with gRPC.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)                  # libprotobuf-dev, protobuf-compiler
find_package(absl REQUIRED)                      # libabsl-dev
find_package(yaml-cpp REQUIRED)                  # libyaml-cpp-dev
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++)          # libgrpc++-dev, protobuf-compiler-grpc
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)       # libssl-dev
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)                # libucx-dev
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)       # libxxhash-dev
if(NOT EVENKEEL_WORKER)
  return()
endif()

# The worker and the command need these too.
find_package(prometheus-cpp CONFIG REQUIRED)     # prometheus-cpp-dev
find_package(CLI11 REQUIRED)                     # libcli11-dev
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)           # libjpeg62-turbo-dev
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)             # libpng-dev
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp libwebpdemux)           # libwebp-dev
find_package(GIF REQUIRED)                       # libgif-dev
pkg_check_modules(TIFF REQUIRED IMPORTED_TARGET libtiff-4>=4.5)              # libtiff-dev
pkg_check_modules(FFMPEG REQUIRED IMPORTED_TARGET libavformat libavcodec libavutil libswscale libswresample)
pkg_check_modules(SOXR REQUIRED IMPORTED_TARGET soxr)              # libsoxr-dev
pkg_check_modules(MPG123 REQUIRED IMPORTED_TARGET libmpg123)      # libmpg123-dev
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)              # zlib1g-dev
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)           # libzstd-dev
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)     # libseccomp-dev
if(EVENKEEL_TESTS)
  find_package(GTest REQUIRED)                   # libgtest-dev, libgmock-dev
endif()
