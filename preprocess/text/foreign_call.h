// A scope around a call into the Rust library, for ThreadSanitizer: it sees the library's memory copies but
// not the locks that order them, because the Rust code is not instrumented. Inside the scope it ignores
// memory accesses.
//
// Thread safety: none; an object of one scope.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define EVENKEEL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EVENKEEL_TSAN 1
#endif
#endif

#ifdef EVENKEEL_TSAN
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace evenkeel::preprocess {

class ForeignCall {
 public:
#ifdef EVENKEEL_TSAN
  ForeignCall() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~ForeignCall() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  ForeignCall() {}  // not defaulted, which would cause warnings of unused variables
#endif
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
};

}  // namespace evenkeel::preprocess
