// What a decoder process does: confine itself, then make one item after another until the worker lets go.
//
// Runs in a process of one thread, forked by decoder_spawner.cc. Media lie in files that come with every
// call: the input mapped for reading, the fields for writing, both unmapped when the item is done. The files
// are closed before the item's first byte is looked at.
#pragma once

#include <cstdint>

#include "preprocess/processor.h"

namespace evenkeel::isolation {

// Says whether it is confined (a DecoderReply), then serves the calls that arrive at `socket`.
[[noreturn]] void RunDecoder(int socket, const preprocess::Processor& processor, uint64_t memory_bytes);

}  // namespace evenkeel::isolation
