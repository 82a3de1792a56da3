// A view of bytes, as the C interfaces of rust/ take and return it.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct EvenkeelText {
  const uint8_t* bytes;
  size_t num_bytes;
} EvenkeelText;
