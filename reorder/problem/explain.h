// Explains why a text is not a message of a type: the place, the error there, and for an unknown field the
// nearest known one. For texts that protobuf's own parser has refused.
//
// It does not parse problems (messages.h) or judge well-formed ones (kinds.h).
//
// Thread safety: a pure function.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace evenkeel::reorder {

// "balance.phases[0]: unknown field 'nme'; nearest is 'name'". `root` is the name of the outermost message,
// or empty. `refusal` is the parser's error: it is used if nothing is found, and for texts that are not
// JSON.
std::string Explain(const std::string& json, const google::protobuf::Descriptor& type,
                    const std::string& root, const std::string& refusal);

}  // namespace evenkeel::reorder
