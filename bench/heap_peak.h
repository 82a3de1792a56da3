// What a program holds on the heap, at most: linking heap_peak.cc replaces operator new and delete of the whole program.
#pragma once

#include <cstddef>

struct HeapUse {
  size_t held = 0;  // bytes that are allocated now
  size_t peak = 0;  // the most since ResetHeapPeak()
};

// Of all threads. Bytes as malloc gives them out, so also what rounds up an allocation.
HeapUse HeapNow();
void ResetHeapPeak();
