// The main function of a decoder process: confine itself, then decode until the worker closes the socket.
//
// It runs in a process with one thread, forked by decoder_spawner.cc. Media are in files that come with every
// call: the input is mapped for reading, the fields for writing, and both are unmapped after the item. The
// files are closed before the first byte of the item is read.
#pragma once

#include <cstdint>

#include "preprocess/processor.h"

namespace evenkeel::isolation {

// Reports whether it is confined (a DecoderReply), then serves the calls that arrive at `socket`.
[[noreturn]] void RunDecoder(int socket, const preprocess::Processor& processor, uint64_t memory_bytes);

}  // namespace evenkeel::isolation
